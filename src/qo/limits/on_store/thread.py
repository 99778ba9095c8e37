"""The background thread of a limiter on a store: it renews leases and tickets, and listens for grants and losses.

So a caller that blocks its own event loop keeps its slots and its place in line. The thread's event loop also makes
the calls of callers in threads, and gives back what a caller's own loop could not.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import aclosing
from typing import Any, TypeVar

from qo.errors import QoError, StoreUnavailable
from qo.event import GRANTED, LEASE_LOST, Feed
from qo.limits.holders import milliseconds
from qo.limits.on_store.calls import TRY_AGAIN_SECONDS, StoreCalls, closed
from qo.limits.on_store.groups import Groups
from qo.limits.on_store.requests import LeaseOnStore, Request, Requests
from qo.limits.on_store.waiters import Waiter
from qo.loops.background import LoopThread, runs_in
from qo.loops.gathering import in_portions
from qo.loops.portions import RENEW_AT_ONCE, Portion
from qo.loops.repeating import repeat
from qo.loops.timing import within
from qo.loops.trouble import Trouble
from qo.queue.queue import Queue
from qo.store.contract import HANDED_OVER_LEASE_MS
from qo.values import Grant, Held, Renewal

log = logging.getLogger("qo.limiter")

RENEWALS_PER_LIFE = 3
CLOSE_SECONDS = 2.0
"""How long `close` waits for slots to be given back."""

pause = asyncio.sleep
"""The pause between two renewals. A test replaces it to let time pass on a store's clock."""

T = TypeVar("T")


