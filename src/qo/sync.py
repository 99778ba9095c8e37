"""The same names for synchronous programs: Django, Flask, scripts.

Each queue has one event loop in a background thread; a call waits for its answer from there.

    queue = qo.sync.connect("sqlite:///qo.db")
    job = queue.submit("send_email", {"to": "ada"})
    queue.wait(job.id)
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import threading
import time
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterable, Mapping
from concurrent.futures import CancelledError, Future
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from qo.errors import InvalidValue, StoreUnavailable, WrongEventLoop
from qo.event import Event
from qo.forking import leave_behind, when_forked
from qo.job import Job
from qo.limits import by_hand as manager
from qo.limits import semaphore
from qo.loops.background import LoopThread, runs_in
from qo.policy.checks import shown
from qo.queue import connect as connecting
from qo.queue import queue
from qo.settings import Settings
from qo.worker import worker
from qo.worker.signals import heeding_signals

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

PROGRAM_END_SECONDS = 5.0
"""How long the end of a program waits for calls under way."""


class _Loop:
    """An event loop in a thread of its own, in each process that uses it."""

    def __init__(self) -> None:
        self._starting = threading.Lock()
        self._thread: LoopThread | None = None
        self._calls: set[asyncio.Task[Any]] = set()
        self._is_closed = False
        self._last: Callable[[], Awaitable[None]] | None = None
        when_forked(self, _Loop._begin_anew)
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


_loops: weakref.WeakSet[_Loop] = weakref.WeakSet()
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


class _Blocking(Generic[P, R]):
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


class _Closing:
    """Has a background thread, which `close` ends."""

    asynchronous: Any
    loop: _Loop

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the store or bucket and end the background thread. Closing twice is harmless."""
        self.loop.close(self.asynchronous.close)


class Queue(_Closing):
    """`qo.Queue`, blocking. Safe to use from several threads. Made by `qo.sync.connect`."""

    asynchronous: queue.Queue

    def __init__(self, asynchronous: queue.Queue, loop: _Loop) -> None:
        self.asynchronous = asynchronous
        self.loop = loop

    @property
    def settings(self) -> Settings:
        return self.asynchronous.settings

    submit = _Blocking(queue.Queue.submit)
    submit_many = _Blocking(queue.Queue.submit_many)
    get = _Blocking(queue.Queue.get)
    jobs = _Blocking(queue.Queue.jobs)
    parent = _Blocking(queue.Queue.parent)
    workers = _Blocking(queue.Queue.workers)
    wait = _Blocking(queue.Queue.wait)
    why = _Blocking(queue.Queue.why)
    move = _Blocking(queue.Queue.move)
    retry = _Blocking(queue.Queue.retry)
    confirm = _Blocking(queue.Queue.confirm)
    set_tier = _Blocking(queue.Queue.set_tier)
    pause = _Blocking(queue.Queue.pause)
    resume = _Blocking(queue.Queue.resume)
    set_limit = _Blocking(queue.Queue.set_limit)
    remove_limit = _Blocking(queue.Queue.remove_limit)
    limit = _Blocking(queue.Queue.limit)
    limits = _Blocking(queue.Queue.limits)
    release_slot = _Blocking(queue.Queue.release_slot)
    usage = _Blocking(queue.Queue.usage)
    estimate = _Blocking(queue.Queue.estimate)
    analytics = _Blocking(queue.Queue.analytics)
    audit = _Blocking(queue.Queue.audit)

    if TYPE_CHECKING:  # `_Blocking` keeps only the first overload

        @overload
        def set_priority(self, job_id: str, priority: int | str, *, by: str | None = None) -> Job: ...
        @overload
        def set_priority(
            self, job_id: None = None, *, priority: int | str, parent: str, by: str | None = None
        ) -> list[Job]: ...
        def set_priority(self, *args: Any, **options: Any) -> Job | list[Job]: ...

        @overload
        def cancel(self, job_id: str, *, message: str | None = None, by: str | None = None) -> Job: ...
        @overload
        def cancel(
            self, job_id: None = None, *, parent: str, message: str | None = None, by: str | None = None
        ) -> list[Job]: ...
        def cancel(self, *args: Any, **options: Any) -> Job | list[Job]: ...
    else:
        set_priority = _Blocking(queue.Queue.set_priority)
        cancel = _Blocking(queue.Queue.cancel)

    def watch(self, job_id: str, *, after: int | None = None) -> Generator[Event]:
        """`qo.Queue.watch`, blocking: yields the events of a job until it has ended."""
        events = self.asynchronous.watch(job_id, after=after)
        try:
            while (event := self.loop.wait(_next_or_none(events))) is not None:
                yield event
        finally:
            if self.loop.is_open():  # else closing the queue has ended the watch
                self.loop.wait(_closed(events))


