"""What a limiter on a store remembers of the callers of its own process."""

from __future__ import annotations

import threading
import time
from collections import Counter

from qo.runtime.limiter_metrics import Figures, GroupFigures


class Tally:
    """May be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._limits: dict[str, int | None] = {}
        self._in_flight: Counter[str] = Counter()
        self._blocked: Counter[str] = Counter()
        self._waiting: dict[str, tuple[str, float]] = {}
        """by holder: the group that was full, and since when it waits"""
        self._waits_ended = 0
        self._waited_seconds = 0.0
        self._longest_seconds = 0.0

    def without_callers(self) -> Tally:
        tally = Tally()
        tally._limits = self._limits
        return tally

    def set_limit(self, group: str, slots: int | None) -> None:
        with self._lock:
            self._limits[group] = slots

    def blocked(self, holder: str, group: str) -> None:
        with self._lock:
            self._blocked[group] += 1
            self._waiting[holder] = group, time.monotonic()

    def wait_ended(self, holder: str) -> None:
        """However it ended. Of one who did not have to wait, nothing is known."""
        with self._lock:
            if holder in self._waiting:
                _, since = self._waiting.pop(holder)
                seconds = time.monotonic() - since
                self._waits_ended += 1
                self._waited_seconds += seconds
                self._longest_seconds = max(self._longest_seconds, seconds)

    def entered(self, groups: tuple[str, ...]) -> None:
        with self._lock:
            self._in_flight.update(groups)

    def left(self, groups: tuple[str, ...]) -> None:
        with self._lock:
            self._in_flight.subtract(groups)

    def figures(self) -> Figures:
        with self._lock:
            now = time.monotonic()
            waiting = Counter(group for group, _ in self._waiting.values())
            names = dict.fromkeys([*self._limits, *self._in_flight, *self._blocked])
            return Figures(
                groups=tuple(
                    GroupFigures(
                        group=name,
                        limit=self._limits.get(name),
                        in_flight=self._in_flight[name],
                        waiting=waiting[name],
                        blocked=self._blocked[name],
                    )
                    for name in names
                ),
                waits_ended=self._waits_ended,
                waited_seconds=self._waited_seconds,
                longest_wait_seconds=max(
                    [self._longest_seconds, *(now - since for _, since in self._waiting.values())]
                ),
            )
