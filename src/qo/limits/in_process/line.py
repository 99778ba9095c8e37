"""The parts of slots in process: groups, lines, and the waiters in them, which become leases."""

from __future__ import annotations

import asyncio
import sys
import threading
from asyncio import _get_running_loop
from collections import deque
from collections.abc import Awaitable, Callable
from heapq import heapify, heappop, heappush

import msgspec

from qo.limits.metrics import GroupFigures
from qo.policy.ordering import order_key

UNLIMITED = sys.maxsize
NOBODY = sys.maxsize
"""Of a group in which no slot is kept. Greater than every key."""
NO_NUMBERS: list[int] = []
"""Of a waiter."""


class Group:
    """A group's slots: how many are held, which numbers, and which lines are parked here because it has no room."""

    __slots__ = ("active", "blocked", "free_numbers", "kept_for", "limit", "name", "open_limit", "parked", "waiting")

    def __init__(self, name: str, limit: int = UNLIMITED) -> None:
        self.name = name
        self.limit = limit
        # The key of the waiter that a slot is kept for. Callers behind it have `open_limit`, which is smaller by one.
        self.kept_for = NOBODY
        self.open_limit = limit
        self.active = 0
        # A heap of the numbers that are free though a higher one is held, or was when they were given back. Every
        # number is held or in here up to the next new one, which is therefore `active + len(free_numbers)`.
        self.free_numbers: list[int] = []
        # Keys may be those of waiters that have left since; then they are too small, never too large.
        self.parked: list[tuple[int, Line]] = []
        self.waiting = 0
        self.blocked = 0

    def set_limit(self, limit: int) -> None:
        """No slot is kept then, until it is worked out anew."""
        self.limit = limit
        self.keep_slot_for(NOBODY)

    def keep_slot_for(self, key: int) -> None:
        self.kept_for = key
        self.open_limit = self.limit if key == NOBODY else self.limit - 1

    def forget_empty_lines(self) -> None:
        for _, line in self.parked:
            if not line.waiters:
                line.parked_at = None
        self.parked = [entry for entry in self.parked if entry[1].waiters]
        heapify(self.parked)

    def figures(self) -> GroupFigures:
        return GroupFigures(
            group=self.name,
            limit=None if self.limit == UNLIMITED else self.limit,
            in_flight=self.active,
            waiting=self.waiting,
            blocked=self.blocked,
            kept=self.kept_for != NOBODY and self.active < self.limit,
        )


class Line:
    """The waiters for the same groups at the same priority, first come first."""

    __slots__ = ("first_key", "gone", "groups", "limited", "parked_at", "passed_key", "passes", "waiters")

    def __init__(self, groups: tuple[Group, ...], priority: int) -> None:
        self.groups = groups
        self.first_key = order_key(priority, 0)
        self.limited = self.which_are_limited()
        # The first waiter is always present. Of those behind it, `gone` have given up.
        self.waiters: deque[Waiter] = deque()
        self.gone = 0
        # Stays set when the last waiter has left, until the group where the line is parked has room.
        self.parked_at: Group | None = None
        # Only first waiters are looked at, so this counts for the waiter with `passed_key`, if it is still the first.
        self.passes = 0
        self.passed_key = 0

    def waiting(self) -> int:
        return len(self.waiters) - self.gone

    def park(self, group: Group) -> None:
        """Under the key of its first waiter."""
        self.parked_at = group
        group.waiting += self.waiting()
        heappush(group.parked, (self.waiters[0].key, self))

    def unpark(self) -> None:
        """The line is the first of those parked at its group."""
        group = self.parked_at
        assert group is not None
        heappop(group.parked)
        group.waiting -= self.waiting()
        self.parked_at = None

    def which_are_limited(self) -> tuple[bool, ...]:
        return tuple(group.limit != UNLIMITED for group in self.groups)

    def first_full_group(self, key: int) -> Group | None:
        """The first that has no room for a waiter with this key."""
        for group in self.groups:
            if group.active >= group.open_limit and (group.active >= group.limit or key > group.kept_for):
                return group
        return None

    def count_pass(self) -> int:
        """How often the first waiter was passed, with this time."""
        key = self.waiters[0].key
        if self.passed_key != key:
            self.passed_key = key
            self.passes = 0
        self.passes += 1
        return self.passes

    def drop(self, waiter: Waiter) -> None:
        """Of a waiter that gave up. Taking each out of the middle at once would cost a walk."""
        if waiter is self.waiters[0]:
            self.waiters.popleft()
            self.drop_gone()
            return
        self.gone += 1
        if self.gone > len(self.waiters) // 2:
            self.waiters = deque(each for each in self.waiters if not each.gave_up)
            self.gone = 0

    def drop_gone(self) -> None:
        """Drop waiters that gave up from the front, after the first waiter has left."""
        while self.gone and self.waiters[0].gave_up:
            self.waiters.popleft()
            self.gone -= 1