class Worker:
    """`qo.Worker`, blocking: handlers are plain functions in threads, or `async def` in the background loop."""

    def __init__(self, queue: Queue, name: str | None = None, *, concurrency: int | None = None) -> None:
        _check_queue(queue)
        self.queue = queue
        self.loop = queue.loop
        self.asynchronous = worker.Worker(queue.asynchronous, name, concurrency=concurrency)
        self.task = self.asynchronous.task
        self.cron = self.asynchronous.cron

    @property
    def name(self) -> str:
        return self.asynchronous.name

    run_until_idle = _Blocking(worker.Worker.run_until_idle)

    def run(self) -> None:
        """Work until stopped, by `stop()` from another thread, or by SIGTERM or SIGINT in the main one."""
        with heeding_signals(self.asynchronous):
            self.loop.wait(self.asynchronous.run())

    def stop(self) -> None:
        """Claim nothing more; running handlers get the grace period, then go back in line. From any thread."""
        self.asynchronous.stop()


class Semaphore:
    """`qo.Semaphore`, blocking."""

    def __init__(self, asynchronous: semaphore.Semaphore, loop: _Loop) -> None:
        self.asynchronous = asynchronous
        self.loop = loop

    acquire = _Blocking(semaphore.Semaphore.acquire)
    release = _Blocking(semaphore.Semaphore.release)
    count = _Blocking(semaphore.Semaphore.count)
    heartbeat = _Blocking(semaphore.Semaphore.heartbeat)
    cleanup = _Blocking(semaphore.Semaphore.cleanup)


def user_semaphore(queue: Queue, user_id: str, tier: str) -> Semaphore:
    """`qo.user_semaphore`, blocking."""
    _check_queue(queue)
    return Semaphore(semaphore.user_semaphore(queue.asynchronous, user_id, tier), queue.loop)


def project_semaphore(queue: Queue, project_id: str, tier: str) -> Semaphore:
    """`qo.project_semaphore`, blocking."""
    _check_queue(queue)
    return Semaphore(semaphore.project_semaphore(queue.asynchronous, project_id, tier), queue.loop)


class ConcurrencyManager(_Closing):
    """`qo.ConcurrencyManager`, blocking: on a queue of `qo.sync.connect`, or by `open` on any url, a bucket's too."""

    def __init__(self, queue: Queue) -> None:
        _check_queue(queue)
        self.asynchronous = manager.ConcurrencyManager(queue.asynchronous)
        self.loop = queue.loop

    @classmethod
    def open(cls, url: str | Path, *, namespace: str | None = None) -> Self:
        """`qo.ConcurrencyManager.open`, blocking."""
        opened = cls.__new__(cls)
        opened.loop = _Loop()
        try:
            opened.asynchronous = opened.loop.wait(manager.ConcurrencyManager.open(url, namespace=namespace))
        except BaseException:
            opened.loop.close()
            raise
        return opened

    try_acquire = _Blocking(manager.ConcurrencyManager.try_acquire)
    release = _Blocking(manager.ConcurrencyManager.release)
    extend_lease = _Blocking(manager.ConcurrencyManager.extend_lease)
    cleanup_expired = _Blocking(manager.ConcurrencyManager.cleanup_expired)
    get_status = _Blocking(manager.ConcurrencyManager.get_status)


def connect(
    url: str | Path | None = None,
    *,
    namespace: str | None = None,
    settings: Settings | Mapping[str, Any] | None = None,
) -> Queue:
    """`qo.connect`, blocking."""
    loop = _Loop()
    try:
        return Queue(loop.wait(connecting.connect(url, namespace=namespace, settings=settings)), loop)
    except BaseException:
        loop.close()
        raise


def _check_queue(queue: object) -> None:
    if not isinstance(queue, Queue):
        raise InvalidValue(f"queue is {shown(queue)}; give a queue of `qo.sync.connect(...)`.")


async def _next_or_none(events: AsyncIterator[Event]) -> Event | None:
    return await anext(events, None)


async def _closed(events: AsyncGenerator[Event]) -> None:
    await events.aclose()
