"""An event loop in simulated time, and processes in it that can be stopped at any point.

Nothing sleeps and nothing waits for input: when no callback is ready, time jumps to the next timer. All processes share
the loop. A callback belongs to the process in whose context it was scheduled.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any

from qo.loops.background import Work

PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)
CONNECTION: ContextVar[str] = ContextVar("connection", default="main")
"""Work in the background has a connection of its own to the store."""


class NothingHappens(Exception):
    """No callback is ready and no timer is set, so the simulation would stand still for ever."""


class Process:
    """While it is paused or dead, its callbacks are held back. A dead one never goes on."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.runs = True
        self.is_dead = False
        self.held_back: list[asyncio.Handle] = []
        self.context: Context = copy_context()
        self.context.run(PROCESS.set, self)

    def start(self, loop: SimulatedLoop, main: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return loop.create_task(main, name=self.name, context=self.context)

    def pause(self) -> None:
        self.runs = False

    def go_on(self, loop: SimulatedLoop) -> None:
        self.runs = True
        held_back, self.held_back = self.held_back, []
        loop.put_back(held_back)

    def die(self) -> None:
        self.runs, self.is_dead = False, True


class SimulatedLoop(asyncio.BaseEventLoop):
    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0

    def time(self) -> float:
        return self._now

    def put_back(self, handles: list[asyncio.Handle]) -> None:
        self._ready.extend(handles)

    def _run_once(self) -> None:
        while self._scheduled and self._scheduled[0].cancelled():
            heapq.heappop(self._scheduled)
        if not self._ready:
            if not self._scheduled:
                raise NothingHappens
            self._now = max(self._now, self._scheduled[0].when())
        while self._scheduled and self._scheduled[0].when() <= self._now:
            self._ready.append(heapq.heappop(self._scheduled))
        for _ in range(len(self._ready)):
            handle = self._ready.popleft()
            if handle.cancelled():
                continue
            process = handle._context.get(PROCESS)  # type: ignore[attr-defined]  # noqa: SLF001 - public from 3.12 on
            if process is None or process.runs:
                handle._run()  # noqa: SLF001 - a handle is run only by its loop, which this is
            else:
                process.held_back.append(handle)

    def _write_to_self(self) -> None:
        """Another thread would be woken here. There is none."""

    def _process_events(self, event_list: object) -> None:
        """There is no input."""


class TaskInBackground:
    """Stands for a thread with an event loop of its own: a task with a connection of its own."""

    def __init__(self, work: Work, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        context = copy_context()
        context.run(CONNECTION.set, name)
        self._task = self._loop.create_task(work(), name=name, context=context)

    def call_soon(self, callback: Callable[[], object]) -> None:
        self._loop.call_soon(callback)

    async def ended(self) -> None:
        await asyncio.wait([self._task])
