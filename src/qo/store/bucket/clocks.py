"""The two clocks. Only the first one decides anything."""

from __future__ import annotations

import time
from datetime import UTC, datetime

_COUNTS_SLEEP: int | None = getattr(time, "CLOCK_BOOTTIME", None)


def elapsed_seconds() -> float:
    """Seconds since some moment, never set back. Where the system offers it, time asleep counts too: on a laptop or
    a virtual machine that was suspended, a holder must find its lease gone rather than as young as before."""
    return time.monotonic() if _COUNTS_SLEEP is None else time.clock_gettime(_COUNTS_SLEEP)


def utc_now() -> datetime:
    return datetime.now(UTC)
