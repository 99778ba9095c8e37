"""The candidates that may start next, in order, without reading jobs that are known to be blocked.

The next one is the smallest of the heads of ready(task) and of parked(group, task) for groups in open(task). A walk
only reads the open index and remembers how far it has read in each group; the step settles the index afterwards.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator

import msgspec

from qo.store.sqlite.shared import sql
from qo.store.sqlite.shared.rows import SELECT, JobRow, names
from qo.store.sqlite.shared.step import Step

CALLERS = ""
"""The name in place of a task under which waiting callers are parked and opened."""

LARGEST_BATCH = 64
NO_KEY = 1 << 53
"""Greater than every order key."""


class TicketRow(msgspec.Struct):
    holder: str
    key: int
    groups: str
    parked: str | None
    expires_at: int
    lease_ms: int
    wait_ms: int
    worker: str | None
    joined_at: int


Candidate = JobRow | TicketRow


class Walk:
    """Yields each candidate once, smallest key first. Skips the tasks for which `passes` returns True.

    `expected` is the probable number of candidates; so many are read at a time.
    """

    def __init__(self, step: Step, tasks: Iterable[str], *, expected: int, passes: Callable[[str], bool]) -> None:
        batch = min(expected, LARGEST_BATCH)
        self._sources = [_Source(step, task, batch) for task in tasks]
        self._passes = passes

    def __iter__(self) -> Iterator[Candidate]:
        while (first := self._first()) is not None:
            source, key = first
            yield source.take(key)

    def has_more(self) -> bool:
        return self._first() is not None

    def fetched(self) -> list[int]:
        """The numbers of jobs that were read but not yet yielded."""
        return [row.number for source in self._sources for row in source.fetched() if isinstance(row, JobRow)]

    def has_callers(self) -> bool:
        return any(source.task == CALLERS and source.key is not None for source in self._sources)

    def _first(self) -> tuple[_Source, int] | None:
        first, first_key = None, NO_KEY
        for source in tuple(self._sources):
            if self._passes(source.task):
                continue
            key = source.key
            if key is None:
                self._sources.remove(source)  # it gets no new candidates during a walk
            elif key < first_key:
                first, first_key = source, key
        return None if first is None else (first, first_key)


class _Source:
    """The candidates of one task."""

    def __init__(self, step: Step, task: str, batch: int) -> None:
        self.task = task
        self._batch = batch
        self._step = step
        self._ready: deque[Candidate] = deque()
        self._ready_after: int | None = -1
        self._open: deque[tuple[int, str]] = deque()
        self._open_after: int | None = -1
        self._advanced: list[tuple[int, str]] = []
        """A heap of open groups whose first candidates were yielded, under the key of the next one."""

    @property
    def key(self) -> int | None:
        ready, parked = self._ready_key(), self._parked_key()
        if ready is None or parked is None:
            return parked if ready is None else ready
        return min(ready, parked)

    def take(self, key: int) -> Candidate:
        """Take the candidate with the smallest key, which is `key`."""
        if self._ready and self._ready[0].key == key:
            return self._ready.popleft()
        return self._take_parked(key)

    def fetched(self) -> Iterable[Candidate]:
        return self._ready

    # --- ready ------------------------------------------------------------------------------------------------

    def _ready_key(self) -> int | None:
        if not self._ready and self._ready_after is not None:
            self._ready.extend(self._fetch_ready(self._ready_after))
            self._ready_after = self._ready[-1].key if len(self._ready) == self._batch else None
        return self._ready[0].key if self._ready else None

    def _fetch_ready(self, after: int) -> list[Candidate]:
        if self.task == CALLERS:
            tickets = sql.rows(
                self._step.db,
                "SELECT * FROM ticket WHERE parked IS NULL AND key > ? ORDER BY key LIMIT ?",
                (after, self._batch),
            )
            return [TicketRow(*ticket) for ticket in tickets]
        jobs = sql.rows(
            self._step.db,
            f"{SELECT} WHERE task = ? AND state = 'queued' AND parked IS NULL AND key > ? ORDER BY key LIMIT ?",
            (self.task, after, self._batch),
        )
        return [JobRow(*job) for job in jobs]

    # --- parked in open groups --------------------------------------------------------------------------------

    def _parked_key(self) -> int | None:
        # A group that became full during this walk has no more candidates.
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
        self._open.extend(
            sql.rows(
                self._step.db,
                "SELECT key, grp FROM open WHERE task = ? AND key > ? ORDER BY key LIMIT ?",
                (self.task, after, self._batch),
            )
        )
        self._open_after = self._open[-1][0] if len(self._open) == self._batch else None

    def _take_parked(self, key: int) -> Candidate:
        if self._open and self._open[0][0] == key:
            _, group = self._open.popleft()
        else:
            _, group = heapq.heappop(self._advanced)
        found = self._fetch_parked(group, key)
        if len(found) > 1:
            following = found[1].key
            assert following is not None
            heapq.heappush(self._advanced, (following, group))
        return found[0]

    def _fetch_parked(self, group: str, key: int) -> list[Candidate]:
        """The candidate that is parked under this key, and the next one in that group."""
        db = self._step.db
        if self.task == CALLERS:
            tickets = sql.rows(
                db, "SELECT * FROM ticket WHERE parked = ? AND key >= ? ORDER BY key LIMIT 2", (group, key)
            )
            return [TicketRow(*ticket) for ticket in tickets]
        jobs = sql.rows(
            db, f"{SELECT} WHERE parked = ? AND task = ? AND key >= ? ORDER BY key LIMIT 2", (group, self.task, key)
        )
        return [JobRow(*job) for job in jobs]


def ticket_groups(ticket: TicketRow) -> tuple[str, ...]:
    return names(ticket.groups)
