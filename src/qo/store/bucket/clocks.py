"""Two clocks: elapsed time decides when a lease ends, wall time is only shown to people."""

from __future__ import annotations

import time
from datetime import UTC, datetime

_COUNTS_SLEEP: int | None = getattr(time, "CLOCK_BOOTTIME", None)


def elapsed_seconds() -> float:
    """Seconds since some fixed moment; the clock is never set back.

    Time asleep counts where the system offers it: after a laptop or virtual machine was suspended, a holder must see
    that its lease has run out.
    """
    return time.monotonic() if _COUNTS_SLEEP is None else time.clock_gettime(_COUNTS_SLEEP)


def utc_now() -> datetime:
    return datetime.now(UTC)
