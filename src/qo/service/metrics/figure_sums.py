"""The store's figures summed over all minutes, read in small parts, never going down.

The first reading takes all minutes. Later ones take only those that may have grown since: the store writes a figure to
the minute of its own clock, so these are the minute before the newest event of the last reading, and all after it.
Retention sums old minutes under minute 0, which changes no sum here.

All minutes are read again where that is not certain:

- The store's clock was set back, so that it writes to older minutes. The newest event shows it.
- A figure became smaller or is gone. Retention took it although it is of one of the newest minutes.
- The store has no event.

A sum takes the larger of both values then. So it keeps what the store forgets: the figures of a group without a limit,
when they are past their retention. A server that starts later does not have them.

What is missed until all minutes are read again: figures that were written to older minutes while the clock was set
back, if no event was written with them, or if the clock was right again at the next reading.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from qo.event import Event
from qo.loops.system import System
from qo.policy.figures import DEPTH
from qo.service.metrics.group_labels import GroupLabels, group_of
from qo.service.metrics.numbers import FigureSum
from qo.store.contract import Store
from qo.values import SeriesPoint

MINUTE_MS = 60_000


class _Change(msgspec.Struct, kw_only=True):
    """How much a figure has grown since the last reading, or all of it."""

    first_minute: int
    count: int = 0
    total_ms: int = 0


class FigureSums:
    """One for each process and store. Only one `refresh` at a time."""

    def __init__(self, store: Store, labels: GroupLabels, *, system: System) -> None:
        self.sums: Mapping[str, FigureSum] = {}
        """By the figure's name, with the label of a group in the place of its name."""
        self._store = store
        self._labels = labels
        self._system = system
        self._newest: Event | None = None
        """The newest event at the last reading."""
        self._read_at = 0.0
        """When the last reading began, in seconds of the monotonic clock."""
        self._since = 0
        """The oldest minute that may have grown since the last reading."""
        self._growing: dict[tuple[int, str], SeriesPoint] = {}
        """The figures of these minutes at the last reading, by minute and name."""

    async def refresh(self) -> None:
        """Read what has changed. Where that fails, nothing has changed here."""
        read_at = self._system.monotonic()
        # Before the figures: a figure that is written after they were read is of this event's minute or a later one.
        newest = await self._newest_event()
        read_all = self._may_have_grown_before_since(newest)
        points = await self._read(0 if read_all else self._since)
        if not read_all and self._is_smaller(points):
            read_all = True
            points = await self._read(0)
        since = 0 if newest is None else _minute_of(newest) - 1
        # In a thread, because the first reading may have a hundred thousand figures.
        await self._system.call_in_thread(self._take, points, read_all, since)
        self._newest, self._read_at = newest, read_at

    async def _read(self, since_minute: int) -> list[SeriesPoint]:
        """Without the depth of the line, which is no sum."""
        points = await self._store.series(since_minute=since_minute)
        return [point for point in points if point.name != DEPTH]

    async def _newest_event(self) -> Event | None:
        cursor = (await self._store.events(None)).cursor
        if cursor == 0:
            return None
        feed = await self._store.events(cursor - 1, limit=1)
        return feed.events[0] if feed.events else None

    def _may_have_grown_before_since(self, newest: Event | None) -> bool:
        if newest is None or self._newest is None or newest.id < self._newest.id:
            return True
        if newest.id == self._newest.id:
            return False
        # No event since the last reading is older than this, unless the clock was set forward meanwhile.
        earliest_ms = newest.at.timestamp() * 1000 - (self._system.monotonic() - self._read_at) * 1000
        return earliest_ms // MINUTE_MS < self._since

    def _is_smaller(self, points: Sequence[SeriesPoint]) -> bool:
        counts = {(point.minute, point.name): point.count for point in points}
        return any(counts.get(key, 0) < before.count for key, before in self._growing.items())

    def _take(self, points: Sequence[SeriesPoint], read_all: bool, since: int) -> None:
        changes = _changes(points, {} if read_all else self._growing)
        self._labels.meet(_groups_in(changes))
        found = _under_labels(changes, self._labels)
        self.sums = {name: _sum(self.sums.get(name), found.get(name), read_all) for name in {**self.sums, **found}}
        self._since = since
        self._growing = {(point.minute, point.name): point for point in points if point.minute >= since}


def _changes(points: Sequence[SeriesPoint], before: Mapping[tuple[int, str], SeriesPoint]) -> dict[str, _Change]:
    """By the name of the figure."""
    changes: dict[str, _Change] = {}
    for point in points:
        change = changes.setdefault(point.name, _Change(first_minute=point.minute))
        change.first_minute = min(change.first_minute, point.minute)
        known = before.get((point.minute, point.name))
        change.count += point.count - (0 if known is None else known.count)
        change.total_ms += point.total_ms - (0 if known is None else known.total_ms)
    return changes


def _groups_in(changes: Mapping[str, _Change]) -> list[str]:
    """The groups that have figures, those with the oldest first."""
    minutes: dict[str, int] = {}
    for name, change in changes.items():
        if (group := group_of(name)) is not None:
            minutes[group] = min(change.first_minute, minutes.get(group, change.first_minute))
    return sorted(minutes, key=lambda group: (minutes[group], group))


def _under_labels(changes: Mapping[str, _Change], labels: GroupLabels) -> dict[str, _Change]:
    """By the name of the figure, with the label of a group in the place of its name."""
    found: dict[str, _Change] = {}
    for name, change in changes.items():
        group = group_of(name)
        if group is not None:
            what, rest = name.split(":", 1)
            name = f"{what}:{labels.of(group)}{rest.removeprefix(group)}"
        labelled = found.setdefault(name, _Change(first_minute=change.first_minute))
        labelled.count += change.count
        labelled.total_ms += change.total_ms
    return found


def _sum(held: FigureSum | None, change: _Change | None, read_all: bool) -> FigureSum:
    held = held or FigureSum()
    if change is None:
        return held
    if read_all:
        count, total_ms = max(held.count, change.count), max(held.total_ms, change.total_ms)
    else:
        count, total_ms = held.count + change.count, held.total_ms + change.total_ms
    return FigureSum(count=count, total_ms=total_ms, highest_ms=max(held.highest_ms, total_ms))


def _minute_of(event: Event) -> int:
    return int(event.at.timestamp()) * 1000 // MINUTE_MS
