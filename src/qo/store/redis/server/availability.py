"""A server that is away: log it once, and retry after growing pauses."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time

from qo import chance
from qo.store.redis.server.address import ServerAddress

log = logging.getLogger("qo.store")

FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 0.5
"""Short, because holders have half a lease to renew when the server is back."""


class Availability:
    """Logs once that the server is lost and once that it is back, however many loops and calls are affected."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lost_at: float | None = None
        self._back_at = 0.0

    def lost(self, address: ServerAddress, cause: Exception, *, began: float) -> None:
        """Note a failed attempt, which began at the monotonic time `began`."""
        with self._lock:
            if self._lost_at is not None or began < self._back_at:
                return
            self._lost_at = began
        log.warning("Redis at %s cannot be used (%s), trying again", address, said(cause))

    def back(self, address: ServerAddress) -> None:
        with self._lock:
            if self._lost_at is None:
                return
            lost_at, self._lost_at, self._back_at = self._lost_at, None, time.monotonic()
        log.warning("Redis at %s is back after %.1f s", address, self._back_at - lost_at)


def pause_seconds(attempts: int) -> float:
    """The pause before the next attempt, after so many. It is random, so that clients do not retry together."""
    longest = LONGEST_PAUSE_SECONDS if attempts > 10 else FIRST_PAUSE_SECONDS * 2.0**attempts
    return min(LONGEST_PAUSE_SECONDS, longest) * chance.between(0.5, 1)


def said(cause: BaseException) -> str:
    """The cause as text for people. asyncio's own text for a refused connection would repeat the address."""
    if isinstance(cause, TimeoutError) and not str(cause):
        return "no answer in time"
    if isinstance(cause, socket.gaierror):
        return f"its name is not known: {cause.strerror}"
    if isinstance(cause, OSError) and cause.errno:
        return os.strerror(cause.errno)
    return str(cause) or type(cause).__name__
