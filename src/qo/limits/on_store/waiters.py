"""How a caller's thread or task waits, and how other threads wake it.

Waking another thread costs more than the rest of a call. So threads put their calls in a queue, and wake the other
side once for all of them.
"""

from __future__ import annotations

import asyncio
import threading
from asyncio import _get_running_loop
from collections import deque
from collections.abc import Callable
from typing import Protocol


class CallQueue:
    """Functions that other threads want called in an event loop. The loop is woken once for all that gather."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._calls: deque[Callable[[], object]] = deque()
        self._is_woken = False

    def put(self, call: Callable[[], object]) -> None:
        """Raises RuntimeError if the loop has been closed."""
        self._calls.append(call)
        if not self._is_woken or self.loop.is_closed():
            self._is_woken = True
            self.loop.call_soon_threadsafe(self.run)

    def run(self) -> None:
        self._is_woken = False  # before the queue is read: a call that is put in later wakes the loop again
        while self._calls:
            self._calls.popleft()()


class Waiter(Protocol):
    def wake(self) -> bool:
        """Called once, in any thread. False: the caller's event loop has been closed."""
        ...


class ThreadWaiter:
    __slots__ = ("_asleep",)

    def __init__(self) -> None:
        self._asleep = threading.Lock()
        self._asleep.acquire()

    def wake(self) -> bool:
        self._asleep.release()
        return True

    def wait(self, timeout_seconds: float | None = None) -> None:
        """Returns when woken, or after the timeout."""
        self._asleep.acquire(timeout=-1 if timeout_seconds is None else timeout_seconds)


class TaskWaiter:
    __slots__ = ("_is_woken", "_queue", "_woken")

    def __init__(self, queue: CallQueue) -> None:
        """`queue` is that of the task's loop."""
        self._queue = queue
        self._is_woken = False
        self._woken: asyncio.Future[None] | None = None

    def wake(self) -> bool:
        if _get_running_loop() is self._queue.loop:
            self._wake()
            return True
        try:
            self._queue.put(self._wake)
        except RuntimeError:
            return False
        return True

    async def wait(self) -> None:
        if not self._is_woken:
            self._woken = self._queue.loop.create_future()
            await self._woken

    def _wake(self) -> None:
        self._is_woken = True
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)
