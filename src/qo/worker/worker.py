"""Worker: takes jobs from the line, runs them, gives them back."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import timedelta
from typing import Any, TypeVar, overload

from qo.errors import InvalidValue
from qo.forking import when_forked
from qo.new_job import Task as TaskOfProgram
from qo.policy.checks import check_name_or_none, check_number, check_task
from qo.queue.queue import Queue, check_queue
from qo.queue.task import name_of
from qo.worker.background import heartbeat, upkeep_and_cron
from qo.worker.context import Context
from qo.worker.cron import Ticks, define_entry
from qo.worker.declared import TaskFunction, checked_tasks
from qo.worker.draining import drained
from qo.worker.exchange import Exchange, StoppedBeforeStart
from qo.worker.hooks import Around, Lifespan, Surroundings, block_of, lifespan_of
from qo.worker.joining import registered
from qo.worker.numbers import WorkerNumbers, no_ends
from qo.worker.places import Places
from qo.worker.processes.pool import capacity_of, pool_for
from qo.worker.shared_slots import sharing_slots
from qo.worker.signals import heeding_signals
from qo.worker.task import Handler, Task, define_task

H = TypeVar("H", bound=Handler)
L = TypeVar("L", bound=Lifespan)
A = TypeVar("A", bound=Around)


class Worker:
    """Runs jobs of the tasks registered on it, at most `concurrency` at once."""

    def __init__(
        self,
        queue: Queue,
        name: str | None = None,
        *,
        concurrency: int | None = None,
        tasks: Iterable[TaskOfProgram[Any, Any]] = (),
    ) -> None:
        """`tasks` are functions under `@qo.task`."""
        check_queue(queue)
        check_name_or_none("name", name)
        chosen = queue.settings.worker.concurrency if concurrency is None else concurrency
        check_number("concurrency", chosen, 1)
        self.queue = queue
        self.concurrency = chosen
        self._given_name = name
        self._tasks: dict[str, Task] = {}
        self._cron: dict[str, Ticks] = {}
        self._lifespan: Callable[[], AbstractAsyncContextManager[Any]] | None = None
        self._around: Callable[[Context], AbstractAsyncContextManager[Any]] | None = None
        self._begin()
        for task in checked_tasks(tasks):
            self._add(task.definition)
            queue.known_tasks[task.name] = task
        when_forked(self, Worker._begin)

    def _begin(self) -> None:
        """Also in a forked process, whose worker is another one to the store."""
        self._wanted_name = self._given_name or self._new_name()
        self._instance = self.queue.system.new_id()
        self._ends = no_ends()
        self._places = Places(self.queue, self._tasks, ends=self._ends)

    @property
    def name(self) -> str:
        """The given name, or one made from host and process. While the worker runs it ends in a number (`mail-2`) if
        another live worker has that name."""
        return self._places.worker or self._wanted_name

    @name.setter
    def name(self, name: str) -> None:
        self._given_name = self._wanted_name = name

    @property
    def numbers(self) -> WorkerNumbers:
        """What the worker runs now, and how its runs have ended. To be read in the worker's event loop."""
        places = self._places
        return WorkerNumbers(running=places.taken, free=places.free, ended=dict(self._ends))

    # --- tasks and cron entries -------------------------------------------------------------------------------

    @overload
    def task(self, name: H) -> H: ...
    @overload
    def task(
        self,
        name: str | None = None,
        *,
        max_concurrent: int | None = None,
        groups: Sequence[str] = (),
        stages: Sequence[str] = (),
        timeout: float | timedelta | None = None,
        max_attempts: int | None = None,
        process: bool = False,
    ) -> Callable[[H], H]: ...
    def task(
        self,
        name: str | H | None = None,
        *,
        max_concurrent: int | None = None,
        groups: Sequence[str] = (),
        stages: Sequence[str] = (),
        timeout: float | timedelta | None = None,
        max_attempts: int | None = None,
        process: bool = False,
    ) -> H | Callable[[H], H]:
        """Register a handler under a name, or under its own: `@worker.task("build")` or `@worker.task`.

        With `process=True`, a plain function at the top of a module runs in a process of its own.
        """
        if name is not None and not callable(name):
            check_task(name)

        def register(handler: H) -> H:
            if isinstance(handler, TaskFunction):
                raise InvalidValue(
                    f"{handler.name} is under @qo.task already; give it to the worker: qo.Worker(queue, tasks=[...])."
                )
            self._add(
                define_task(
                    handler,
                    name=name if isinstance(name, str) else None,
                    max_concurrent=max_concurrent,
                    groups=groups,
                    stages=stages,
                    timeout=timeout,
                    max_attempts=max_attempts,
                    process=process,
                )
            )
            return handler

        return register(name) if callable(name) else register

    def _add(self, task: Task) -> None:
        if task.name in self._tasks:
            raise InvalidValue(f"Worker {self.name!r} already has a task {task.name!r}; give this one another name.")
        self._tasks[task.name] = task

    def lifespan(self, function: L) -> L:
        """Run an `async def` with one `yield` around the worker's run: it opens what handlers share, yields it as
        `ctx.state`, and closes it when the last job has ended. A worker has one."""
        block = block_of("lifespan", function, takes="")
        if self._lifespan is not None:
            raise InvalidValue(f"Worker {self.name!r} already has a lifespan; open everything in that one.")
        self._lifespan = block
        return function

    def around(self, function: A) -> A:
        """Run an `async def` with one `yield` around each run of a handler, for reports of errors and for traces. It
        gets the handler's context. It sees what the handler raises, and cannot change how the job ends. A worker has
        one."""
        block = block_of("around", function, takes="ctx")
        if self._around is not None:
            raise InvalidValue(f"Worker {self.name!r} already has an around; do both in that one.")
        self._around = block
        return function

    def cron(
        self, expression: str, task: str | TaskOfProgram[Any, Any], data: Any = None, *, name: str | None = None
    ) -> None:
        """Submit a job of this task at every tick (UTC), once however many workers say so.

        Entries of one task that are to fire apart need names of their own.
        """
        entry = define_entry(expression, name_of(task), data, name=name, now=self.queue.system.now())
        if entry.name in self._cron:
            raise InvalidValue(f"Worker {self.name!r} already has a cron entry {entry.name!r}; give this one a name=.")
        self._cron[entry.name] = Ticks(entry, self.queue.system.test_clock)

    async def run(self) -> None:
        """Work until stopped, by `stop()` or by SIGTERM or SIGINT. A store that is away is waited for."""
        await self._work(until_idle=False)

    async def run_until_idle(self) -> None:
        """Run what can run now, and what that makes runnable, then return. Raises StoreAway when the store is away."""
        await self._work(until_idle=True)

    def stop(self) -> None:
        """Claim nothing more; running handlers get the grace period, then go back in line. From any thread."""
        self._places.stop()

    def stop_now(self) -> None:
        """The same without the grace period."""
        self._places.stop_now()

    # --- the loop ---------------------------------------------------------------------------------------------

    async def _work(self, *, until_idle: bool) -> None:
        self._check_can_run()
        places = self._places
        with heeding_signals(self), suppress(StoppedBeforeStart):
            async with self._alive(places, waits=not until_idle) as exchange:
                while not places.stopping:
                    brought_jobs = await exchange.next()
                    if until_idle and not (brought_jobs or places.taken or exchange.is_wanted()):
                        return
                    if not brought_jobs:
                        await exchange.wait()

    def _check_can_run(self) -> None:
        self.queue.check_loop()
        if self._places.is_open:
            raise InvalidValue(f"Worker {self.name!r} runs already; make another one to run beside it.")
        if not self._tasks and not self._cron:
            raise InvalidValue(f"Worker {self.name!r} has no tasks; register a handler with @worker.task first.")

    @asynccontextmanager
    async def _alive(self, places: Places, *, waits: bool) -> AsyncIterator[Exchange]:
        """Registered, with heartbeat, upkeep and cron; at the end drained. `waits`: for a store that is away, where
        `StoppedBeforeStart` is raised when the worker is stopped meanwhile; without it, upkeep is done first."""
        queue, settings = self.queue, self.queue.settings
        places.open(worker=self.name, capacity=capacity_of(self._tasks.values(), self.concurrency, settings))
        exchange = Exchange(queue.store, places)
        try:
            async with (
                lifespan_of(self._lifespan) as state,
                pool_for(self._tasks.values(), settings) as pool,
                sharing_slots(settings, worker=places.worker) as places.shared,
                registered(queue, places, exchange, instance=self._instance, waits=waits) as (membership, store_time),
            ):
                places.surroundings = Surroundings(state=state, around=self._around, pool=pool)
                feed = await exchange.before_starting(lambda: queue.store.events(None), waits=waits)
                async with (
                    heartbeat(queue, places, membership, cursor=feed.cursor),
                    drained(places, exchange, grace_seconds=settings.worker.grace_secs),
                    upkeep_and_cron(queue, [*self._cron.values()], store_time, cursor=feed.cursor, at_once=not waits),
                ):
                    yield exchange
        finally:
            self._places = Places(queue, self._tasks, ends=self._ends)

    def _new_name(self) -> str:
        return f"{socket.gethostname()}-{os.getpid()}-{self.queue.system.new_id()[-4:]}"
