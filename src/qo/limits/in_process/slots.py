"""Slots of groups within one process, for threads and any number of event loops at once.

The rule is that of the stores: the next caller is the first in line whose every group has room for it.

Callers that wait for the same set of groups at the same priority form one `Line`. A line with waiters is parked at one
group that is full, under the key of its first waiter. A group that gets room looks only at the lines that are parked
at it, smallest key first: that line's first waiter gets its slots, or the line is parked at another group, which is
full. So after every step, a group has no room for what is parked there, and a caller that finds room in all of its
groups passes no waiter that could have gone first. A waiter that was passed too often by callers that need fewer
groups takes a turn (`turns.py`); to callers behind it, a group is full when only the slot is free that it keeps.

A freed slot is given to a waiter under the lock, before the waiter is woken: no other caller can come between, and one
release wakes exactly the waiters that hold a slot now. Whether a wait ended in time, by a timeout or by a cancellation
is decided by the thread that takes the lock first.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from heapq import heappop, heappush, heapreplace

from qo.clock import system_us
from qo.forking import when_forked
from qo.limits.in_process.line import (
    DONE,
    UNLIMITED,
    Group,
    LeaseInProcess,
    Line,
    NewWaiter,
    ThreadWaiter,
    Waiter,
    new_thread_waiter,
)
from qo.limits.in_process.turns import Turns
from qo.limits.metrics import Figures, too_late

SWEEP_AT_LINES = 1000


class SlotsInProcess:
    """What `qo.Limiter` needs of slots, without a store. Methods may be called from any thread and event loop."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        new_lock: Callable[[], threading.Lock] = threading.Lock,
        new_turns: Callable[[], Turns] = Turns,
    ) -> None:
        """A test hands in a clock, a lock that it can hold, and turns with other numbers."""
        self._clock = clock
        self._new_lock = new_lock
        self._new_turns = new_turns
        self._groups: dict[str, Group] = {}
        self._last_ticket = 0
        # Microseconds, as tokens of the stores are, so that tokens are greater after a restart.
        self._last_token = system_us()
        self._begin_anew()
        when_forked(self, SlotsInProcess._begin_anew)

    def _begin_anew(self) -> None:
        # Also in a forked process: holders and waiters are in the other one.
        self._lock = self._new_lock()
        self._turns = self._new_turns()
        self._groups = {name: Group(name, group.limit) for name, group in self._groups.items()}
        self._lines: dict[tuple[tuple[str, ...], int], Line] = {}
        self._sweep_at = SWEEP_AT_LINES
        self._left: deque[LeaseInProcess] = deque()
        self._waited_seconds = 0.0
        self._longest_wait_seconds = 0.0

    # Entering and leaving

    def enter(self, groups: tuple[str, ...], timeout: float | None, priority: int) -> LeaseInProcess:
        """A slot in every group, now or when it is the thread's turn. Raises `Timeout` after so many seconds."""
        lease = self.enter_or_join(groups, timeout, priority, new_thread_waiter)
        if lease.numbers:
            return lease
        waiter: ThreadWaiter = lease  # type: ignore[assignment]  # asking of a Struct what it is takes long
        try:
            waiter.wait(timeout)
        except BaseException:
            self.give_up(waiter)
            raise
        if not waiter.numbers:
            self.take_last_chance(waiter, timeout)
        return waiter

    def enter_or_join(
        self, groups: tuple[str, ...], timeout: float | None, priority: int, new_waiter: NewWaiter
    ) -> LeaseInProcess:
        """The lease, or a waiter that has no numbers yet. Never blocks.

        A caller that would not wait gets `Timeout` and is not counted. A waiter must end in one of three ways: it is
        woken and has numbers; it is woken and has none, so it takes its last chance; or it gives up.
        """
        let_in: list[Waiter] | None = None
        self._lock.acquire()  # not `with`, which takes as long as all that is done in here
        try:
            if self._left:
                let_in = self._carry_out_leaves()
            line = self._lines.get((groups, priority)) or self._new_line(groups, priority)
            for group in line.groups:
                if group.active >= group.open_limit and (  # a slot may be kept for a turn behind this caller
                    group.active >= group.limit or line.first_key + self._last_ticket >= group.kept_for
                ):
                    break
            else:
                return LeaseInProcess(line, line.limited, self._take(line), self._last_token)
            if timeout != 0:
                return self._join(line, group, new_waiter)
            refused = group.figures()
        finally:
            self._lock.release()
            if let_in:
                self._wake(let_in)
            if self._left:
                self._settle()
        raise too_late(refused, 0)

    def take_last_chance(self, waiter: Waiter, timeout: float | None) -> None:
        """The time is up. A slot that came in this very moment is kept; otherwise raises `Timeout`."""
        with self._lock:
            let_in = self._carry_out_leaves()
            full = waiter.line.parked_at
            refused = None
            if not waiter.numbers:
                assert full is not None
                waiter.gave_up = True
                eased = self._remove(waiter)
                refused = full.figures()
                let_in += self._hand_over(eased)
        self._wake(let_in)
        self._settle()
        if refused is not None:
            assert timeout is not None
            raise too_late(refused, timeout)

    def give_up(self, waiter: Waiter) -> None:
        """Take it out of the line, or hand on what it was given meanwhile."""
        self._left.append(waiter)
        self._settle()

    def leave(self, lease: LeaseInProcess, error: BaseException | None = None) -> Awaitable[None]:
        """Give the slots back, once, and hand them on. Never blocks, and need not be awaited."""
        if self._left or not self._lock.acquire(False):
            self._left.append(lease)
            self._settle()
            return DONE
        # The same without the detour, for the usual case that no other thread has the lock.
        try:
            next_one = self._pass_on(lease) if lease.line.waiters and not self._turns else None
            let_in = self._hand_over(lease.line.groups) if next_one is None and self._give_back(lease) else None
        finally:
            self._lock.release()
        if next_one is not None:
            if not next_one.wake():
                self._left.append(next_one)
        elif let_in:
            self._wake(let_in)
        if self._left:
            self._settle()
        return DONE

    leave_async = leave

    def set_limit(self, name: str, slots: int | None) -> None:
        """Limit the group's holders from now on; None: any number. Present holders count, and may stay."""
        with self._lock:
            let_in = self._carry_out_leaves()
            group = self._group(name)
            group.set_limit(UNLIMITED if slots is None else slots)
            for line in self._lines.values():
                line.limited = line.which_are_limited()
            let_in += self._hand_over([group, *self._turns.keep_slots()])
        self._wake(let_in)
        self._settle()

    def figures(self) -> Figures:
        """Of every group that has a limit, is held, or has ever made a caller wait."""
        with self._lock:
            let_in = self._carry_out_leaves()
            now = self._clock()
            present = max((now - line.waiters[0].since for line in self._lines.values() if line.waiters), default=0.0)
            shown = [each for each in self._groups.values() if each.active or each.blocked or each.limit != UNLIMITED]
            groups = tuple(group.figures() for group in shown)
            figures = Figures(
                groups=groups,
                waits_ended=sum(each.blocked - each.waiting for each in groups),
                waited_seconds=self._waited_seconds,
                longest_wait_seconds=max(self._longest_wait_seconds, present),
            )
        self._wake(let_in)
        self._settle()
        return figures

    def close(self) -> None:
        """There is nothing to end."""

    def _settle(self) -> None:
        """Carry out the leaves, unless another thread has the lock; that thread does so after releasing it.

        This must not wait for the lock: garbage collection ends generators and coroutines, and so their blocks, at any
        moment in any thread, also in a thread that has the lock.
        """
        while self._left and self._lock.acquire(False):
            try:
                let_in = self._carry_out_leaves()
            finally:
                self._lock.release()
            self._wake(let_in)

    def _wake(self, let_in: list[Waiter]) -> None:
        """Without the lock. A waiter that cannot be woken gives its slots back; the caller settles afterwards."""
        for waiter in let_in:
            if not waiter.wake():
                self._left.append(waiter)

    # What follows changes the state, and is called with the lock held.

    def _take(self, line: Line) -> list[int]:
        """Also in groups without a limit, so that present holders count when a limit is set."""
        numbers = []
        for group in line.groups:
            active = group.active
            numbers.append(heappop(group.free_numbers) if group.free_numbers else active)
            group.active = active + 1
        self._last_token += 1
        return numbers

    def _pass_on(self, lease: LeaseInProcess) -> Waiter | None:
        """Give the very same slots to the next waiter, as `_give_back` and `_hand_over` would, if that is easily seen.

        That is so when no waiter has a turn and the first waiter parked at these groups is in the line that the lease
        came from. With the slots taken again, no group has more room than before, and no other waiter can go.
        """
        line = lease.line
        key = line.waiters[0].key
        for group in line.groups:
            # A smaller key is that of another line, or of a waiter that was first in this line and has left.
            if group.active > group.limit or (group.parked and group.parked[0][0] < key):
                return None
            # The number is looked up only where it matters: pairing all numbers with their groups takes twice as long.
            if group.free_numbers and group.free_numbers[0] < lease.numbers[line.groups.index(group)]:
                return None
        self._last_token += 1
        return self._let_in(line, lease.numbers)

    def _give_back(self, lease: LeaseInProcess) -> bool:
        """Whether a line is parked at one of the groups."""
        is_parked = False
        for group, number in zip(lease.line.groups, lease.numbers):  # noqa: B905 - `strict` takes as long as the loop
            group.active = active = group.active - 1
            if number != active or group.free_numbers:
                if active:
                    heappush(group.free_numbers, number)
                else:
                    group.free_numbers.clear()
            if group.parked:
                is_parked = True
        return is_parked

    def _join(self, line: Line, full: Group, new_waiter: NewWaiter) -> Waiter:
        self._last_ticket = ticket = self._last_ticket + 1
        waiter = new_waiter(line, line.first_key + ticket, self._clock())
        line.waiters.append(waiter)
        group = line.parked_at
        if group is None:
            group = full
            line.park(full)
        else:
            group.waiting += 1
        group.blocked += 1
        return waiter

    def _remove(self, waiter: Waiter) -> list[Group]:
        """Out of the line. Its line stays parked, under a key that is now too small if this was the first. Returns the
        groups that may have room for others now, because it had a turn."""
        group = waiter.line.parked_at
        assert group is not None
        group.waiting -= 1
        waiter.line.drop(waiter)
        self._count_wait(waiter)
        return self._turns.end(waiter.key) if waiter.key in self._turns else []

    def _count_wait(self, waiter: Waiter) -> None:
        waited = self._clock() - waiter.since
        self._waited_seconds += waited
        if waited > self._longest_wait_seconds:
            self._longest_wait_seconds = waited

    def _carry_out_leaves(self) -> list[Waiter]:
        """Give back the leases that were left. Wake the returned waiters after releasing the lock."""
        freed: dict[Group, None] = {}
        while self._left:
            lease = self._left.popleft()
            if isinstance(lease, Waiter):
                # Perhaps for the second time: it could not be woken in its closed loop, and now its task is collected.
                if lease.gave_up:
                    continue
                lease.gave_up = True
                if not lease.numbers:
                    freed.update(dict.fromkeys(self._remove(lease)))
                    continue
            if self._give_back(lease):
                freed.update(dict.fromkeys(lease.line.groups))
        return self._hand_over(freed) if freed else []

    def _hand_over(self, groups: Collection[Group]) -> list[Waiter]:
        """Give slots to the waiters that can go, now that these groups may have room."""
        let_in: list[Waiter] = []
        passed_often: list[Line] = []
        while True:
            first: Group | None = None
            for group in groups:
                if (
                    group.parked
                    and group.active < group.limit
                    and (first is None or group.parked[0] < first.parked[0])
                    and (group.active < group.open_limit or group.parked[0][0] <= group.kept_for)
                ):
                    first = group
            if first is None:
                if passed_often:
                    self._turns.begin(passed_often)
                return let_in
            key, line = first.parked[0]
            if not line.waiters or line.waiters[0].key != key:  # the first waiter has left
                line.unpark()
                if line.waiters:
                    line.park(first)
                continue
            full = line.first_full_group(key)
            if full is not None:
                line.unpark()
                line.park(full)
                if line.count_pass() >= self._turns.after:
                    passed_often.append(line)
                continue
            let_in.append(self._let_in(line, self._take(line)))
            if key in self._turns:
                self._turns.end(key)  # it took the slots that were kept, so there is no more room than before

    def _let_in(self, line: Line, numbers: list[int]) -> Waiter:
        """Let in the first waiter of a line that is the first parked at its group. A token was just drawn for it."""
        group = line.parked_at
        assert group is not None
        waiters = line.waiters
        waiter = waiters.popleft()
        if line.gone:
            line.drop_gone()
        if waiter.limited is not line.limited:  # hardly ever, and assigning to a Struct takes long
            waiter.limited = line.limited
        waiter.numbers = numbers
        waiter.token_number = self._last_token
        group.waiting -= 1
        if waiters:
            # The next waiter may be blocked at another group; then the line moves when this group has room.
            heapreplace(group.parked, (waiters[0].key, line))
        else:
            heappop(group.parked)
            line.parked_at = None
        # `_count_wait`, written out: with the lock held, the call alone costs too much of every hand-over.
        waited = self._clock() - waiter.since
        self._waited_seconds += waited
        if waited > self._longest_wait_seconds:
            self._longest_wait_seconds = waited
        return waiter

    def _group(self, name: str) -> Group:
        return self._groups.get(name) or self._groups.setdefault(name, Group(name))

    def _new_line(self, groups: tuple[str, ...], priority: int) -> Line:
        if len(self._lines) >= self._sweep_at:
            self._sweep()
        line = self._lines[groups, priority] = Line(tuple(self._group(name) for name in groups), priority)
        return line

    def _sweep(self) -> None:
        """Forget lines without waiters, and groups without a limit, holders or counts.

        Programs make up names as they go, such as one for each customer. Doubling keeps this cheap for each name.
        """
        for group in self._groups.values():
            group.forget_empty_lines()
        self._lines = {key: line for key, line in self._lines.items() if line.waiters}
        used = {group for line in self._lines.values() for group in line.groups}
        self._groups = {
            name: group
            for name, group in self._groups.items()
            if group in used or group.active or group.blocked or group.limit != UNLIMITED
        }
        self._sweep_at = max(SWEEP_AT_LINES, 2 * len(self._lines))
