"""An event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from qo.threads import in_thread

Work = Callable[[], Coroutine[Any, Any, None]]


class Background(Protocol):
    """Work that goes on beside the event loop that started it."""

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Call it in the work's event loop. May be used from any thread. Raises RuntimeError when the work has ended
        and its event loop is closed."""

    async def ended(self) -> None:
        """Return when the work has ended."""


class LoopThread:
    """Runs `work()` in a new event loop in a new thread. When the work has ended, tasks that are left are cancelled.

    The thread is a daemon: work that never ends does not keep the process alive.
    """

    def __init__(self, work: Work, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._work = work
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def call_soon(self, callback: Callable[[], object]) -> None:
        self.loop.call_soon_threadsafe(callback)

    async def ended(self) -> None:
        await in_thread(self._thread.join)

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def join(self, timeout_seconds: float | None = None) -> None:
        """Block until the work has ended, or for so long."""
        self._thread.join(timeout_seconds)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.run(self._work())


def runs_in(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether the caller runs in this event loop, and so must not block until something happens in it."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:  # a thread without an event loop
        return False
