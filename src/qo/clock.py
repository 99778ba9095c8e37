"""The time: this machine's, which decides nothing except on SQLite, whose file lies on this machine; and a test's."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from qo.errors import LONGEST_SPAN_SECS, InvalidValue
from qo.job import moment

ReadClock = Callable[[], int]
"""Returns whole milliseconds since 1970."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECONDS_OF = {"days": 86_400, "hours": 3600, "minutes": 60, "seconds": 1}


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
        self._ms = system_ms() if at is None else _time_ms("at", at)

    def __call__(self) -> int:
        """Whole milliseconds since 1970."""
        return self._ms

    def __repr__(self) -> str:
        return f"<qo.Clock {self.now().isoformat()}>"

    def now(self) -> datetime:
        """The time at which the clock stands, UTC."""
        return moment(self._ms)

    def advance(self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Move the clock forward by so much. Raises `InvalidValue` for less than nothing."""
        spans = {"days": days, "hours": hours, "minutes": minutes, "seconds": seconds}
        self._ms += sum(_span_ms(unit, count) for unit, count in spans.items())

    def advance_to(self, time: datetime) -> None:
        """Move the clock forward to this time, which has a time zone. Raises `InvalidValue` for an earlier one."""
        ms = _time_ms("time", time)
        if ms < self._ms:
            raise InvalidValue(
                f"time is {time.isoformat()}, and the clock stands at {self.now().isoformat()} and goes only forward; "
                "make another one, with a queue of its own, for an earlier time."
            )
        self._ms = ms


def _time_ms(field: str, time: datetime) -> int:
    if not isinstance(time, datetime) or time.tzinfo is None or time < EPOCH:
        raise InvalidValue(
            f"{field} is {time!r}; give a datetime since 1970 with a time zone, such as datetime(2026, 1, 31, "
            "tzinfo=UTC)."
        )
    return (time - EPOCH) // timedelta(milliseconds=1)


def _span_ms(unit: str, count: float) -> int:
    is_number = isinstance(count, int | float) and not isinstance(count, bool)
    if not is_number or not 0 <= count * SECONDS_OF[unit] <= LONGEST_SPAN_SECS:
        raise InvalidValue(
            f"{unit} is {count!r}; use a number of 0 or more (at most a hundred years), because the clock goes only "
            "forward."
        )
    return round(count * SECONDS_OF[unit] * 1000)
