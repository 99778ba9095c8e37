"""The time: this machine's, which decides nothing except on SQLite, whose file lies on this machine; and a test's."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from qo.errors import InvalidValue
from qo.job import moment

ReadClock = Callable[[], int]
"""Returns whole milliseconds since 1970."""


def system_ms() -> int:
    return time.time_ns() // 1_000_000


def system_us() -> int:
    """Microseconds since 1970, for tokens: those of the next start of a program are greater."""
    return time.time_ns() // 1000


def system_now() -> datetime:
    return moment(system_ms())


class Clock:
    """A clock that a test sets: it stands still until the test moves it forward.

    Give it to `qo.connect("memory://", clock=clock)`, or to that of `qo.sync`. Delays, retries, cron ticks, `start_by`,
    aging, quota days and leases then end by this clock. What has come due by it has happened before the next call on
    the queue, and the next `worker.run_until_idle()` runs it. May be read and moved from any thread.

    A jump passes for everything at once: a job that runs meanwhile, and a slot that is held, lose their lease if the
    jump is longer. What waits in a program goes by real time: `asyncio.sleep`, a handler's timeout, `queue.wait`.
    """

    def __init__(self, at: datetime | None = None) -> None:
        """`at` has a time zone; without it the clock stands at the present time."""
        self._ms = system_ms() if at is None else _in_ms(at)

    def __call__(self) -> int:
        """Whole milliseconds since 1970."""
        return self._ms

    def __repr__(self) -> str:
        return f"<qo.Clock {self.now().isoformat()}>"

    def now(self) -> datetime:
        """The time at which the clock stands, UTC."""
        return moment(self._ms)

    def advance(self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Move the clock forward by so much. Raises `InvalidValue` for a time before the present one."""
        span = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        self._move_to(self._ms + span // timedelta(milliseconds=1))

    def advance_to(self, time: datetime) -> None:
        """Move the clock forward to this time, which has a time zone. Raises `InvalidValue` for an earlier one."""
        self._move_to(_in_ms(time))

    def _move_to(self, ms: int) -> None:
        if ms < self._ms:
            raise InvalidValue(
                f"The clock stands at {self.now().isoformat()} and goes only forward; make another one, with a queue "
                "of its own, for an earlier time."
            )
        self._ms = ms


def _in_ms(time: datetime) -> int:
    if not isinstance(time, datetime) or time.tzinfo is None:
        raise InvalidValue(
            f"The time of a clock is {time!r}; give a datetime with a time zone, such as "
            "datetime(2026, 1, 31, tzinfo=UTC)."
        )
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
