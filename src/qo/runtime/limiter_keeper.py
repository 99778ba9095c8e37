"""The thread behind a limiter on a store: it stands in line for callers, keeps their leases, and tells them.

It asks for threads, and gives back for them; tasks do both in their own event loops. Leases and places in line are
kept alive here for all of them, so a caller that blocks its own loop keeps its slots.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import aclosing
from itertools import count
from typing import Any

from qo.errors import QoError, StoreUnavailable
from qo.event import GRANTED, LEASE_LOST, Feed
from qo.ids import new_id
from qo.runtime.callers import milliseconds
from qo.runtime.gathering import in_portions
from qo.runtime.limiter_callers import (
    MOST_PER_CALL,
    Departure,
    Gatherer,
    LeaseOnStore,
    Mailbox,
    Request,
    Waiter,
)
from qo.runtime.portions import RENEW_AT_ONCE, Portion, ticket_count
from qo.runtime.queue import Queue
from qo.runtime.trouble import Trouble
from qo.store.base import HANDED_OVER_LEASE_MS
from qo.store.values import Grant, GroupStatus, Held, Renewal, Ticket

log = logging.getLogger("qo.limiter")

BEATS_PER_LIFE = 3
LOOK_AGAIN_SECONDS = 0.05
TRY_AGAIN_SECONDS = 1.0
CLOSE_SECONDS = 2.0
"""How long a limiter that is closed tries to give back what callers have left."""

Blocked = Callable[[Request, str], None]
"""told who has to wait, and for which group"""


class Keeper:
    """What the first part has may be called from any thread, everything else happens in its own."""

    def __init__(self, queue: Queue, *, prepare: Callable[[], Awaitable[None]], blocked: Blocked) -> None:
        """`prepare` is awaited before anybody is let in; `blocked` is told of everybody who has to wait, and why."""
        self._prepare = prepare
        self._blocked = blocked
        self._store = queue.store
        self._lease_ms = milliseconds(queue.settings.concurrency.default_lease_duration_secs)
        self._wait_ms = milliseconds(queue.settings.limiter.waiter_alive_secs)
        # A lease that was handed over is a short one until the first beat.
        self._beat_seconds = min(self._lease_ms, self._wait_ms, HANDED_OVER_LEASE_MS) / BEATS_PER_LIFE / 1000
        self._lock = threading.Lock()
        self._mailbox: Mailbox | None = None
        self._thread: threading.Thread | None = None
        self._name = f"limiter:{new_id()}"
        self._numbers = count()
        # Both by holder, and changed by every thread: who is let in is held before it is out of the line.
        self._held: dict[str, LeaseOnStore] = {}
        self._in_line: dict[str, Request] = {}
        self._statuses: dict[str, tuple[float, GroupStatus]] = {}
        self._now = time.monotonic
        self._tasks: set[asyncio.Task[None]] = set()

    # --- from any thread --------------------------------------------------------------------------------------

    def begin(self, groups: tuple[str, ...], waiter: Waiter, *, priority: int, waits: bool) -> Request:
        """A caller has come. From now on it is let in if the store is heard to give it a slot."""
        if self._mailbox is None:
            self._started()
        ticket = Ticket(
            holder=f"{self._name}:{next(self._numbers)}",
            groups=groups,
            lease_ms=self._lease_ms,
            wait_ms=self._wait_ms if waits else 0,
            priority=priority,
            worker=self._name,
        )
        request = self._in_line[ticket.holder] = Request(ticket, waiter)
        return request

    def ask_for(self, request: Request) -> None:
        self._post(lambda: self._ask_soon(request))

    def take(self, request: Request, grant: Grant) -> bool:
        """Whether this is what lets the caller in: it may have been told in another way, or may have gone."""
        assert grant.token is not None
        lease = LeaseOnStore(request.ticket, grant.token, grant.slots)
        if self._held.setdefault(grant.holder, lease) is not lease:
            return False
        if self._in_line.pop(grant.holder, None) is not None and request.answer(lease):
            if not self._busy.is_set():
                self._post_if_open(self._busy.set)
            return True
        self.leave(lease)
        return False

    def refuse(self, request: Request, error: Exception | None = None) -> bool:
        """Whether it was still to be answered."""
        is_open = self._in_line.pop(request.ticket.holder, None) is not None
        if is_open and request.answer(None, error):
            request.tell()
        return is_open

    def has_to_wait(self, request: Request) -> bool:
        """False: the limiter has been closed. The request is refused, and its place in line is to be given back."""
        request.stands_in_line = True
        is_open = self._post_if_open(lambda: self._wait_with([request]))
        if not is_open:
            self.refuse(request, _closed())
        return is_open

    def knows(self, lease: LeaseOnStore) -> bool:
        """Whether one of its callers got it."""
        return lease.holder.startswith(f"{self._name}:")

    def let_go(self, holder: str) -> None:
        """The caller has gone, or its block has ended."""
        self._in_line.pop(holder, None)
        self._held.pop(holder, None)

    def leave(self, lease: LeaseOnStore, waiter: Waiter | None = None) -> None:
        """Give it back; `waiter` is told when that has been done."""
        self.give_back(lease.holder, lease.token, waiter)

    def give_back(self, holder: str, token: str | None, waiter: Waiter | None = None) -> None:
        """Without a token, whatever the holder has, and its place in line."""
        self._post(lambda: self._let_go(Departure(holder, token, waiter)))

    def give_back_unless_held(self, holder: str) -> None:
        """After an answer that nobody waited for: its caller has gone, or was let in by another answer."""
        self._post(lambda: None if holder in self._held else self._let_go(Departure(holder, None)))

    def run(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(work, (self._mailbox or self._started()).loop)

    def close(self) -> None:
        """End the thread. What is still held runs out with its lease; callers that wait are refused."""
        with self._lock:
            mailbox, self._mailbox = self._mailbox, None
            if mailbox is not None and self._thread is not None:
                mailbox.post(self._closing.set)
                self._thread.join()

    def _post(self, call: Callable[[], None]) -> None:
        if threading.current_thread() is self._thread:
            call()  # it may be about to end, and must not wait for another one to begin
        else:
            (self._mailbox or self._started()).post(call)

    def _post_if_open(self, call: Callable[[], None]) -> bool:
        """Not for what has to be done also when the limiter has been closed: it would be opened again."""
        mailbox = self._mailbox
        try:
            if mailbox is not None:
                mailbox.post(call)
        except RuntimeError:
            return False  # its loop has been closed in this very moment
        return mailbox is not None

    def _started(self) -> Mailbox:
        with self._lock:
            if self._mailbox is None:
                ready: Future[Mailbox] = Future()
                serve = self._serve(ready)
                self._thread = threading.Thread(target=lambda: asyncio.run(serve), name="qo-limiter", daemon=True)
                self._thread.start()
                self._mailbox = ready.result()
            return self._mailbox

    # --- in the thread ----------------------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Returns when it has been done, also by another caller."""
        async with self._preparing:
            await self._prepare()

    async def _serve(self, ready: Future[Mailbox]) -> None:
        self._closing = asyncio.Event()
        self._preparing = asyncio.Lock()
        self._busy = asyncio.Event()  # while anybody holds or waits
        self._asking: Gatherer[Request] = Gatherer(
            self._ask, Portion(MOST_PER_CALL, counts=lambda request: ticket_count(request.ticket))
        )
        self._leaving: Gatherer[Departure] = Gatherer(self._release)
        self._trouble_asking = Trouble("slots cannot be asked for now", log)
        self._trouble_leaving = Trouble("a slot cannot be given back for now", log)
        mailbox = Mailbox(asyncio.get_running_loop())
        for work in (self._asking.run(), self._leaving.run(), self._beat_on(), self._listen_on()):
            self._start(work)
        ready.set_result(mailbox)
        await self._closing.wait()
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        mailbox.deliver()
        # Also those who went away while this thread asked for them: nobody hears what the store answers.
        for request in (*self._asking.in_flight, *tuple(self._in_line.values())):
            self.refuse(request, _closed())
            if request.ticket.holder not in self._held:
                self._leaving.add(Departure(request.ticket.holder, None))
        await self._release_the_last([*self._leaving.in_flight, *self._leaving.gathered])

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- in ---------------------------------------------------------------------------------------------------

    def _ask_soon(self, request: Request) -> None:
        self._busy.set()
        self._asking.add(request)

    async def _ask(self, requests: list[Request]) -> None:
        """Who gets no slot stands in line, and lives on there for a while."""
        # Never for one who has been answered: it may be gone, and nobody would give back what it got.
        asking = [each for each in dict.fromkeys(requests) if each.ticket.holder in self._in_line]
        if not asking:
            return
        try:
            await self.prepare()
            grants = await self._store.acquire([request.ticket for request in asking])
        except Exception as error:
            # Whatever it was, it is the caller's to hear of.
            self._ask_failed(asking, error)
            return
        self._trouble_asking.over()
        for request, grant in zip(asking, grants, strict=True):
            if grant.token is not None:
                self._let_in(request, grant)
            elif grant.holder not in self._in_line and grant.holder not in self._held:
                # It went away meanwhile, and that may have reached the store before this did.
                self._leaving.add(Departure(grant.holder, None))
            elif not request.waits:
                self.refuse(request)
        have_to_wait = [each for each in asking if each.ticket.holder in self._in_line and not each.stands_in_line]
        if have_to_wait:
            for request in have_to_wait:
                request.stands_in_line = True
            self._wait_with(have_to_wait)

    def _ask_failed(self, requests: list[Request], error: Exception) -> None:
        for request in requests:
            holder = request.ticket.holder
            if holder not in self._in_line:
                # If it went away meanwhile, the store may have taken its release first and then this request.
                self.give_back_unless_held(holder)
            elif request.stands_in_line and isinstance(error, QoError):
                self._trouble_asking.tell(error)
                asyncio.get_running_loop().call_later(TRY_AGAIN_SECONDS, self._asking.add, request)
            elif self.refuse(request, error):
                self._leaving.add(Departure(holder, None))

    def _let_in(self, request: Request, grant: Grant) -> None:
        if self.take(request, grant) and not request.tell():
            self._leaving.add(Departure(grant.holder, grant.token))

    def _wait_with(self, requests: list[Request]) -> None:
        self._busy.set()
        self._start(self._tell_blocked(requests))

    async def _tell_blocked(self, requests: list[Request]) -> None:
        try:
            for request in requests:
                self._blocked(request, await self._full_group(request.ticket.groups))
        except QoError as error:
            log.debug("what callers wait for could not be looked up: %s", error)

    # --- out --------------------------------------------------------------------------------------------------

    def _let_go(self, departure: Departure) -> None:
        self.let_go(departure.holder)
        self._leaving.add(departure)

    async def _release(self, departures: list[Departure]) -> None:
        """As often as it takes: until then, others wait for slots that nobody uses."""
        while True:
            try:
                await self._store.release([(departure.holder, departure.token) for departure in departures])
            except StoreUnavailable as error:
                self._trouble_leaving.tell(error)
                await asyncio.sleep(TRY_AGAIN_SECONDS)
            except Exception:
                # Whatever it was, those behind want to leave too; what is not given back runs out.
                log.exception("slots could not be given back, they are free when their leases run out")
                break
            else:
                self._trouble_leaving.over()
                break
        for departure in departures:
            if departure.waiter is not None:
                departure.waiter.tell()

    async def _release_the_last(self, departures: list[Departure]) -> None:
        """Once, because the caller of `close` waits for this."""
        try:
            if departures:
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._store.release([(each.holder, each.token) for each in departures])
        except Exception as error:  # whatever it was, blocks that end wait to be told
            log.warning("slots could not be given back, they are free when their leases run out: %s", error)
        for departure in departures:
            if departure.waiter is not None:
                departure.waiter.tell()

    # --- looking ----------------------------------------------------------------------------------------------

    async def _full_group(self, groups: tuple[str, ...]) -> str:
        """The first that is full, by a look that may be a moment old: many who come at once are told the same."""
        statuses = [await self.status(group, at_most_seconds_old=LOOK_AGAIN_SECONDS) for group in groups]
        return next((status.group for status in statuses if not status.has_room), groups[0])

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
            # Asking keeps a place in line, and finds a slot even if nobody was heard to tell of it.
            self._ask_for_all()
            try:
                await self._renew(tuple(self._held.values()))
                trouble.over()
            except QoError as error:
                trouble.tell(error)
                pause_seconds = min(TRY_AGAIN_SECONDS, self._beat_seconds / 2)
            except Exception:
                # Whatever it was, without renewals everybody would lose their slots.
                log.exception("leases of a limiter could not be renewed, trying again")

    def _ask_for_all(self) -> None:
        for request in tuple(self._in_line.values()):
            self._asking.add(request)

    async def _renew(self, leases: Sequence[LeaseOnStore]) -> None:
        if not leases:
            return
        renewals = [Renewal(holder=lease.holder, token=lease.token, lease_ms=self._lease_ms) for lease in leases]
        async with aclosing(in_portions(self._renew_portion, renewals, portion=Portion(RENEW_AT_ONCE))) as portions:
            async for answers in portions:
                for held in answers:
                    if held.lost:
                        self._lose(held.holder, held.token)

    async def _renew_portion(self, renewals: Sequence[Renewal]) -> Sequence[Held]:
        return (await self._store.renew(renewals)).held

    def _lose(self, holder: str, token: str) -> None:
        lease = self._held.get(holder)
        if lease is not None and lease.token == token:
            del self._held[holder]
            lease.lose()

    # --- hearing ----------------------------------------------------------------------------------------------

    async def _listen_on(self) -> None:
        trouble = Trouble("slots that become free cannot be heard of for now", log)
        while True:
            await self._busy.wait()
            try:
                cursor = await self._store.newest_event()
                # Whoever was handed a slot before this thread listened finds it by asking once more.
                self._ask_for_all()
                async with aclosing(self._store.signals(self._name, cursor)) as feeds:
                    async for feed in feeds:
                        trouble.over()
                        self._heed(feed)
                        if not (self._held or self._in_line):
                            break
            except QoError as error:
                trouble.tell(error)
                await asyncio.sleep(TRY_AGAIN_SECONDS)
            except Exception:
                # Whatever it was, callers must go on being told.
                log.exception("slots that become free could not be heard of, trying again")
                await asyncio.sleep(TRY_AGAIN_SECONDS)
            self._busy.clear()
            if self._held or self._in_line:  # only now: whoever comes later finds that it is clear, and sets it
                self._busy.set()

    def _heed(self, feed: Feed) -> None:
        if feed.reset:
            self._ask_for_all()  # what was told meanwhile is gone
        for event in feed.events:
            request = self._in_line.get(event.subject)
            if event.kind == LEASE_LOST:
                self._lose(event.subject, event.detail["token"])
            elif event.kind == GRANTED and request is not None:
                slots = event.detail["slots"]
                self._let_in(request, Grant(holder=event.subject, token=event.detail["token"], slots=slots))


def _closed() -> StoreUnavailable:
    return StoreUnavailable("The limiter was closed while this caller waited; make another one.")
