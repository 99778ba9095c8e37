"""Waking callers that wait for a change in the file, by any process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

LOOK_AT_FILE_SECONDS = 0.01
LOOK_AT_CLOCK_SECONDS = 0.1


class Changes:
    """`version` reads SQLite's data_version, which changes when another connection has committed: a look at
    shared memory, a microsecond, so that looking a hundred times a second costs nothing. None: there are no
    other connections."""

    def __init__(self, version: Callable[[], int] | None) -> None:
        self._version = version
        self.waiters: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}
        """By event that is set after each change, the event loop in which it is awaited."""
        self._lock = threading.Lock()

    def notify(self) -> None:
        """This process has committed something. May be called from any thread."""
        with self._lock:
            waiters = list(self.waiters.items())
        for event, loop in waiters:
            try:
                loop.call_soon_threadsafe(event.set)
            except RuntimeError:
                # That loop was closed while a caller waited in it.
                self._forget(event)

    async def wait_until(self, check: Callable[[], Awaitable[bool]], *, timeout_seconds: float) -> bool:
        """Whether `check` became true in time. It is called at once, after every change, and every 0.1 s."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_seconds
        changed = asyncio.Event()
        with self._lock:
            self.waiters[changed] = loop
        try:
            while True:
                changed.clear()
                version = self._version() if self._version else 0
                if await check():
                    return True
                if not await self._changed(changed, version, deadline):
                    return False
        finally:
            self._forget(changed)

    async def _changed(self, changed: asyncio.Event, version: int, deadline: float) -> bool:
        """Wait until a next look may find something. False when the time is up."""
        loop = asyncio.get_running_loop()
        look_again = loop.time() + LOOK_AT_CLOCK_SECONDS
        while loop.time() < deadline:
            step = min(deadline - loop.time(), LOOK_AT_FILE_SECONDS if self._version else LOOK_AT_CLOCK_SECONDS)
            try:
                # Not `wait_for`: in Python 3.11 that forgets a cancellation which comes together with the wake-up.
                async with asyncio.timeout(step):
                    await changed.wait()
            except TimeoutError:
                if loop.time() < look_again and (self._version is None or self._version() == version):
                    continue
            return True
        return False

    def _forget(self, event: asyncio.Event) -> None:
        with self._lock:
            self.waiters.pop(event, None)
