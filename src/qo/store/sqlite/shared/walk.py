"""The candidates that may start next, in order, without reading jobs that are known to be blocked.

The next one is the smallest of the first jobs of ready lanes, and of lanes that are parked in open groups; when it was
taken, the next job of its lane is a candidate. A walk only reads the indexes and remembers how far it has read; the
step settles them afterwards.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from qo.store.sqlite.shared import sql
from qo.store.sqlite.shared.rows import COLUMNS, JobRow, names
from qo.store.sqlite.shared.step import Step
from qo.store.sqlite.shared.suspects import Source
from qo.store.sqlite.shared.tickets import TICKET_COLUMNS, TicketRow
from qo.store.sqlite.shared.turns import keep_slots

CALLERS = Source("")
"""The name in place of a task under which waiting callers are parked and opened."""

LARGEST_BATCH = 64
NO_KEY = 1 << 53
"""Greater than every order key."""


Candidate = JobRow | TicketRow


class _Table(NamedTuple):
    """The statements that read jobs, or tickets."""

    make: Callable[..., Candidate]
    ready: str
    parked: str
    of_a_lane: str


def _table(make: type[Candidate], table: str, lane: str, *, columns: str, of_source: str) -> _Table:
    # The first ones of lanes come with the key of the next one in the same lane.
    behind = f"behind.{lane} = {table}.{lane} AND behind.key > {table}.key"
    first = f"SELECT {columns}, (SELECT min(key) FROM {table} AS behind WHERE {behind}) FROM {table}"
    return _Table(
        make=make,
        ready=f"{first} WHERE {of_source} AND first AND parked IS NULL AND key > ?3 ORDER BY key LIMIT ?4",
        parked=f"{first} WHERE parked = ?3 AND {of_source} AND key >= ?4 ORDER BY key LIMIT 2",
        of_a_lane=f"SELECT {columns} FROM {table} WHERE {lane} = ? AND key >= ? ORDER BY key LIMIT ?",
    )


_JOBS = _table(JobRow, "job", "lane", columns=COLUMNS, of_source="task = ?1 AND suspicion = ?2")
_TICKETS = _table(TicketRow, "ticket", "groups", columns=TICKET_COLUMNS, of_source="(?1, ?2) = ('', 0)")


class _Lane:
    """The rest of a lane whose first candidate was yielded."""

    __slots__ = ("batch", "is_over", "is_read", "name", "parked", "rows")

    def __init__(self, name: str, parked: str | None, batch: int) -> None:
        self.name = name
        self.parked = parked
        self.rows: deque[Candidate] = deque()
        self.is_read = False
        """There is nothing behind `rows`."""
        self.batch = batch
        self.is_over = False
        """It was put aside."""


class Walk:
    """Yields each candidate once, smallest key first. Skips the sources for which `passes` returns True.

    `expected` is the probable number of candidates; at most so many are read at a time. Which slots are kept for turns
    is worked out when the walk begins. Whether they leave room for a candidate is asked when it is the smallest of all:
    all turns before it are dealt with then, so what is stopped is not looked at again in this walk.
    """

    def __init__(
        self, step: Step, sources: Iterable[Source], *, expected: int, passes: Callable[[Source], bool]
    ) -> None:
        keep_slots(step)
        batch = min(expected, LARGEST_BATCH)
        self._groups = step.groups
        self._sources = [_Source(step, source, batch) for source in sources]
        self._passes = passes
        self._lane: _Lane | None = None

    def __iter__(self) -> Iterator[Candidate]:
        while (candidate := self.next()) is not None:
            yield candidate

    def next(self) -> Candidate | None:
        first = self._first()
        if first is None:
            return None
        source, key = first
        candidate, self._lane = source.take(key)
        return candidate

    def put_lane_aside(self) -> None:
        """No more of the lane of the last candidate."""
        if self._lane is not None:
            self._lane.is_over = True

    def has_more(self) -> bool:
        return self._first() is not None

    def fetched(self) -> list[int]:
        """The numbers of jobs that were read but not yet yielded."""
        return [row.number for source in self._sources for row in source.fetched() if isinstance(row, JobRow)]

    def has_callers(self) -> bool:
        """Whether a caller is a candidate as things are now."""
        return any(source.name == CALLERS and source.has_candidates() for source in self._sources)

    def _first(self) -> tuple[_Source, int] | None:
        while (first := self._smallest()) is not None and self._groups.kept:
            source, key = first
            if source.name != CALLERS and not self._groups.gate_lets_by(source.name.task, key):
                self._sources.remove(source)
            elif source.has_room_left(key):
                break
        return first

    def _smallest(self) -> tuple[_Source, int] | None:
        first, first_key = None, NO_KEY
        for source in tuple(self._sources):
            if self._passes(source.name):
                continue
            key = source.key
            if key is None:
                self._sources.remove(source)  # it gets no new candidates during a walk
            elif key < first_key:
                first, first_key = source, key
        return None if first is None else (first, first_key)


class _Source:
    """The candidates of one source."""

    def __init__(self, step: Step, name: Source, batch: int) -> None:
        self.name = name
        self._table = _TICKETS if name == CALLERS else _JOBS
        self._batch = batch
        self._step = step
        self._ready: deque[tuple[Candidate, int | None]] = deque()
        self._ready_after: int | None = -1
        self._open: deque[tuple[int, str]] = deque()
        self._open_after: int | None = -1
        self._advanced: list[tuple[int, str]] = []
        """A heap of open groups whose first lanes were yielded, under the key of the next one."""
        self._lanes: list[tuple[int, _Lane]] = []
        """A heap of lanes whose first candidates were yielded, under the key of the next one."""
        self._lanes_found = 0

    @property
    def key(self) -> int | None:
        keys = (self._ready_key(), self._parked_key(), self._lane_key())
        return min((key for key in keys if key is not None), default=None)

    def take(self, key: int) -> tuple[Candidate, _Lane | None]:
        """Take the candidate with the smallest key, which is `key`; and the rest of its lane, if there is any."""
        if self._ready and self._ready[0][0].key == key:
            candidate, following = self._ready.popleft()
            return candidate, self._go_on_with(candidate, following, parked=None)
        if self._lanes and self._lanes[0][0] == key:
            return self._take_from_lane(key)
        return self._take_parked(key)

    def has_room_left(self, key: int) -> bool:
        """Whether kept slots leave room for the candidate with the smallest key; else it, and what is parked behind it,
        is dropped."""
        groups = self._step.groups
        if not groups.kept or (self._ready and self._ready[0][0].key == key):
            return True
        if self._lanes and self._lanes[0][0] == key:
            parked = self._lanes[0][1].parked
            if parked is None or groups.has_room_for(parked, key):
                return True
            heapq.heappop(self._lanes)
        elif self._open and self._open[0][0] == key:
            if groups.has_room_for(self._open[0][1], key):
                return True
            self._open.popleft()
        else:
            if groups.has_room_for(self._advanced[0][1], key):
                return True
            heapq.heappop(self._advanced)
        return False

    def has_candidates(self) -> bool:
        """Whether there is a candidate that kept slots leave room for as things are now. Nothing is dropped."""
        groups = self._step.groups
        if not groups.kept:
            return self.key is not None
        if self._ready_key() is not None:
            return True
        while self._open_after is not None:
            self._fetch_open(self._open_after)
        parked = [*self._open, *self._advanced]
        return any(groups.has_room_for(group, key) for key, group in parked) or any(
            not lane.is_over and (lane.parked is None or groups.has_room_for(lane.parked, key))
            for key, lane in self._lanes
        )

    def fetched(self) -> Iterable[Candidate]:
        for row, _ in self._ready:
            yield row
        for _, lane in self._lanes:
            yield from lane.rows

    def _read_firsts(self, statement: str, bindings: tuple[object, ...]) -> list[tuple[Candidate, int | None]]:
        # What waits to be written are jobs that this walk has yielded, or lanes that it has put aside.
        found = sql.rows(self._step.writes.connection, statement, bindings)
        self._lanes_found += len(found)
        return [(self._table.make(*row[:-1]), row[-1]) for row in found]

    # --- ready ------------------------------------------------------------------------------------------------

    def _ready_key(self) -> int | None:
        if not self._ready and self._ready_after is not None:
            self._ready.extend(self._read_firsts(self._table.ready, (*self.name, self._ready_after, self._batch)))
            self._ready_after = self._ready[-1][0].key if len(self._ready) == self._batch else None
        return self._ready[0][0].key if self._ready else None

    # --- the rest of a lane -----------------------------------------------------------------------------------

    def _go_on_with(self, candidate: Candidate, following: int | None, *, parked: str | None) -> _Lane | None:
        if following is None:
            return None
        name = candidate.groups if isinstance(candidate, TicketRow) else candidate.lane
        assert name is not None
        # The more lanes there are, the fewer will probably be taken from each.
        lane = _Lane(name, parked, batch=1 + self._batch // self._lanes_found)
        heapq.heappush(self._lanes, (following, lane))
        return lane

    def _lane_key(self) -> int | None:
        while self._lanes:
            key, lane = self._lanes[0]
            # A group that became full during this walk has no more candidates.
            if not lane.is_over and (lane.parked is None or self._step.groups.has_room(lane.parked)):
                return key
            heapq.heappop(self._lanes)
        return None

    def _take_from_lane(self, key: int) -> tuple[Candidate, _Lane | None]:
        _, lane = heapq.heappop(self._lanes)
        if len(lane.rows) < 2 and not lane.is_read:
            self._read_on(lane, key)
        candidate = lane.rows.popleft()
        if lane.rows:
            following = lane.rows[0].key
            assert following is not None
            heapq.heappush(self._lanes, (following, lane))
        return candidate, lane

    def _read_on(self, lane: _Lane, key: int) -> None:
        """Read so far that the one behind the next candidate is known, which is at this key."""
        found = sql.rows(self._step.writes.connection, self._table.of_a_lane, (lane.name, key, lane.batch + 1))
        lane.is_read = len(found) <= lane.batch
        lane.batch = min(2 * lane.batch, LARGEST_BATCH)
        lane.rows.clear()
        lane.rows.extend(self._table.make(*row) for row in found)

    # --- parked in open groups --------------------------------------------------------------------------------

    def _parked_key(self) -> int | None:
        has_room = self._step.groups.has_room
        while self._advanced and not has_room(self._advanced[0][1]):
            heapq.heappop(self._advanced)
        while True:
            if not self._open and self._open_after is not None:
                self._fetch_open(self._open_after)
            if not self._open or has_room(self._open[0][1]):
                break
            self._open.popleft()
        if self._advanced and (not self._open or self._advanced[0] < self._open[0]):
            return self._advanced[0][0]
        return self._open[0][0] if self._open else None

    def _fetch_open(self, after: int) -> None:
        found = sql.rows(
            self._step.db,
            "SELECT key, grp FROM open WHERE task = ? AND suspicion = ? AND key > ? ORDER BY key LIMIT ?",
            (*self.name, after, self._batch),
        )
        self._open.extend(found)
        self._open_after = found[-1][0] if len(found) == self._batch else None

    def _take_parked(self, key: int) -> tuple[Candidate, _Lane | None]:
        if self._open and self._open[0][0] == key:
            _, group = self._open.popleft()
        else:
            _, group = heapq.heappop(self._advanced)
        found = self._read_firsts(self._table.parked, (*self.name, group, key))
        if len(found) > 1:
            next_lane = found[1][0].key
            assert next_lane is not None
            heapq.heappush(self._advanced, (next_lane, group))
        candidate, following = found[0]
        return candidate, self._go_on_with(candidate, following, parked=group)


def ticket_groups(ticket: TicketRow) -> tuple[str, ...]:
    return names(ticket.groups)
