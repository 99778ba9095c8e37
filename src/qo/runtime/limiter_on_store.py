"""Slots of groups on a store, for the callers of a limiter: the same groups and slots that jobs use."""

from __future__ import annotations

import asyncio
import threading
from typing import TypeGuard

from qo.errors import LeaseLost, Timeout
from qo.forking import when_forked
from qo.runtime.context import Context, current_context
from qo.runtime.limiter_callers import LeaseOnStore, Request, Waiter, WaitingTask, WaitingThread
from qo.runtime.limiter_desk import Desk
from qo.runtime.limiter_keeper import Keeper
from qo.runtime.limiter_metrics import Figures, GroupFigures, too_late
from qo.runtime.limiter_tally import Tally
from qo.runtime.queue import Queue
from qo.runtime.timing import within
from qo.store.values import Limit, Source

LEAVE_SECONDS = 10.0
"""how long the end of a block waits for its slots to be given back; the keeper goes on after that"""


class LeaseOfJob:
    """For a block inside of a job that is in all of the wanted groups: it is the job's lease that holds them."""

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
    """Limits are those of the code: an operator's, and those of the configuration and of tiers, win over them.

    Figures are of the callers of this process.
    """

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._tally = Tally()
        self._keeper = self._new_keeper()
        self._desks: dict[asyncio.AbstractEventLoop, Desk] = {}
        self._blocks: dict[str, _Block] = {}
        self._not_set: dict[str, int | None] = {}
        """limits that the store was not told yet: it is when somebody enters, and not when a limiter is made"""
        self._limits_are_set = False
        self._is_used = False
        self._lock = threading.Lock()
        when_forked(self, SlotsOnStore._begin_anew)

    def _begin_anew(self) -> None:
        # Those who hold slots or wait are in the other process.
        self._tally = self._tally.without_callers()
        self._keeper = self._new_keeper()
        self._desks = {}
        self._blocks = {}
        self._is_used = False
        self._lock = threading.Lock()

    # --- callers ----------------------------------------------------------------------------------------------

    def enter(self, groups: tuple[str, ...], timeout: float | None, priority: int) -> AnyLease:
        waiter = WaitingThread()
        request = self._at_the_door(groups, timeout, priority, waiter)
        if not isinstance(request, Request):
            return request
        self._keeper.ask_for(request)
        try:
            is_answered = waiter.wait(timeout if request.waits else None)
            lease = request.result() if is_answered else self._in_the_last_moment(request)
        except BaseException:
            self._go_away(request)
            raise
        finally:
            # Not before the request is decided: until then the keeper's thread may count it among those who wait.
            self._tally.wait_ended(request.ticket.holder)
        if lease is None:
            raise self._keeper.run(self._too_late(request.ticket.groups, timeout)).result()
        self._tally.entered(lease.groups)
        return lease

    async def enter_async(self, groups: tuple[str, ...], timeout: float | None, priority: int) -> AnyLease:
        desk = self._desk()
        waiter = WaitingTask(desk.mailbox)
        request = self._at_the_door(groups, timeout, priority, waiter)
        if not isinstance(request, Request):
            return request
        try:
            is_answered = await within(timeout if request.waits else None, self._be_let_in(request, waiter, desk))
            lease = request.result() if is_answered else self._in_the_last_moment(request)
        except BaseException:
            self._go_away(request)
            raise
        finally:
            self._tally.wait_ended(request.ticket.holder)  # as in `enter`
        if lease is None:
            raise await asyncio.wrap_future(self._keeper.run(self._too_late(request.ticket.groups, timeout)))
        self._tally.entered(lease.groups)
        block = self._blocks[lease.token] = _Block()
        lease.tell_when_lost(block.cancel_soon)
        return lease

    async def _be_let_in(self, request: Request, waiter: WaitingTask, desk: Desk) -> None:
        """Returns when it has been answered."""
        if not self._limits_are_set:
            await asyncio.wrap_future(self._keeper.run(self._keeper.prepare()))
        grant = await desk.asking.send(request.ticket)
        if grant.token is not None:
            if self._keeper.take(request, grant):
                return
        elif request.waits:
            if not self._keeper.has_to_wait(request):
                await desk.leaving.send((request.ticket.holder, None))  # the limiter was closed meanwhile
        else:
            self._keeper.refuse(request)
        await waiter.wait()

    def leave(self, lease: AnyLease, error: BaseException | None) -> None:
        if self._is_of_a_caller(lease):
            self._tally.left(lease.groups)
            waiter = WaitingThread()
            self._keeper.leave(lease, waiter)
            waiter.wait(LEAVE_SECONDS)

    async def leave_async(self, lease: AnyLease, error: BaseException | None) -> None:
        if not self._is_of_a_caller(lease):
            return
        block = self._blocks.pop(lease.token)
        self._tally.left(lease.groups)
        self._keeper.let_go(lease.holder)
        try:
            await within(LEAVE_SECONDS, self._give_back(lease))
        except asyncio.CancelledError as late:
            error = late
        was_cancelled_by_us = block.end()
        if was_cancelled_by_us and (error is None or isinstance(error, asyncio.CancelledError)):
            raise LeaseLost(lease.holder, lease.token) from None
        if isinstance(error, asyncio.CancelledError):
            raise error

    def _is_of_a_caller(self, lease: AnyLease) -> TypeGuard[LeaseOnStore]:
        """Not of a job, and not of the process from which this one was forked."""
        return isinstance(lease, LeaseOnStore) and self._keeper.knows(lease)

    async def _give_back(self, lease: LeaseOnStore) -> None:
        desk = self._desk()
        try:
            await desk.leaving.send((lease.holder, lease.token))
        except Exception:
            # Whatever it was, others wait for slots that nobody uses: the keeper tries until the store takes it.
            waiter = WaitingTask(desk.mailbox)
            self._keeper.leave(lease, waiter)
            await waiter.wait()
        except asyncio.CancelledError:
            self._keeper.leave(lease)
            raise

    def _at_the_door(
        self, groups: tuple[str, ...], timeout: float | None, priority: int, waiter: Waiter
    ) -> Request | LeaseOfJob:
        context = current_context.get()
        if context is not None:
            # A job that waited for what it has itself would wait for ever.
            wanted = tuple(group for group in groups if group not in context.job.groups)
            if not wanted:
                return LeaseOfJob(context, groups)
            groups = wanted
        self._is_used = True
        return self._keeper.begin(groups, waiter, priority=priority, waits=timeout != 0)

    def _desk(self) -> Desk:
        """Of the running loop."""
        loop = asyncio.get_running_loop()
        desk = self._desks.get(loop)
        if desk is None:
            self._desks = {each: its for each, its in self._desks.items() if not each.is_closed()}
            desk = self._desks[loop] = Desk(self._queue.store, loop, unheard=self._keeper.give_back_unless_held)
        return desk

    def _in_the_last_moment(self, request: Request) -> LeaseOnStore | None:
        """The time is up. A slot that came in this very moment is kept."""
        if request.go_away():
            self._keeper.give_back(request.ticket.holder, None)
            return None
        return request.result()

    def _go_away(self, request: Request) -> None:
        """By the keeper's thread, also for a task: its event loop may be about to end."""
        try:
            lease = self._in_the_last_moment(request)
        except Exception:
            return  # it was not let in, and will not hear of it
        if lease is not None:
            self._keeper.leave(lease)

    def _has_to_wait(self, request: Request, group: str) -> None:
        self._tally.blocked(request.ticket.holder, group)
        if request.is_decided:
            self._tally.wait_ended(request.ticket.holder)  # its caller may have been too early to say so

    async def _too_late(self, groups: tuple[str, ...], timeout: float | None) -> Timeout:
        statuses = [await self._keeper.status(group) for group in groups]
        # What was full may have room by now; then it was the last one that was waited for.
        full = next((status for status in statuses if not status.has_room), statuses[-1])
        figures = GroupFigures(
            group=full.group, limit=full.limit, in_flight=full.active, waiting=full.waiting, blocked=0
        )
        return too_late(figures, timeout or 0)

    # --- limits and figures -----------------------------------------------------------------------------------

    def set_limit(self, name: str, slots: int | None) -> None:
        with self._lock:
            self._not_set[name] = slots
            self._limits_are_set = False
        self._tally.set_limit(name, slots)
        if self._is_used:
            self._keeper.run(self._keeper.prepare()).result()

    async def _set_limits(self) -> None:
        with self._lock:
            limits, self._not_set = self._not_set, {}
        store = self._queue.store
        try:
            given = [(name, slots) for name, slots in limits.items() if slots is not None]
            wanted = [Limit(group=name, slots=slots, source=Source.TASK) for name, slots in given]
            if wanted:
                self._queue.warn_of_ignored(await store.set_limits(wanted))
            for name, slots in limits.items():
                if slots is None:
                    await store.remove_limit(name, only=Source.TASK)
        except BaseException:
            with self._lock:
                self._not_set = {**limits, **self._not_set}
            raise
        with self._lock:
            self._limits_are_set = not self._not_set

    def figures(self) -> Figures:
        return self._tally.figures()

    def close(self) -> None:
        self._keeper.close()

    def _new_keeper(self) -> Keeper:
        return Keeper(self._queue, prepare=self._set_limits, blocked=self._has_to_wait)


class _Block:
    """An `async with` block, which is cancelled when its lease is lost."""

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None, "an `async with` block runs in a task"
        self._task = task
        self._loop = asyncio.get_running_loop()
        self._has_ended = False
        self._was_cancelled = False

    def cancel_soon(self) -> None:
        """May be called from any thread."""
        try:
            self._loop.call_soon_threadsafe(self._cancel)
        except RuntimeError:
            pass  # that loop has been closed, and the block with it

    def _cancel(self) -> None:
        if not self._has_ended:
            self._was_cancelled = True
            self._task.cancel()

    def end(self) -> bool:
        """Whether it was cancelled because of its lease, and by nobody else."""
        self._has_ended = True
        return self._was_cancelled and self._task.uncancel() == 0
