"""The thread behind a limiter on a store: it stands in line for callers, keeps their leases, and tells them.

All calls to the store come from its event loop, wherever the callers are: those made while one is in flight go
together, and a caller that blocks its own loop keeps its slots.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any

from qo.errors import QoError, StoreUnavailable
from qo.event import GRANTED, LEASE_LOST
from qo.runtime.callers import milliseconds
from qo.runtime.gathering import Gathering
from qo.runtime.ids import new_id
from qo.runtime.queue import Queue
from qo.runtime.trouble import Trouble
from qo.store.values import Grant, GroupStatus, Renewal, Ticket

log = logging.getLogger("qo.limiter")

BEATS_PER_LIFE = 3
PAUSE_SECONDS = 0.005
"""between looks at a feed that tells of others, so that a busy one does not keep the thread busy too"""
LOOK_AGAIN_SECONDS = 0.05
TRY_AGAIN_SECONDS = 1.0
WAIT_SECONDS = 10.0
HEARD = (GRANTED, LEASE_LOST)

Holder = tuple[str, str | None]
Blocked = Callable[[str, str], None]
"""told a holder and the group that is full"""


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
    """A caller at the door. Whether it was let in or went away is decided by who is first at `outcome`."""

    __slots__ = ("is_told", "outcome", "ticket", "waits")

    def __init__(self, groups: tuple[str, ...], *, priority: int, lease_ms: int, wait_ms: int, waits: bool) -> None:
        self.ticket = Ticket(
            holder=f"limiter:{new_id()}",
            groups=groups,
            lease_ms=lease_ms,
            wait_ms=wait_ms if waits else 0,
            priority=priority,
        )
        self.waits = waits
        self.is_told = False
        self.outcome: Future[LeaseOnStore | None] = Future()
        """None: no slot, for one who would not wait"""

    def answer(self, lease: LeaseOnStore | None) -> bool:
        """False: the caller has gone."""
        if not self._is_awaited():
            return False
        self.outcome.set_result(lease)
        return True

    def fail(self, error: Exception) -> None:
        if self._is_awaited():
            self.outcome.set_exception(error)

    def _is_awaited(self) -> bool:
        return not self.outcome.done() and self.outcome.set_running_or_notify_cancel()


class Keeper:
    """`begin`, `withdraw`, `leave` and `run` may be called from any thread, everything else happens in its own."""

    def __init__(self, queue: Queue, *, prepare: Callable[[], Awaitable[None]], blocked: Blocked) -> None:
        """`prepare` is awaited before anybody is let in; `blocked` is told of everybody who has to wait, and why."""
        self._prepare = prepare
        self._blocked = blocked
        self._store = queue.store
        self.lease_ms = milliseconds(queue.settings.concurrency.default_lease_duration_secs)
        self.wait_ms = milliseconds(queue.settings.limiter.waiter_alive_secs)
        self._beat_seconds = min(self.lease_ms, self.wait_ms) / BEATS_PER_LIFE / 1000
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._held: dict[str, LeaseOnStore] = {}
        self._in_line: dict[str, Request] = {}
        self._statuses: dict[str, tuple[float, GroupStatus]] = {}
        self._now = time.monotonic
        self._tasks: set[asyncio.Task[None]] = set()

    # --- from any thread --------------------------------------------------------------------------------------

    def begin(self, request: Request) -> None:
        self._soon(self._enter(request))

    def withdraw(self, request: Request) -> None:
        """The caller has gone. What it was given in this very moment goes back with its place in line."""
        self._soon(self._release(request.ticket.holder, None))

    def leave(self, lease: LeaseOnStore) -> Future[None]:
        return self.run(self._leave(lease))

    def run(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(work, self._running_loop())

    def close(self) -> None:
        """End the thread. What is still held runs out with its lease."""
        with self._lock:
            loop, thread, self._loop = self._loop, self._thread, None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(self._closing.set)
            thread.join()

    def _soon(self, work: Coroutine[Any, Any, None]) -> None:
        self._running_loop().call_soon_threadsafe(self._start, work)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                ready: Future[asyncio.AbstractEventLoop] = Future()
                serve = self._serve(ready)
                self._thread = threading.Thread(target=lambda: asyncio.run(serve), name="qo-limiter", daemon=True)
                self._thread.start()
                self._loop = ready.result()
            return self._loop

    # --- in the thread ----------------------------------------------------------------------------------------

    async def _serve(self, ready: Future[asyncio.AbstractEventLoop]) -> None:
        self._closing = asyncio.Event()
        self._busy = asyncio.Event()  # while anybody holds or waits
        self._listens = asyncio.Event()
        self._preparing = asyncio.Lock()
        self._acquiring: Gathering[Ticket, Grant] = Gathering(lambda tickets: self._store.acquire(tickets))
        self._releasing: Gathering[Holder, bool] = Gathering(lambda holders: self._store.release(holders))
        ready.set_result(asyncio.get_running_loop())
        background = [asyncio.create_task(self._beat_on()), asyncio.create_task(self._listen_on())]
        await self._closing.wait()
        for task in (*background, *self._tasks):
            task.cancel()
        await asyncio.gather(*background, *self._tasks, return_exceptions=True)
        for request in self._in_line.values():
            request.fail(StoreUnavailable("The limiter was closed while this caller waited; make another one."))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- in and out -------------------------------------------------------------------------------------------

    async def _enter(self, request: Request) -> None:
        self._in_line[request.ticket.holder] = request
        self._busy.set()
        try:
            async with self._preparing:
                await self._prepare()
            if await self._ask(request):
                return
            self._blocked(request.ticket.holder, await self._full_group(request.ticket.groups))
            # Whoever was handed a slot before this thread listened finds it by asking once more.
            await self._listens.wait()
            await self._ask(request)
        except Exception as error:
            # Whatever it was, it is the caller's to hear of, and nothing of it may stay behind.
            request.fail(error)
            await self._release(request.ticket.holder, None)

    async def _ask(self, request: Request) -> bool:
        """Whether it has its answer. If not, it stands in line, and lives on there for a while."""
        if request.outcome.cancelled():
            return True
        grant = await self._acquiring.send(request.ticket)
        if request.outcome.cancelled():
            # It went away meanwhile, and what it left may have reached the store before this did.
            self._start(self._release(request.ticket.holder, None))
            return True
        if grant.token is not None:
            self._take(request, grant)
        elif not request.waits:
            self._in_line.pop(request.ticket.holder, None)
            request.answer(None)
        return grant.token is not None or not request.waits

    def _take(self, request: Request, grant: Grant) -> None:
        if self._in_line.pop(grant.holder, None) is None:
            return  # it was answered before, by another who asked
        assert grant.token is not None
        lease = LeaseOnStore(request.ticket, grant.token, grant.slots)
        self._held[lease.token] = lease
        if not request.answer(lease):
            self._start(self._leave(lease))
        elif request.is_told:
            # Handed over for a moment only; the first renewal makes it a full lease.
            self._start(self._renew([lease]))

    async def _leave(self, lease: LeaseOnStore) -> None:
        self._held.pop(lease.token, None)
        await self._release(lease.holder, lease.token)

    async def _release(self, holder: str, token: str | None) -> None:
        """As often as it takes: until then, others wait for slots that nobody uses."""
        self._in_line.pop(holder, None)
        trouble = Trouble("a slot cannot be given back for now", log)
        while True:
            try:
                await self._releasing.send((holder, token))
            except StoreUnavailable as error:
                trouble.tell(error)
                await asyncio.sleep(TRY_AGAIN_SECONDS)
            else:
                return

    # --- looking ----------------------------------------------------------------------------------------------

    async def _full_group(self, groups: tuple[str, ...]) -> str:
        """The first that is full, by a look that may be a moment old: many who come at once are told the same."""
        statuses = [await self.status(group, at_most_seconds_old=LOOK_AGAIN_SECONDS) for group in groups]
        return next((status.group for status in statuses if is_full(status)), groups[0])

    async def status(self, group: str, *, at_most_seconds_old: float = 0) -> GroupStatus:
        looked_at, status = self._statuses.get(group, (-math.inf, None))
        if status is None or self._now() - looked_at > at_most_seconds_old:
            status = await self._store.group(group)
            self._statuses[group] = self._now(), status
        return status

    # --- keeping ----------------------------------------------------------------------------------------------

    async def _beat_on(self) -> None:
        trouble = Trouble("leases of a limiter cannot be renewed for now", log)
        pause_seconds = self._beat_seconds
        while True:
            await asyncio.sleep(pause_seconds)
            pause_seconds = self._beat_seconds
            try:
                await self._renew(tuple(self._held.values()))
                # Asking keeps a place in line, and finds a slot even if nobody was heard to tell of it.
                await asyncio.gather(*(self._ask(request) for request in tuple(self._in_line.values())))
                trouble.over()
            except QoError as error:
                trouble.tell(error)
                pause_seconds = min(TRY_AGAIN_SECONDS, self._beat_seconds / 2)
            except Exception:
                # Whatever it was, without renewals everybody would lose their slots.
                log.exception("leases of a limiter could not be renewed, trying again")

    async def _renew(self, leases: Sequence[LeaseOnStore]) -> None:
        if not leases:
            return
        renewals = [Renewal(holder=lease.holder, token=lease.token, lease_ms=self.lease_ms) for lease in leases]
        for lease, held in zip(leases, await self._store.renew(renewals), strict=True):
            if held.lost:
                self._lose(lease.token)

    def _lose(self, token: str) -> None:
        lease = self._held.pop(token, None)
        if lease is not None:
            lease.lose()

    # --- hearing ----------------------------------------------------------------------------------------------

    async def _listen_on(self) -> None:
        trouble = Trouble("slots that become free cannot be heard of for now", log)
        while True:
            await self._busy.wait()
            try:
                cursor = await self._store.newest_event()
                self._listens.set()
                while self._held or self._in_line:
                    cursor = await self._listen(cursor)
                    trouble.over()
            except QoError as error:
                trouble.tell(error)
                await asyncio.sleep(TRY_AGAIN_SECONDS)
            except Exception:
                # Whatever it was, callers must go on being told.
                log.exception("slots that become free could not be heard of, trying again")
                await asyncio.sleep(TRY_AGAIN_SECONDS)
            finally:
                self._listens.clear()
            if not (self._held or self._in_line):
                self._busy.clear()

    async def _listen(self, cursor: int) -> int:
        await self._store.wait_for_events(cursor, kinds=HEARD, timeout_seconds=WAIT_SECONDS)
        feed = await self._store.events(cursor, kinds=HEARD)
        heard = [self._heed(event.kind, event.subject, event.detail.get("token")) for event in feed.events]
        if not any(heard):
            await asyncio.sleep(PAUSE_SECONDS)
        return feed.cursor

    def _heed(self, kind: str, holder: str, token: str | None) -> bool:
        """Whether it was for anybody here."""
        request = self._in_line.get(holder)
        if kind == GRANTED and request is not None:
            request.is_told = True
            self._start(self._fetch(request))
            return True
        if kind == LEASE_LOST and token in self._held:
            self._lose(token)
            return True
        return False

    async def _fetch(self, request: Request) -> None:
        try:
            await self._ask(request)
        except QoError as error:
            log.debug("a slot that was handed over could not be fetched, the next beat tries again: %s", error)


def is_full(status: GroupStatus) -> bool:
    has_slot = status.limit is None or status.active < status.limit
    return not has_slot or status.paused or status.closed_until is not None
