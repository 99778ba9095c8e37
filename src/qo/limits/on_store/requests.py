"""The requests of a limiter on a store: every step in the life of a request is decided here.

    ASKED ──► WAITING ──┬──► GRANTED ──► GIVEN_BACK
      └─────────────────┤       └──► LOST ──► GIVEN_BACK
                        ├──► REFUSED
                        └──► GIVEN_UP

The store may answer a request more than once: to its caller's event loop, to the background thread that asks again,
and by an event. The caller may give up at the same moment. The first of them to get the lock decides.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Mapping
from enum import Enum, auto
from itertools import count

from qo.ids import new_id
from qo.limits.metrics import Figures, GroupFigures
from qo.limits.on_store.waiters import Waiter
from qo.values import Grant, Ticket

log = logging.getLogger("qo.limiter")


class State(Enum):
    ASKED = auto()
    """The store has not answered yet."""
    WAITING = auto()
    """The store keeps a ticket in the line of a full group."""
    GRANTED = auto()
    """The caller holds a lease on its slots, which the background thread renews."""
    LOST = auto()
    """The lease has ended before the caller's block has."""
    REFUSED = auto()
    """There was no slot for a caller that does not wait, or asking failed."""
    GIVEN_UP = auto()
    """The caller has stopped waiting."""
    GIVEN_BACK = auto()
    """The caller's block has ended."""


class LeaseOnStore:
    """Slots of the groups that were asked for, renewed as long as the block runs."""

    __slots__ = ("_block", "holder", "lost", "slots", "token")

    def __init__(self, holder: str, token: str, slots: dict[str, int]) -> None:
        self.holder = holder
        self.token = token
        self.slots = slots
        self.lost = False
        self._block: TaskBlock | None = None

    def cancel_when_lost(self, block: TaskBlock) -> None:
        self._block = block
        if self.lost:
            block.cancel_soon()

    def end_block(self) -> bool:
        """True: the block was cancelled because the lease was lost, and for no other reason."""
        return self._block is not None and self._block.end()

    def lose(self) -> None:
        self.lost = True
        log.warning("the lease %s on %s is lost: somebody else may hold its slots by now", self.token, self.slots)
        if self._block is not None:
            self._block.cancel_soon()

    def __repr__(self) -> str:
        return f"<lease {self.token} of slots {self.slots}>"


class TaskBlock:
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
        self._has_ended = True
        return self._was_cancelled and self._task.uncancel() == 0


class Request:
    """What a caller asks for, and what became of it. Only `Requests` changes it."""

    __slots__ = ("blocked_by", "blocked_since", "error", "lease", "state", "ticket", "waiter")

    def __init__(self, ticket: Ticket, waiter: Waiter) -> None:
        self.ticket = ticket
        self.waiter = waiter
        self.state = State.ASKED
        self.lease: LeaseOnStore | None = None
        self.error: Exception | None = None
        self.blocked_by: str | None = None
        """The group that was full, as far as it has been looked up."""
        self.blocked_since = 0.0

    @property
    def holder(self) -> str:
        return self.ticket.holder

    @property
    def is_open(self) -> bool:
        """Whether it may still be granted."""
        return self.state is State.ASKED or self.state is State.WAITING