class LeaseInProcess(msgspec.Struct, eq=False):
    """A slot in every limited group that was asked for. It cannot be lost: it ends with its block.

    Users get it as a `Lease`, which has none of these fields.
    """

    line: Line
    limited: tuple[bool, ...]
    numbers: list[int]
    token_number: int

    @property
    def lost(self) -> bool:
        """False, always."""
        return False

    @property
    def token(self) -> str:
        """Greater than any earlier token, also of this program before it was restarted."""
        return str(self.token_number)

    @property
    def slots(self) -> dict[str, int]:
        """The lowest number that was free, by group; without the groups that had no limit."""
        held = zip(self.line.groups, self.numbers, self.limited, strict=False)  # a waiter has no numbers yet
        return {group.name: number for group, number, limited in held if limited}

    def __repr__(self) -> str:
        return f"<lease {self.token_number} of slots {self.slots}>"


class Waiting(LeaseInProcess, eq=False):
    """A caller in line: a future lease, which has numbers as soon as it gets its slots, before it is woken.

    Each kind has a `wake` of its own, to be called from any thread. False: the caller's event loop has been closed.
    """

    key: int
    since: float
    gave_up: bool


class ThreadWaiter(Waiting, eq=False):
    _asleep: threading.Lock

    def wait(self, timeout: float | None) -> None:
        self._asleep.acquire(timeout=-1 if timeout is None else timeout)

    def wake(self) -> bool:
        self._asleep.release()
        return True


def new_thread_waiter(line: Line, key: int, since: float) -> Waiter:
    asleep = threading.Lock()
    asleep.acquire()
    return ThreadWaiter(line, line.limited, NO_NUMBERS, 0, key, since, False, asleep)


class TaskWaiter(Waiting, eq=False):
    """To wait, await `woken`: it is done when the slots are there, and then there are numbers, or the time is up."""

    _loop: asyncio.AbstractEventLoop
    woken: asyncio.Future[None]

    def wake_after(self, seconds: float) -> None:
        """Wake the task when its time is up, unless it is woken before."""
        timer = self._loop.call_later(seconds, self._set_woken)
        self.woken.add_done_callback(lambda _: timer.cancel())

    def wake(self) -> bool:
        # Within one loop there is no need to go through its pipe, which would cost more than all the rest. Unlike
        # `get_running_loop`, this returns None in a thread without a loop, and does not raise.
        if _get_running_loop() is self._loop:
            if not self.woken.done():
                self.woken.set_result(None)
            return True
        try:
            self._loop.call_soon_threadsafe(self._set_woken)
        except RuntimeError:  # the loop is closed
            return False
        return True

    def _set_woken(self) -> None:
        if not self.woken.done():
            self.woken.set_result(None)


def new_task_waiter(line: Line, key: int, since: float) -> Waiter:
    loop = asyncio.get_running_loop()
    return TaskWaiter(line, line.limited, NO_NUMBERS, 0, key, since, False, loop, loop.create_future())


Waiter = ThreadWaiter | TaskWaiter
NewWaiter = Callable[[Line, int, float], Waiter]

_NOTHING = iter(())


class _Done:
    """An awaitable that is done: `await` needs no more than an iterator that has ended."""

    __await__ = staticmethod(_NOTHING.__iter__)  # a method of our own would be one more call for every block


DONE: Awaitable[None] = _Done()  # type: ignore[assignment]  # mypy wants a generator, which an iterator is not
