"""A server that is away: said once, tried again after growing pauses."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time

from qo import chance
from qo.store.redis.address import Address

log = logging.getLogger("qo.store")

FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 0.5
"""short beside the half lease that holders are given to renew when the server is back"""


class Availability:
    """Says once that the server is lost and once that it is back, however many loops and calls are affected."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lost_at: float | None = None
        self._back_at = 0.0

    def lost(self, address: Address, cause: Exception, *, began: float) -> None:
        """`began`: when the attempt that failed began, in monotonic time."""
        with self._lock:
            if self._lost_at is not None or began < self._back_at:
                return
            self._lost_at = began
        log.warning("Redis at %s cannot be used (%s), trying again", address, said(cause))

    def back(self, address: Address) -> None:
        with self._lock:
            if self._lost_at is None:
                return
            lost_at, self._lost_at, self._back_at = self._lost_at, None, time.monotonic()
        log.warning("Redis at %s is back after %.1f s", address, self._back_at - lost_at)


def pause_seconds(attempts: int) -> float:
    """How long to wait before trying again, after so many attempts; never the same for all who wait."""
    longest = LONGEST_PAUSE_SECONDS if attempts > 10 else FIRST_PAUSE_SECONDS * 2.0**attempts
    return min(LONGEST_PAUSE_SECONDS, longest) * chance.between(0.5, 1)


def said(cause: BaseException) -> str:
    """For people; asyncio's own words for a refused connection repeat the address."""
    if isinstance(cause, TimeoutError) and not str(cause):
        return "no answer in time"
    if isinstance(cause, socket.gaierror):
        return f"its name is not known: {cause.strerror}"
    if isinstance(cause, OSError) and cause.errno:
        return os.strerror(cause.errno)
    return str(cause) or type(cause).__name__