class BackgroundThread:
    """It is started when the first caller comes, and again if a caller comes after it was closed."""

    def __init__(self, queue: Queue, requests: Requests, groups: Groups) -> None:
        self._store = queue.store
        self._requests = requests
        self._groups = groups
        self._lease_ms = milliseconds(queue.settings.concurrency.default_lease_duration_secs)
        wait_ms = milliseconds(queue.settings.limiter.waiter_alive_secs)
        # A slot that the store hands over to a waiting caller has a short lease until the first renewal.
        self._renew_seconds = min(self._lease_ms, wait_ms, HANDED_OVER_LEASE_MS) / RENEWALS_PER_LIFE / 1000
        self._lock = threading.Lock()
        self._thread: LoopThread | None = None
        self._calls: StoreCalls | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._trouble_releasing = Trouble("a slot cannot be given back for now", log)

    # --- from any thread --------------------------------------------------------------------------------------

    def start(self) -> StoreCalls:
        """The calls of the thread's own loop."""
        if self._calls is not None:
            return self._calls
        with self._lock:
            if self._calls is None:
                started: Future[StoreCalls] = Future()
                self._thread = LoopThread(lambda: self._serve(started), "qo-limiter")
                self._calls = started.result()
            return self._calls

    def watch(self, blocked: list[Request]) -> bool:
        if blocked:
            return self._call_if_open(lambda: self._watch(blocked))
        return self._is_watching.is_set() or self._call_if_open(self._is_watching.set)

    def give_back(self, holder: str, token: str | None, waiter: Waiter | None = None) -> None:
        """Try until the store takes it, then wake the waiter. Without a token, give back all that the holder has."""
        if self._is_here():
            self._give_back_soon(holder, token, waiter)  # never by a new thread because this one is about to end
        else:
            self.start().queue.put(lambda: self._give_back_soon(holder, token, waiter))

    def give_back_if_open(self, holder: str, token: str | None) -> bool:
        return self._call_if_open(lambda: self._give_back_soon(holder, token))

    async def limits_are_set(self) -> None:
        if not self._groups.are_set:
            await asyncio.wrap_future(self.run(self.set_limits()))

    def run(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self.start().queue.loop)

    def close(self) -> None:
        """End the thread. Slots that are still held are free when their leases run out."""
        with self._lock:
            calls, self._calls = self._calls, None
            if calls is not None and self._thread is not None:
                calls.queue.put(self._is_closing.set)
                self._thread.join()

    def _is_here(self) -> bool:
        return self._thread is not None and runs_in(self._thread.loop)

    def _call_if_open(self, call: Callable[[], object]) -> bool:
        if self._is_here():
            call()
            return True
        calls = self._calls
        try:
            if calls is not None:
                calls.queue.put(call)
        except RuntimeError:
            return False  # the loop has been closed at this very moment
        return calls is not None

    # --- in the thread ----------------------------------------------------------------------------------------

    async def set_limits(self) -> None:
        """Give the store the limits that it does not have yet. One call at a time: a later limit wins."""
        async with self._setting_limits:
            await self._groups.set_limits()

    async def _serve(self, started: Future[StoreCalls]) -> None:
        self._is_closing = asyncio.Event()
        self._is_watching = asyncio.Event()
        self._setting_limits = asyncio.Lock()
        self._tasks = set()
        calls = self._own_calls = StoreCalls(self._store, self._requests, self)
        work = [asyncio.create_task(self._renew_all()), asyncio.create_task(self._listen())]
        started.set_result(calls)
        await self._is_closing.wait()
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)
        calls.queue.run()
        await calls.asking.cancel()
        for request in self._requests.open():
            self._requests.refuse(request, closed())
            self._give_back_soon(request.holder, None)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_SECONDS)

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _give_back_soon(self, holder: str, token: str | None, waiter: Waiter | None = None) -> None:
        self._start_task(self._give_back(holder, token, waiter))

    async def _give_back(self, holder: str, token: str | None, waiter: Waiter | None) -> None:
        try:
            while not await self._is_given_back(holder, token):
                await within(TRY_AGAIN_SECONDS, self._is_closing.wait())
        finally:
            if waiter is not None:
                waiter.wake()

    async def _is_given_back(self, holder: str, token: str | None) -> bool:
        """False: try again, because other callers wait for slots that nobody uses."""
        try:
            await self._own_calls.releasing.send((holder, token))
        except Exception as error:
            if isinstance(error, StoreUnavailable) and not self._is_closing.is_set():
                self._trouble_releasing.tell(error)
                return False
            # Whatever it was, the end of a block must not wait for ever.
            log.warning("slots could not be given back, they are free when their leases run out: %s", error)
        else:
            self._trouble_releasing.over()
        return True

    def _watch(self, blocked: list[Request]) -> None:
        self._is_watching.set()
        self._start_task(self._count_blocked(blocked))

    async def _count_blocked(self, requests: list[Request]) -> None:
        try:
            for request in requests:
                self._requests.count_blocked(request, await self._groups.first_full(request.ticket.groups))
        except QoError as error:
            log.debug("what callers wait for could not be looked up: %s", error)

    # --- renewing ---------------------------------------------------------------------------------------------

    async def _renew_all(self) -> None:
        await repeat(
            self._renew_once,
            pause=lambda: self._renew_seconds,
            retry_seconds=min(TRY_AGAIN_SECONDS, self._renew_seconds / 2),
            trouble=Trouble("leases of a limiter cannot be renewed for now", log),
            sleep=lambda seconds: pause(seconds),
        )

    async def _renew_once(self) -> None:
        self._ask_again()
        await self._renew(self._requests.leases())

    def _ask_again(self) -> None:
        """Renews tickets, and finds slots that were granted although the event was missed."""
        for request in self._requests.open():
            self._own_calls.asking.add(request)

    async def _renew(self, leases: Sequence[LeaseOnStore]) -> None:
        renewals = [Renewal(holder=lease.holder, token=lease.token, lease_ms=self._lease_ms) for lease in leases]
        async with aclosing(in_portions(self._renew_portion, renewals, portion=Portion(RENEW_AT_ONCE))) as portions:
            async for answers in portions:
                for held in answers:
                    if held.lost:
                        self._requests.lose(held.holder, held.token)

    async def _renew_portion(self, renewals: Sequence[Renewal]) -> Sequence[Held]:
        return (await self._store.renew(renewals)).held

    # --- listening --------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        trouble = Trouble("slots that become free cannot be heard of for now", log)
        await repeat(
            lambda: self._listen_while_needed(trouble),
            pause=lambda: 0.0,
            retry_seconds=TRY_AGAIN_SECONDS,
            trouble=trouble,
        )

    async def _listen_while_needed(self, trouble: Trouble) -> None:
        await self._is_watching.wait()
        try:
            cursor = (await self._store.events(None)).cursor
            self._ask_again()  # for slots that were granted before the cursor
            async with aclosing(self._store.signals(self._requests.name, cursor)) as feeds:
                async for feed in feeds:
                    trouble.over()
                    self._apply(feed)
                    if not self._requests:
                        break
        finally:
            self._is_watching.clear()
            if self._requests:  # only now: a request that comes later finds the event clear, and sets it
                self._is_watching.set()

    def _apply(self, feed: Feed) -> None:
        if feed.reset:
            self._ask_again()  # for slots whose events the store no longer has
        for event in feed.events:
            if event.kind == LEASE_LOST:
                self._requests.lose(event.subject, event.detail["token"])
            elif event.kind == GRANTED and (request := self._requests.get(event.subject)) is not None:
                grant = Grant(holder=event.subject, token=event.detail["token"], slots=event.detail["slots"])
                if not self._requests.answer(request, grant):
                    self._give_back_soon(grant.holder, grant.token)