class Requests:
    """Every request of a limiter from its beginning to its end. Methods may be called from any thread."""

    def __init__(self, *, lease_ms: int, wait_ms: int) -> None:
        self.name = f"limiter:{new_id()}"
        """The store knows the callers of this limiter as workers of this name."""
        self._lease_ms = lease_ms
        self._wait_ms = wait_ms
        self._numbers = count()
        self._by_holder: dict[str, Request] = {}
        # Reentrant, because garbage collection may end a block in a thread that has the lock.
        self._lock = threading.RLock()
        self._blocked: Counter[str] = Counter()
        self._waits_ended = 0
        self._waited_seconds = 0.0
        self._longest_seconds = 0.0

    def __bool__(self) -> bool:
        return bool(self._by_holder)

    def get(self, holder: str) -> Request | None:
        return self._by_holder.get(holder)

    def open(self) -> list[Request]:
        with self._lock:
            return [request for request in self._by_holder.values() if request.is_open]

    def leases(self) -> list[LeaseOnStore]:
        """Those that are held and not lost."""
        with self._lock:
            granted = (each for each in self._by_holder.values() if each.state is State.GRANTED)
            return [request.lease for request in granted if request.lease is not None]

    # --- the life of a request --------------------------------------------------------------------------------

    def begin(self, groups: tuple[str, ...], waiter: Waiter, *, priority: int, waits: bool) -> Request:
        ticket = Ticket(
            holder=f"{self.name}:{next(self._numbers)}",
            groups=groups,
            lease_ms=self._lease_ms,
            wait_ms=self._wait_ms if waits else 0,
            priority=priority,
            worker=self.name,
        )
        request = Request(ticket, waiter)
        with self._lock:
            self._by_holder[ticket.holder] = request
        return request

    def answer(self, request: Request, grant: Grant) -> bool:
        """Apply an answer of the store, and wake the caller if that decides the request.

        False: nobody uses what the answer gives, be it slots or a place in line. Give it back to the store.
        """
        with self._lock:
            if request.state is State.GRANTED:
                assert request.lease is not None
                return grant.token is None or grant.token == request.lease.token
            if not request.is_open:
                return False
            if grant.token is not None:
                request.lease = LeaseOnStore(grant.holder, grant.token, grant.slots)
                request.state = State.GRANTED
                self._end_wait(request)
            elif request.ticket.wait_ms:
                request.state = State.WAITING
                return True
            else:
                self._end(request, State.REFUSED)
        if request.waiter.wake():
            return True
        with self._lock:
            self._end(request, State.GIVEN_BACK)
        return False

    def refuse(self, request: Request, error: Exception) -> bool:
        """False: it was decided before."""
        with self._lock:
            if not request.is_open:
                return False
            request.error = error
            self._end(request, State.REFUSED)
        request.waiter.wake()
        return True

    def give_up(self, request: Request) -> bool:
        """False: it was decided before."""
        with self._lock:
            if not request.is_open:
                return False
            self._end(request, State.GIVEN_UP)
            return True

    def give_back(self, lease: LeaseOnStore) -> bool:
        """False: it was given back before, or in the process from which this one was forked."""
        with self._lock:
            request = self._by_holder.get(lease.holder)
            if request is None or request.lease is not lease:
                return False
            self._end(request, State.GIVEN_BACK)
            return True

    def lose(self, holder: str, token: str) -> None:
        with self._lock:
            request = self._by_holder.get(holder)
            if request is None or request.state is not State.GRANTED:
                return
            lease = request.lease
            if lease is None or lease.token != token:
                return
            request.state = State.LOST
        lease.lose()

    def _end(self, request: Request, state: State) -> None:
        if request.is_open:
            self._end_wait(request)
        request.state = state
        self._by_holder.pop(request.holder, None)

    # --- counts -----------------------------------------------------------------------------------------------

    def count_blocked(self, request: Request, group: str) -> None:
        """Count a request once, for the group that was full. It may have been decided since the store answered."""
        with self._lock:
            if request.blocked_by is not None:
                return
            request.blocked_by, request.blocked_since = group, time.monotonic()
            self._blocked[group] += 1
            if not request.is_open:
                self._end_wait(request)

    def _end_wait(self, request: Request) -> None:
        if request.blocked_by is not None:
            seconds = time.monotonic() - request.blocked_since
            self._waits_ended += 1
            self._waited_seconds += seconds
            self._longest_seconds = max(self._longest_seconds, seconds)

    def figures(self, limits: Mapping[str, int | None]) -> Figures:
        with self._lock:
            now = time.monotonic()
            requests = tuple(self._by_holder.values())
            in_flight = Counter(group for each in requests if not each.is_open for group in each.ticket.groups)
            waiting = [each for each in requests if each.is_open and each.blocked_by is not None]
            waiting_for = Counter(each.blocked_by for each in waiting)
            return Figures(
                groups=tuple(
                    GroupFigures(
                        group=name,
                        limit=limits.get(name),
                        in_flight=in_flight[name],
                        waiting=waiting_for[name],
                        blocked=self._blocked[name],
                    )
                    for name in dict.fromkeys([*limits, *in_flight, *self._blocked])
                ),
                waits_ended=self._waits_ended,
                waited_seconds=self._waited_seconds,
                longest_wait_seconds=max([self._longest_seconds, *(now - each.blocked_since for each in waiting)]),
            )
