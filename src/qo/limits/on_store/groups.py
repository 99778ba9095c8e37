"""The groups of a limiter on a store: the limits that it sets there, and what it looks up."""

from __future__ import annotations

import math
import threading
import time

from qo.errors import Timeout
from qo.limits.metrics import GroupFigures, too_late
from qo.queue.queue import Queue
from qo.values import GroupStatus, Limit, Source, Unlimited

LOOK_AGAIN_SECONDS = 0.05


class Groups:
    def __init__(self, queue: Queue) -> None:
        self.limits: dict[str, int | None] = {}
        """The limits as this limiter was given them. Those of an operator, the configuration and tiers win."""
        self.are_set = False
        """Whether the store has all of these limits. It gets them when a caller enters, not when a limiter is made."""
        self._not_set: dict[str, int | None] = {}
        self._queue = queue
        self._statuses: dict[str, tuple[float, GroupStatus]] = {}
        self._lock = threading.Lock()

    def begin_anew(self) -> None:
        """In a forked process, where another thread may have had the lock."""
        self._lock = threading.Lock()

    def limit(self, name: str, slots: int | None) -> None:
        with self._lock:
            self.limits = {**self.limits, name: slots}
            self._not_set[name] = slots
            self.are_set = False

    async def set_limits(self) -> None:
        """Give the store the limits that it does not have yet. Not to be called while it runs."""
        with self._lock:
            limits, self._not_set = self._not_set, {}
        store = self._queue.store
        try:
            given = [(name, slots) for name, slots in limits.items() if slots is not None]
            wanted = [Limit(group=name, slots=slots, source=Source.TASK) for name, slots in given]
            if wanted:
                self._queue.warn_of_ignored(await store.set_limits(wanted))
            for name, slots in limits.items():
                if slots is None:
                    await store.set_limits([Unlimited(group=name, only=Source.TASK)])
        except BaseException:
            with self._lock:
                self._not_set = {**limits, **self._not_set}
            raise
        with self._lock:
            self.are_set = not self._not_set

    async def first_full(self, groups: tuple[str, ...]) -> str:
        """The look may be a moment old, so that many callers that come at once cost one look."""
        statuses = [await self._status(group, at_most_seconds_old=LOOK_AGAIN_SECONDS) for group in groups]
        return next((status.group for status in statuses if not status.has_room), groups[0])

    async def too_late(self, groups: tuple[str, ...], timeout: float | None) -> Timeout:
        """The error of a caller that got no slot in time."""
        statuses = [await self._status(group) for group in groups]
        # The group that was full may have room by now. Then the caller waited for the last one.
        full = next((status for status in statuses if not status.has_room), statuses[-1])
        figures = GroupFigures(
            group=full.group, limit=full.limit, in_flight=full.active, waiting=full.waiting, blocked=0
        )
        return too_late(figures, timeout or 0)

    async def _status(self, group: str, *, at_most_seconds_old: float = 0) -> GroupStatus:
        looked_at, status = self._statuses.get(group, (-math.inf, None))
        if status is None or time.monotonic() - looked_at > at_most_seconds_old:
            status = (await self._queue.store.groups([group]))[0]
            self._statuses[group] = time.monotonic(), status
        return status
