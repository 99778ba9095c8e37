"""Callers of a limiter on a store, between their own threads and tasks and the thread that serves those who wait.

Waking another thread costs more than the rest of a call, so the two sides post what they want and what they have got,
and one wakes the other once for all of it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar

from qo.runtime.portions import Portion
from qo.store.values import Ticket

log = logging.getLogger("qo.limiter")

MOST_PER_CALL = 100

Item = TypeVar("Item")


class Mailbox:
    """Calls into an event loop from other threads, which wake it once for all that they post meanwhile."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._posted: deque[Callable[[], None]] = deque()
        self._is_woken = False

    def post(self, call: Callable[[], None]) -> None:
        """Raises RuntimeError if the loop has been closed."""
        self._posted.append(call)
        if not self._is_woken or self.loop.is_closed():
            self._is_woken = True
            self.loop.call_soon_threadsafe(self.deliver)

    def deliver(self) -> None:
        self._is_woken = False  # before it looks: whoever posts later wakes it again
        while self._posted:
            self._posted.popleft()()


class Waiter(Protocol):
    """A caller's thread or task, that waits to be told."""

    def tell(self) -> bool:
        """Called once, in any thread. False: nobody can be told any more."""


class WaitingThread:
    __slots__ = ("_untold",)

    def __init__(self) -> None:
        self._untold = threading.Lock()
        self._untold.acquire()

    def tell(self) -> bool:
        self._untold.release()
        return True

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """False: it was not told in that time."""
        return self._untold.acquire(timeout=-1 if timeout_seconds is None else timeout_seconds)


class WaitingTask:
    __slots__ = ("_is_told", "_mailbox", "_woken")

    def __init__(self, mailbox: Mailbox) -> None:
        """`mailbox` is that of the task's loop."""
        self._mailbox = mailbox
        self._is_told = False
        self._woken: asyncio.Future[None] | None = None

    def tell(self) -> bool:
        try:
            self._mailbox.post(self._wake)
        except RuntimeError:
            return False  # that loop has been closed, and the task with it
        return True

    async def wait(self) -> None:
        """May be called again after it was cancelled."""
        if not self._is_told:
            self._woken = self._mailbox.loop.create_future()
            await self._woken

    def _wake(self) -> None:
        self._is_told = True
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)


class LeaseOnStore:
    """Slots of the groups that were asked for, kept alive as long as the block runs."""

    __slots__ = ("_tell", "groups", "holder", "lost", "slots", "token")

    def __init__(self, ticket: Ticket, token: str, slots: dict[str, int]) -> None:
        self.holder = ticket.holder
        self.groups = ticket.groups
        self.token = token
        self.slots = slots
        self.lost = False
        self._tell: Callable[[], None] | None = None

    def tell_when_lost(self, tell: Callable[[], None]) -> None:
        """`tell` is called in the keeper's thread, at once if it is lost already."""
        self._tell = tell
        if self.lost:
            tell()

    def lose(self) -> None:
        if not self.lost:
            self.lost = True
            log.warning("the lease %s on %s is lost: somebody else may hold its slots by now", self.token, self.slots)
            if self._tell is not None:
                self._tell()

    def __repr__(self) -> str:
        return f"<lease {self.token} of slots {self.slots}>"


class Request:
    """A caller at the door. Whether it was let in or went away is decided by who is first."""

    __slots__ = ("_answer", "_decision", "_error", "_waiter", "stands_in_line", "ticket")

    def __init__(self, ticket: Ticket, waiter: Waiter) -> None:
        self.ticket = ticket
        self.stands_in_line = False
        self._waiter = waiter
        self._decision = threading.Lock()  # taken once, by the first
        self._answer: LeaseOnStore | None = None
        self._error: Exception | None = None

    @property
    def waits(self) -> bool:
        return self.ticket.wait_ms > 0

    @property
    def is_decided(self) -> bool:
        return self._decision.locked()

    def answer(self, lease: LeaseOnStore | None, error: Exception | None = None) -> bool:
        """False: the caller has gone. By whoever took the request out of the line, and by nobody else."""
        if self.is_decided:
            return False
        # Before the decision: whoever goes away and finds it taken looks at the answer at once.
        self._answer, self._error = lease, error
        return self._decision.acquire(blocking=False)

    def tell(self) -> bool:
        """That it was answered. False: nobody can be told any more."""
        return self._waiter.tell()

    def go_away(self) -> bool:
        """False: it was answered in this very moment."""
        return self._decision.acquire(blocking=False)

    def result(self) -> LeaseOnStore | None:
        """What it was answered. None: no slot, for one who would not wait."""
        if self._error is not None:
            raise self._error
        return self._answer


class Departure:
    """What goes back to the store: a lease, or without a token whatever the holder has, a place in line included."""

    __slots__ = ("holder", "token", "waiter")

    def __init__(self, holder: str, token: str | None, waiter: Waiter | None = None) -> None:
        self.holder = holder
        self.token = token
        self.waiter = waiter


class Gatherer(Generic[Item]):
    """Passes items on as lists, in the order they came, one list at a time: the next ones gather meanwhile."""

    def __init__(self, send: Callable[[list[Item]], Awaitable[None]], portion: Portion[Item] | None = None) -> None:
        self._portion = portion or Portion(MOST_PER_CALL)
        self.in_flight: list[Item] = []
        self.gathered: list[Item] = []
        self._send = send
        self._some = asyncio.Event()

    def add(self, item: Item) -> None:
        self.gathered.append(item)
        self._some.set()

    async def run(self) -> None:
        while True:
            await self._some.wait()
            self.in_flight, self.gathered = self._portion.cut(self.gathered)
            if not self.gathered:
                self._some.clear()
            await self._send(self.in_flight)
            self.in_flight = []
