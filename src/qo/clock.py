"""This machine's clock. It decides nothing except on SQLite, whose file lies on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime

from qo.job import moment

Clock = Callable[[], int]
"""Returns whole milliseconds since 1970."""


def system_ms() -> int:
    return time.time_ns() // 1_000_000


def system_us() -> int:
    """Microseconds since 1970, for tokens: those of the next start of a program are greater."""
    return time.time_ns() // 1000


def system_now() -> datetime:
    return moment(system_ms())
