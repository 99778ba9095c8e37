"""Blocking calls of asynchronous methods: an event loop in a background thread that a program's threads call into."""

from __future__ import annotations

import asyncio
import atexit
import functools
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import CancelledError, Future
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from qo.errors import StoreUnavailable, WrongEventLoop
from qo.forking import leave_behind, when_forked
from qo.loops.background import LoopThread, runs_in

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

PROGRAM_END_SECONDS = 5.0
"""How long the end of a program waits for calls under way."""


class BlockingLoop:
    """An event loop in a thread of its own, in each process that uses it."""

    def __init__(self) -> None:
        self._starting = threading.Lock()
        self._thread: LoopThread | None = None
        self._calls: set[asyncio.Task[Any]] = set()
        self._is_closed = False
        self._last: Callable[[], Awaitable[None]] | None = None
        when_forked(self, BlockingLoop._begin_anew)
        _loops.add(self)

    def _begin_anew(self) -> None:
        leave_behind(self._thread)
        self._thread = None
        self._calls = set()
        self._starting = threading.Lock()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the call in the loop and return its answer. Raises `StoreUnavailable` when the loop is closed, or closes
        before the answer."""
        try:
            answer = self._send(work)
        except BaseException:
            work.close()
            raise
        try:
            return answer.result()
        except CancelledError:
            if not self._is_closed:
                raise  # the call's own
            raise self._closed() from None
        except BaseException:
            answer.cancel()  # after Ctrl-C, for one, the answer is not needed any more
            raise

    def _send(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        self._refuse_own_thread()
        if self._is_closed:
            raise self._closed()
        try:
            return asyncio.run_coroutine_threadsafe(self._known(work), (self._thread or self._started()).loop)
        except RuntimeError:
            raise self._closed() from None  # it was closed since the check above

    async def _known(self, work: Coroutine[Any, Any, T]) -> T:
        call = asyncio.current_task()
        assert call is not None
        self._calls.add(call)
        try:
            return await work
        finally:
            self._calls.discard(call)

    def is_open(self) -> bool:
        return not self._is_closed and self._thread is not None and self._thread.is_alive()

    def close(self, last: Callable[[], Awaitable[None]] | None = None) -> None:
        """End the calls under way, await `last`, and end the thread. Closing twice is harmless."""
        self._refuse_own_thread()
        if self._thread is not None and self.is_open():
            self._last = last
            self._begin_to_close(self._thread)
            self._thread.join()

    def end_with_the_program(self, *, until: float) -> None:
        """Let a worker hand its jobs back. The end of the process closes the store."""
        if self._thread is not None and self.is_open():
            self._begin_to_close(self._thread)
            self._thread.join(max(0.0, until - time.monotonic()))

    def _begin_to_close(self, thread: LoopThread) -> None:
        self._is_closed = True
        thread.call_soon(self._closing.set)

    def _closed(self) -> StoreUnavailable:
        if _program_ends.is_set() and threading.current_thread().daemon:
            # Python ends this thread in a moment. An error would only be printed as the program's last words.
            threading.Event().wait()
        return StoreUnavailable("This queue of qo.sync is closed; connect again.")

    def _refuse_own_thread(self) -> None:
        if self._thread is not None and runs_in(self._thread.loop):
            raise WrongEventLoop(
                "A blocking call of qo.sync was made in its own event loop, where it would wait for itself for ever; "
                "make the handler a plain `def`, or await the same call of `queue.asynchronous`."
            )

    def _started(self) -> LoopThread:
        with self._starting:
            if self._thread is None:
                self._closing = asyncio.Event()
                self._thread = LoopThread(self._serve, "qo-sync")
            return self._thread

    async def _serve(self) -> None:
        await self._closing.wait()
        await _cancelled(self._calls)  # first: a worker among them still needs its own tasks
        if self._last is not None:
            await self._last()
        await _cancelled(asyncio.all_tasks() - {asyncio.current_task()})
        loop = asyncio.get_running_loop()
        await loop.shutdown_asyncgens()
        if not _program_ends.is_set():
            # This starts a thread, which Python refuses when the program ends.
            await loop.shutdown_default_executor()


_loops: weakref.WeakSet[BlockingLoop] = weakref.WeakSet()
_program_ends = threading.Event()


@atexit.register
def _end_with_the_program() -> None:
    """Many programs never close their queue. The end of the process must not break off calls and tasks."""
    _program_ends.set()
    until = time.monotonic() + PROGRAM_END_SECONDS
    for loop in tuple(_loops):
        loop.end_with_the_program(until=until)


async def _cancelled(tasks: Iterable[asyncio.Task[Any] | None]) -> None:
    cancelled = [task for task in tasks if task is not None and task.cancel()]
    await asyncio.gather(*cancelled, return_exceptions=True)


class Blocking(Generic[P, R]):
    """A method of the asynchronous class that blocks until its answer. One line a method, and types are kept."""

    def __init__(self, method: Callable[Concatenate[Any, P], Awaitable[R]]) -> None:
        self._method = method
        functools.update_wrapper(self, method)  # type: ignore[arg-type]  # for help() and editors

    def __get__(self, instance: Any, owner: type) -> Callable[P, R]:
        if instance is None:
            return self._method  # type: ignore[return-value]  # looked up on the class: documentation only

        @functools.wraps(self._method)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            async def work() -> R:
                return await self._method(instance.asynchronous, *args, **kwargs)

            return instance.loop.wait(work())  # type: ignore[no-any-return]

        return call
