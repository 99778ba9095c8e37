"""The same names for synchronous programs: Django, Flask, scripts.

Each queue has one event loop in a background thread; a call waits for its answer from there.

    queue = qo.sync.connect("sqlite:///qo.db")
    job = queue.submit("send_email", {"to": "ada"})
    queue.wait(job.id)
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

from qo.clock import Clock
from qo.errors import InvalidValue
from qo.event import Event
from qo.job import Job
from qo.limits import by_hand as manager
from qo.limits import semaphore
from qo.loops.blocking import Blocking, BlockingLoop
from qo.new_job import SubmitOptions, Task
from qo.policy.checks import shown
from qo.queue import connect as connecting
from qo.queue import queue
from qo.settings import Settings
from qo.worker import worker
from qo.worker.signals import heeding_signals

D = TypeVar("D")
R = TypeVar("R")

__all__ = [
    "ConcurrencyManager",
    "Queue",
    "Semaphore",
    "Worker",
    "connect",
    "project_semaphore",
    "user_semaphore",
]


def __dir__() -> list[str]:
    """The public names, for help() and completion."""
    return [*__all__, *(name for name in globals() if name.startswith("__"))]


class _Closing:
    """Has a background thread, which `close` ends."""

    asynchronous: Any
    loop: BlockingLoop

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

    def __init__(self, asynchronous: queue.Queue, loop: BlockingLoop) -> None:
        self.asynchronous = asynchronous
        self.loop = loop

    @property
    def settings(self) -> Settings:
        """The settings that it was connected with."""
        return self.asynchronous.settings

    submit_many = Blocking(queue.Queue.submit_many)
    get = Blocking(queue.Queue.get)
    jobs = Blocking(queue.Queue.jobs)
    parent = Blocking(queue.Queue.parent)
    workers = Blocking(queue.Queue.workers)
    wait = Blocking(queue.Queue.wait)
    why = Blocking(queue.Queue.why)
    move = Blocking(queue.Queue.move)
    retry = Blocking(queue.Queue.retry)
    confirm = Blocking(queue.Queue.confirm)
    set_tier = Blocking(queue.Queue.set_tier)
    undo = Blocking(queue.Queue.undo)
    pause = Blocking(queue.Queue.pause)
    resume = Blocking(queue.Queue.resume)
    set_limit = Blocking(queue.Queue.set_limit)
    remove_limit = Blocking(queue.Queue.remove_limit)
    limit = Blocking(queue.Queue.limit)
    limits = Blocking(queue.Queue.limits)
    release_slot = Blocking(queue.Queue.release_slot)
    usage = Blocking(queue.Queue.usage)
    estimate = Blocking(queue.Queue.estimate)
    estimate_new = Blocking(queue.Queue.estimate_new)
    what_if = Blocking(queue.Queue.what_if)
    timeline = Blocking(queue.Queue.timeline)
    analytics = Blocking(queue.Queue.analytics)
    audit = Blocking(queue.Queue.audit)

    if TYPE_CHECKING:  # `Blocking` keeps only the first overload

        @overload
        def submit(self, task: str, data: Any = None, **options: Unpack[SubmitOptions]) -> Job: ...
        @overload
        def submit(self, task: Task[None, R], data: None = None, **options: Unpack[SubmitOptions]) -> Job[R]: ...
        @overload
        def submit(self, task: Task[D, R], data: D, **options: Unpack[SubmitOptions]) -> Job[R]: ...
        def submit(self, *args: Any, **options: Any) -> Job: ...

        @overload
        def result(self, job: Job[R], task: None = None, *, timeout: float | None = None) -> R: ...
        @overload
        def result(self, job: str | Job, task: Task[Any, R], *, timeout: float | None = None) -> R: ...
        @overload
        def result(self, job: str, task: None = None, *, timeout: float | None = None) -> Any: ...
        def result(self, *args: Any, **options: Any) -> Any: ...

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
        submit = Blocking(queue.Queue.submit)
        result = Blocking(queue.Queue.result)
        set_priority = Blocking(queue.Queue.set_priority)
        cancel = Blocking(queue.Queue.cancel)

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

    def __init__(
        self,
        queue: Queue,
        name: str | None = None,
        *,
        concurrency: int | None = None,
        tasks: Iterable[Task[Any, Any]] = (),
    ) -> None:
        _check_queue(queue)
        self.queue = queue
        self.loop = queue.loop
        self.asynchronous = worker.Worker(queue.asynchronous, name, concurrency=concurrency, tasks=tasks)
        self.task = self.asynchronous.task
        self.cron = self.asynchronous.cron
        self.lifespan = self.asynchronous.lifespan
        self.around = self.asynchronous.around

    @property
    def name(self) -> str:
        """The given name, or one made from host and process."""
        return self.asynchronous.name

    run_until_idle = Blocking(worker.Worker.run_until_idle)

    def run(self) -> None:
        """Work until stopped, by `stop()` from another thread, or by SIGTERM or SIGINT in the main one."""
        with heeding_signals(self.asynchronous):
            self.loop.wait(self.asynchronous.run())

    def stop(self) -> None:
        """Claim nothing more; running handlers get the grace period, then go back in line. From any thread."""
        self.asynchronous.stop()


class Semaphore:
    """`qo.Semaphore`, blocking."""

    def __init__(self, asynchronous: semaphore.Semaphore, loop: BlockingLoop) -> None:
        self.asynchronous = asynchronous
        self.loop = loop

    acquire = Blocking(semaphore.Semaphore.acquire)
    release = Blocking(semaphore.Semaphore.release)
    count = Blocking(semaphore.Semaphore.count)
    heartbeat = Blocking(semaphore.Semaphore.heartbeat)
    cleanup = Blocking(semaphore.Semaphore.cleanup)


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
        opened.loop = BlockingLoop()
        try:
            opened.asynchronous = opened.loop.wait(manager.ConcurrencyManager.open(url, namespace=namespace))
        except BaseException:
            opened.loop.close()
            raise
        return opened

    try_acquire = Blocking(manager.ConcurrencyManager.try_acquire)
    release = Blocking(manager.ConcurrencyManager.release)
    extend_lease = Blocking(manager.ConcurrencyManager.extend_lease)
    cleanup_expired = Blocking(manager.ConcurrencyManager.cleanup_expired)
    get_status = Blocking(manager.ConcurrencyManager.get_status)


def connect(
    url: str | Path | None = None,
    *,
    namespace: str | None = None,
    settings: Settings | Mapping[str, Any] | None = None,
    timeout: float = connecting.TIMEOUT_SECONDS,
    clock: Clock | None = None,
) -> Queue:
    """`qo.connect`, blocking."""
    loop = BlockingLoop()
    try:
        connected = connecting.connect(url, namespace=namespace, settings=settings, timeout=timeout, clock=clock)
        return Queue(loop.wait(connected), loop)
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
