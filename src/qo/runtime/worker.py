"""Worker: takes jobs from the line, runs them, gives them back."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, TypeVar, overload

from qo.errors import InvalidValue, LeaseLost, StoreAway, StoreUnavailable
from qo.forking import when_forked
from qo.ids import new_id
from qo.job import State
from qo.runtime.cron import CronEntry, define_entry, fire
from qo.runtime.exchange import TRY_AGAIN_SECONDS, Exchange
from qo.runtime.execution import Execution, Interruption
from qo.runtime.gathering import MOST_PER_CALL, Gathering
from qo.runtime.heartbeat import Heartbeat
from qo.runtime.membership import Membership
from qo.runtime.notifier import Notifier
from qo.runtime.portions import Portion, checkpoint_size
from qo.runtime.queue import Queue, check_queue
from qo.runtime.shared_slots import SharedSlots
from qo.runtime.signals import heeding_signals
from qo.runtime.store_time import StoreTime
from qo.runtime.task import Handler, Task, define_task
from qo.runtime.timing import unless
from qo.runtime.upkeep import Upkeep
from qo.runtime.worker_log import log_changed_limit, log_end, log_start
from qo.store.away import until_there
from qo.store.check_value import check_name_or_none, check_number, check_task
from qo.store.values import (
    Advance,
    Claimed,
    Finished,
    Held,
    Lease,
    Offer,
    Outcome,
    Registered,
    Registration,
    Renewal,
    TaskOptions,
)

log = logging.getLogger("qo.worker")

H = TypeVar("H", bound=Handler)
T = TypeVar("T")
WAIT_SECONDS = 30.0
LIFETIME_MS = 30_000
STOP_PATIENCE_SECONDS = 1.0
"""for handlers that were told to stop because the worker does"""
HAND_BACK_SECONDS = 10.0
"""how long a stopping worker tries to tell the store"""
LEAVE_SECONDS = 1.0
"""how long it waits for each last answer of a store that is away"""


class Worker:
    """Runs jobs of the tasks registered on it, at most `concurrency` at once."""

    def __init__(self, queue: Queue, name: str | None = None, *, concurrency: int | None = None) -> None:
        check_queue(queue)
        check_name_or_none("name", name)
        chosen = queue.settings.worker.concurrency if concurrency is None else concurrency
        check_number("concurrency", chosen, 1)
        self.queue = queue
        self._given_name = name
        self._membership: Membership | None = None
        self._begin()
        when_forked(self, Worker._begin_anew)
        self.concurrency = chosen
        self._store = queue.store
        self._tasks: dict[str, Task] = {}
        self._cron: dict[str, CronEntry] = {}
        self._running: dict[str, Execution] = {}
        self._ending: dict[str, str] = {}
        """The tasks, by token, of runs that have ended and whose outcome the store does not know yet."""
        self._shared: SharedSlots | None = None
        self._admitting: dict[str, asyncio.Task[None]] = {}
        """claimed, and waiting for slots that are kept elsewhere"""
        self._releasing: set[asyncio.Task[None]] = set()
        self._lease_ms = round(queue.settings.concurrency.default_lease_duration_secs * 1000)
        self._advancing: Gathering[Advance, Held] = Gathering(
            queue.store.advance, portion=Portion(MOST_PER_CALL, size=checkpoint_size)
        )
        self._changed = asyncio.Event()
        self._exchange: Exchange
        self._store_time: StoreTime
        self._stopping = False
        self._stopping_now = False
        self._heartbeat: Heartbeat | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def _begin(self) -> None:
        self._wanted_name = self._given_name or _new_name()
        self._instance = new_id()

    def _begin_anew(self) -> None:
        self._membership = None
        self._begin()

    @property
    def name(self) -> str:
        """The given name, or one made from host and process. While the worker runs it ends in a number (`mail-2`) if
        another live worker has that name."""
        return self._wanted_name if self._membership is None else self._membership.name

    @name.setter
    def name(self, name: str) -> None:
        self._given_name = self._wanted_name = name

    # --- what it does -----------------------------------------------------------------------------------------

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
    ) -> H | Callable[[H], H]:
        """Register a handler under a name, or under its own: `@worker.task("build")` or `@worker.task`."""
        if name is not None and not callable(name):
            check_task(name)

        def register(handler: H) -> H:
            task = define_task(
                handler,
                name=name if isinstance(name, str) else None,
                max_concurrent=max_concurrent,
                groups=groups,
                stages=stages,
                timeout=timeout,
                max_attempts=max_attempts,
            )
            if task.name in self._tasks:
                raise InvalidValue(
                    f"Worker {self.name!r} already has a task {task.name!r}; give this one another name."
                )
            self._tasks[task.name] = task
            return handler

        return register(name) if callable(name) else register

    def cron(self, expression: str, task: str, data: Any = None, *, name: str | None = None) -> None:
        """Submit a job of this task at every tick (UTC), once however many workers say so.

        Entries of one task that are to fire apart need names of their own.
        """
        entry = define_entry(expression, task, data, name=name)
        if entry.name in self._cron:
            raise InvalidValue(f"Worker {self.name!r} already has a cron entry {entry.name!r}; give this one a name=.")
        self._cron[entry.name] = entry

    async def run(self) -> None:
        """Work until stopped, by `stop()` or by SIGTERM or SIGINT. A store that is away is waited for."""
        await self._work(until_idle=False)

    async def run_until_idle(self) -> None:
        """Run what can run now, and what that makes runnable, then return. Raises StoreAway when the store is away."""
        await self._work(until_idle=True)

    def stop(self) -> None:
        """Claim nothing more; running handlers get the grace period, then go back in line. From any thread."""
        self._stopping = True
        self._wake()

    def stop_now(self) -> None:
        """The same without the grace period."""
        self._stopping_now = True
        self.stop()

    def _wake(self) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._changed.set)

    # --- the loop ---------------------------------------------------------------------------------------------

    async def _work(self, *, until_idle: bool) -> None:
        self.queue.check_loop()
        if self._loop is not None:
            raise InvalidValue(f"Worker {self.name!r} runs already; make another one to run beside it.")
        if not self._tasks and not self._cron:
            raise InvalidValue(f"Worker {self.name!r} has no tasks; register a handler with @worker.task first.")
        with heeding_signals(self):
            async with self._alive(waits=not until_idle):
                while not self._stopping:
                    started = await self._exchange.next()
                    if until_idle and not (started or self._running or self._admitting or self._exchange.is_wanted()):
                        return
                    if not started:
                        await self._something_to_do(told=lambda: self._stopping)

    async def _something_to_do(self, *, told: Callable[[], bool]) -> None:
        """Sleep until a handler has ended, the worker was told to stop, or there is something to claim."""
        # What it was told is asked again, because the round trip may have cleared the wake-up that came with it.
        if told() or self._changed.is_set() or self._exchange.is_wanted():
            return
        work: asyncio.Future[None] | None = None
        if self._untaken_places() and self._tasks:
            work = asyncio.ensure_future(self._wait_for_work())
            work.add_done_callback(lambda _: self._changed.set())
        try:
            await self._changed.wait()
        finally:
            # Not when it was the work that came: a job waits for every turn of the loop that is spent here.
            if work is not None and not work.done():
                work.cancel()
                await asyncio.wait([work])
        if work is not None and not work.cancelled():
            work.result()  # raises what went wrong

    async def _wait_for_work(self) -> None:
        """What the store hands over meanwhile is started at once."""
        try:
            while self._untaken_places() and not self._changed.is_set():
                found = await self._store.wait_for_work(
                    worker=self.name,
                    tasks=list(self._tasks),
                    timeout_seconds=WAIT_SECONDS,
                    offer=self._make_offer(),
                    filled=self._take_offered,
                )
                if not found.leases:
                    return
                await asyncio.sleep(0)  # so that its handler is called before anything else is sent
        except StoreUnavailable:
            await asyncio.sleep(TRY_AGAIN_SECONDS)  # the exchange that follows tells of it

    def _make_offer(self) -> Offer | None:
        """Only while nothing runs: a handler that keeps the event loop busy would keep a job waiting that another
        worker could take."""
        return None if self._running or self._admitting else self._exchange.make_offer()

    def _take_offered(self, claimed: Claimed) -> None:
        if not self._stopping:  # then the offer is taken back
            self._exchange.end_offer()
            self._take(claimed)

    async def _take_back_offer(self) -> None:
        """It may have been filled meanwhile; that job goes back to its place."""
        if self._exchange.offer is None:
            return
        try:
            found = await self._before_leaving(
                self._store.wait_for_work(
                    worker=self.name, tasks=list(self._tasks), timeout_seconds=0, offer=self._exchange.offer
                )
            )
        except StoreUnavailable as error:
            self._exchange.not_reached.tell(error)
            return
        self._exchange.end_offer()
        for lease in found.leases:
            self._exchange.give(Outcome(job_id=lease.job_id, token=lease.token, state=State.QUEUED))

    def _take(self, claimed: Claimed) -> None:
        for lease in claimed.leases:
            if self._shared is not None and self._shared.wanted(lease.job):
                self._admitting[lease.token] = asyncio.create_task(self._admit(lease, self._shared))
            else:
                self._start(lease)

    def _untaken_places(self) -> int:
        return 0 if self._stopping else self.concurrency - len(self._running) - len(self._admitting)

    # --- jobs -------------------------------------------------------------------------------------------------

    async def _admit(self, lease: Lease, shared: SharedSlots) -> None:
        """Take the slots that are kept elsewhere, then start; or hand the job back, and leave that group alone."""
        full, starts = None, False
        try:
            full = await shared.take(lease.token, lease.job)
            starts = full is None and not self._stopping and await self._is_still_held(lease)
        finally:
            # Only now, and without a pause before the start: until then it takes up a place of this worker.
            del self._admitting[lease.token]
            self._changed.set()
        if starts:
            self._start(lease)
            return
        await shared.give_back(lease.token)
        closed = {} if full is None else {full: round(shared.pause_seconds(full) * 1000)}
        self._exchange.give(Outcome(job_id=lease.job_id, token=lease.token, state=State.QUEUED, closed=closed))
        self._changed.set()

    async def _is_still_held(self, lease: Lease) -> bool:
        """Nobody has renewed it while its slots were being fetched, which may have taken long."""
        renewal = Renewal(holder=lease.job_id, token=lease.token, lease_ms=self._lease_ms)
        try:
            (held,) = (await self._store.renew([renewal])).held
        except StoreUnavailable as error:
            self._exchange.not_reached.tell(error)
            return False
        return not held.lost

    def _start(self, lease: Lease) -> None:
        if log.isEnabledFor(logging.INFO):
            log_start(lease)
        execution = Execution(
            lease,
            self._tasks[lease.task],
            self.queue.settings,
            advance=self._report,
            renew=self._store.renew,
            ended=self._ended,
        )
        self._running[lease.token] = execution
        self._exchange.tell_of(execution)
        if self._heartbeat is not None:
            self._heartbeat.hold(execution)

    async def _report(self, advance: Advance) -> Held:
        try:
            return await self._advancing.send(advance)
        except BaseException:
            self._changed.set()  # the store may not know that the job runs: the next round trip tells it
            raise

    def _ended(self, execution: Execution, outcome: Outcome | None) -> None:
        del self._running[execution.lease.token]
        if self._shared is not None:
            self._releasing.add(release := asyncio.create_task(self._shared.give_back(execution.lease.token)))
            release.add_done_callback(self._releasing.discard)
        if outcome is not None:
            self._ending[outcome.token] = execution.task.name
            self._exchange.give(outcome)
        else:
            self._let_go(execution.lease.token)
            log.warning("%s", LeaseLost(execution.lease.job_id, execution.lease.token))
        self._changed.set()

    def _settled(self, outcome: Outcome, finished: Finished) -> None:
        """The store knows of it. A job that was handed back before it began has nothing to be told."""
        self._let_go(outcome.token)
        task = self._ending.pop(outcome.token, None)
        if task is not None:
            log_end(task, outcome, finished)

    def _let_go(self, token: str) -> None:
        if self._heartbeat is not None:
            self._heartbeat.let_go(token)

    # --- coming and going -------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _alive(self, *, waits: bool) -> AsyncIterator[None]:
        """Registered, with heartbeat, upkeep and cron; at the end drained. `waits`: for a store that is away. One that
        is stopped meanwhile has nothing of this."""
        self._loop = asyncio.get_running_loop()
        self._exchange = self._new_exchange()
        try:
            async with self._sharing(), self._registered(waits=waits), self._beating(waits=waits) as cursor:
                try:
                    async with self._minding(cursor):
                        yield
                except asyncio.CancelledError:
                    self.stop_now()
                    raise
                finally:
                    await self._drain()
        finally:
            self._loop = None
            self._ending.clear()
            self._stopping = self._stopping_now = False

    def _new_exchange(self) -> Exchange:
        return Exchange(
            self._store,
            worker=self.name,
            tasks=self._tasks.keys(),
            places=self.concurrency,
            lease_ms=self._lease_ms,
            changed=self._changed,
            untaken=self._untaken_places,
            take=self._take,
            settled=self._settled,
        )

    @asynccontextmanager
    async def _registered(self, *, waits: bool) -> AsyncIterator[None]:
        membership = self._membership = Membership(self._store, self._registration(), joined=self._has_joined)
        try:
            store_time = await self._first_answer(membership.join, waits=waits)
            if store_time is None:
                yield
                return
            self._store_time = store_time
            log.info("worker %s runs %s", self.name, ", ".join(sorted(self._tasks)) or "nothing")
            log.info("%s", self._store.promise)
            try:
                yield
            finally:
                await self._say_goodbye(membership)
                log.info("worker %s is gone", self.name)
        finally:
            self._membership = None

    def _has_joined(self, answer: Registered) -> None:
        """Called by the heartbeat's thread, too, when the worker had to register again, perhaps under another name."""
        self._exchange.worker = self.name
        if self._shared is not None:
            self._shared.worker = self.name
        self.queue.warn_of_ignored(answer.ignored)
        for change in answer.changed:
            log_changed_limit(change, self.name)
        self._wake()  # it waits for work by its name

    async def _first_answer(self, ask: Callable[[], Awaitable[T]], *, waits: bool) -> T | None:
        """Of the store; if it may be waited for, None when the worker was stopped before it came."""
        if not waits:
            return await ask()
        asking = until_there(ask, tell=self._exchange.not_reached.tell)
        return await unless(asking, stopped=lambda: self._stopping, changed=self._changed)

    @asynccontextmanager
    async def _sharing(self) -> AsyncIterator[None]:
        self._shared = await SharedSlots.open(self.queue.settings, worker=self.name)
        try:
            yield
        finally:
            if self._shared is not None:
                await asyncio.gather(*self._releasing)
                await self._shared.close()

    @asynccontextmanager
    async def _beating(self, *, waits: bool) -> AsyncIterator[int | None]:
        """Answers the cursor of the feed before the first claim; None when the worker was stopped before that."""
        assert self._membership is not None
        cursor = None if self._stopping else await self._first_answer(self._store.newest_event, waits=waits)
        if cursor is None:
            yield None
            return
        self._heartbeat = Heartbeat(
            self._store,
            self._membership,
            lease_ms=self._lease_ms,
            renewals_per_lease=self.queue.settings.concurrency.renewals_per_lease,
            cursor=cursor,
            shared=self._shared,
        )
        self._heartbeat.start()
        try:
            yield cursor
        finally:
            await self._heartbeat.stop()

    @asynccontextmanager
    async def _minding(self, cursor: int | None) -> AsyncIterator[None]:
        if cursor is None:
            yield
            return
        notifier = Notifier(self.queue.settings.notify)
        upkeep = Upkeep(self.queue, notifier=notifier, cursor=cursor)
        background = [asyncio.create_task(upkeep.run(), name="qo-upkeep")]
        background += [asyncio.create_task(fire(entry, self.queue, self._store_time)) for entry in self._cron.values()]
        try:
            yield
        finally:
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)

    async def _say_goodbye(self, membership: Membership) -> None:
        try:
            await self._before_leaving(membership.leave())
        except StoreUnavailable as error:
            log.warning("the store was not told that the worker is gone, and will notice in half a minute: %s", error)

    async def _before_leaving(self, call: Awaitable[T]) -> T:
        """Not for long if the store is known to be away: whoever stops the worker waits for this."""
        try:
            async with asyncio.timeout(LEAVE_SECONDS if self._exchange.not_reached.is_told else None):
                return await call
        except TimeoutError:
            raise StoreAway("the store is away") from None

    async def _drain(self) -> None:
        """Let what runs end within the grace period, then hand the rest back to its place."""
        self._stopping = True
        loop = asyncio.get_running_loop()
        await self._exchange.end()
        await self._take_back_offer()
        await asyncio.gather(*self._admitting.values(), return_exceptions=True)
        end_of_grace = loop.call_later(self.queue.settings.worker.grace_secs, self.stop_now)
        while self._running and not self._stopping_now:
            await self._give_back(told=lambda: self._stopping_now)
        end_of_grace.cancel()
        for execution in tuple(self._running.values()):
            execution.interrupt(Interruption.STOPPED, patience_seconds=STOP_PATIENCE_SECONDS)
        give_up_at = loop.time() + HAND_BACK_SECONDS
        while (self._running or self._exchange.is_wanted()) and loop.time() < give_up_at:
            await self._give_back(told=lambda: False)
        if self._exchange.outcomes:
            log.error(
                "%d outcomes could not be stored; those jobs run again when their leases end",
                len(self._exchange.outcomes),
            )

    async def _give_back(self, *, told: Callable[[], bool]) -> None:
        await self._exchange.next()
        if self._running:
            await self._something_to_do(told=told)

    def _registration(self) -> Registration:
        tasks = tuple(
            TaskOptions(
                name=task.name,
                groups=task.groups,
                limit=task.max_concurrent,
                max_attempts=task.max_attempts or self.queue.settings.retries.max_attempts,
            )
            for task in self._tasks.values()
        )
        return Registration(
            name=self._wanted_name,
            instance=self._instance,
            tasks=tasks,
            places=self.concurrency,
            limits=self.queue.configured_limits(),
            lifetime_ms=LIFETIME_MS,
            lease_ms=self._lease_ms,
            host=socket.gethostname(),
            pid=os.getpid(),
        )


def _new_name() -> str:
    return f"{socket.gethostname()}-{os.getpid()}-{new_id()[-4:]}"
