"""Slots of groups on a store, for the callers of a limiter: the same groups and slots that jobs use."""

from __future__ import annotations

import asyncio

from qo.errors import LeaseLost
from qo.forking import when_forked
from qo.limits.holders import milliseconds
from qo.limits.metrics import Figures
from qo.limits.on_store.calls import StoreCalls
from qo.limits.on_store.groups import Groups
from qo.limits.on_store.requests import LeaseOnStore, Request, Requests, TaskBlock
from qo.limits.on_store.thread import BackgroundThread
from qo.limits.on_store.waiters import TaskWaiter, ThreadWaiter, Waiter
from qo.loops.timing import within
from qo.queue.queue import Queue
from qo.worker.context import Context, current_context

LEAVE_SECONDS = 10.0
"""How long the end of a block waits for its slots to be given back. The background thread goes on after that."""


class LeaseOfJob:
    """The lease of a block inside a job that is in all of the wanted groups. The job's own lease holds the slots."""

    __slots__ = ("_context", "slots")

    def __init__(self, context: Context, groups: tuple[str, ...]) -> None:
        self._context = context
        self.slots = {group: context.slots[group] for group in groups if group in context.slots}

    @property
    def token(self) -> str:
        return self._context.token

    @property
    def lost(self) -> bool:
        return self._context.lost


AnyLease = LeaseOnStore | LeaseOfJob


class SlotsOnStore:
    """What `qo.Limiter` needs of slots, on a store. The figures count the callers of this process."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._groups = Groups(queue)
        self._begin_anew()
        when_forked(self, SlotsOnStore._begin_anew)

    def _begin_anew(self) -> None:
        # Also in a forked process: the callers so far, and the thread, are in the other one.
        settings = self._queue.settings
        self._groups.begin_anew()
        self._requests = Requests(
            lease_ms=milliseconds(settings.concurrency.default_lease_duration_secs),
            wait_ms=milliseconds(settings.limiter.waiter_alive_secs),
        )
        self._thread = BackgroundThread(self._queue, self._requests, self._groups)
        self._calls: dict[asyncio.AbstractEventLoop, StoreCalls] = {}
        self._is_used = False

    def enter(self, groups: tuple[str, ...], timeout: float | None, priority: int) -> AnyLease:
        waiter = ThreadWaiter()
        request = self._begin(groups, timeout, priority, waiter)
        if not isinstance(request, Request):
            return request
        try:
            calls = self._thread.start()
            calls.queue.put(lambda: calls.asking.add(request))
            waiter.wait(timeout or None)
            lease = self._outcome(request)
        except BaseException:
            self._abandon(request)
            raise
        if lease is None:
            raise self._thread.run(self._groups.too_late(request.ticket.groups, timeout)).result()
        return lease

    async def enter_async(self, groups: tuple[str, ...], timeout: float | None, priority: int) -> AnyLease:
        calls = self._calls_here()
        waiter = TaskWaiter(calls.queue)
        request = self._begin(groups, timeout, priority, waiter)
        if not isinstance(request, Request):
            return request
        try:
            calls.asking.add(request)
            await within(timeout or None, waiter.wait())
            lease = self._outcome(request)
        except BaseException:
            self._abandon(request)
            raise
        if lease is None:
            raise await self._groups.too_late(request.ticket.groups, timeout)
        lease.cancel_when_lost(TaskBlock())
        return lease

    def leave(self, lease: AnyLease, error: BaseException | None) -> None:
        if isinstance(lease, LeaseOnStore) and self._requests.give_back(lease):
            waiter = ThreadWaiter()
            self._thread.give_back(lease.holder, lease.token, waiter)
            waiter.wait(LEAVE_SECONDS)

    async def leave_async(self, lease: AnyLease, error: BaseException | None) -> None:
        if not isinstance(lease, LeaseOnStore) or not self._requests.give_back(lease):
            return
        try:
            await within(LEAVE_SECONDS, self._give_back(lease))
        except asyncio.CancelledError as late:
            error = late
        was_cancelled_by_us = lease.end_block()
        if was_cancelled_by_us and (error is None or isinstance(error, asyncio.CancelledError)):
            raise LeaseLost(lease.holder, lease.token) from None
        if isinstance(error, asyncio.CancelledError):
            raise error

    async def _give_back(self, lease: LeaseOnStore) -> None:
        calls = self._calls_here()
        try:
            await calls.releasing.send((lease.holder, lease.token))
        except Exception:
            # Whatever it was, other callers wait for slots that nobody uses: the thread tries until it succeeds.
            waiter = TaskWaiter(calls.queue)
            self._thread.give_back(lease.holder, lease.token, waiter)
            await waiter.wait()
        except asyncio.CancelledError:
            self._thread.give_back(lease.holder, lease.token)
            raise

    def _begin(
        self, groups: tuple[str, ...], timeout: float | None, priority: int, waiter: Waiter
    ) -> Request | LeaseOfJob:
        context = current_context.get()
        if context is not None:
            # A job that waited for the slots that it holds itself would wait for ever.
            wanted = tuple(group for group in groups if group not in context.job.groups)
            if not wanted:
                return LeaseOfJob(context, groups)
            groups = wanted
        self._is_used = True
        self._thread.start()
        return self._requests.begin(groups, waiter, priority=priority, waits=timeout != 0)

    def _calls_here(self) -> StoreCalls:
        """Those of the running loop."""
        loop = asyncio.get_running_loop()
        calls = self._calls.get(loop)
        if calls is None:
            self._calls = {each: its for each, its in self._calls.items() if not each.is_closed()}
            calls = self._calls[loop] = StoreCalls(self._queue.store, self._requests, self._thread)
        return calls

    def _outcome(self, request: Request) -> LeaseOnStore | None:
        """The wait is over. None: there was no slot in time. A slot that came at this very moment is kept."""
        if self._requests.give_up(request):
            self._thread.give_back(request.holder, None)
        if request.error is not None:
            raise request.error
        return request.lease

    def _abandon(self, request: Request) -> None:
        """Give back by the thread, also for a task: its event loop may be about to end."""
        if self._requests.give_up(request):
            self._thread.give_back(request.holder, None)
        elif request.lease is not None and self._requests.give_back(request.lease):
            self._thread.give_back(request.holder, request.lease.token)

    # --- limits and figures -----------------------------------------------------------------------------------

    def set_limit(self, name: str, slots: int | None) -> None:
        self._groups.limit(name, slots)
        if self._is_used:
            self._thread.run(self._thread.set_limits()).result()

    def figures(self) -> Figures:
        return self._requests.figures(self._groups.limits)

    def close(self) -> None:
        self._thread.close()
