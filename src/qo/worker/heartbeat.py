"""Keeps the leases of a worker alive, and tells handlers that theirs is lost or to be cancelled.

It runs in a thread with an event loop of its own, so that a handler which blocks the worker's loop keeps its lease.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import aclosing

from qo.errors import QoError
from qo.event import CANCEL_WANTED, LEASE_LOST, Feed
from qo.runtime.execution import Execution, Interruption
from qo.runtime.membership import Membership
from qo.runtime.portions import RENEW_AT_ONCE, Portion
from qo.runtime.shared_slots import SharedSlots
from qo.runtime.timing import within
from qo.runtime.trouble import Trouble
from qo.store.base import Store
from qo.store.values import Renewal
from qo.threads import in_thread

log = logging.getLogger("qo.worker")

BEATS_PER_LIFE = 3
TRY_AGAIN_SECONDS = 1.0
STOP_SECONDS = 2.0
"""How long a heartbeat that is stopped waits for its call under way."""


class Heartbeat:
    """`hold` and `let_go` are called by the worker's event loop, everything else happens in the thread."""

    def __init__(
        self,
        store: Store,
        membership: Membership,
        *,
        lease_ms: int,
        renewals_per_lease: int,
        cursor: int,
        shared: SharedSlots | None = None,
    ) -> None:
        """`cursor` is that of the feed before the worker's first claim, so that no cancel can come before it."""
        self._store = store
        self._membership = membership
        self._lease_ms = lease_ms
        self._cursor = cursor
        self._shared = shared
        self._every_seconds = min(lease_ms / renewals_per_lease, membership.lifetime_ms / BEATS_PER_LIFE) / 1000
        self._worker_loop = asyncio.get_running_loop()
        self._held: dict[str, Execution] = {}
        self._not_renewed = Trouble("leases cannot be renewed for now")
        self._not_heard = Trouble("cancellations cannot be heard for now")
        self._lock = threading.Lock()
        self._beating = asyncio.new_event_loop()
        self._stopped = asyncio.Event()
        self._call_under_way = asyncio.Lock()
        self._thread = threading.Thread(target=self._run, name="qo-heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    async def stop(self) -> None:
        self._beating.call_soon_threadsafe(self._stopped.set)
        await in_thread(self._thread.join)

    def hold(self, execution: Execution) -> None:
        with self._lock:
            self._held[execution.lease.token] = execution

    def let_go(self, token: str) -> None:
        with self._lock:
            self._held.pop(token, None)

    # --- in the thread ----------------------------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.set_event_loop(self._beating)
        try:
            self._beating.run_until_complete(self._beat_and_listen())
        finally:
            # A store may have connections of this loop, which end with it.
            self._beating.run_until_complete(self._beating.shutdown_asyncgens())
            self._beating.close()

    async def _beat_and_listen(self) -> None:
        tasks = [asyncio.create_task(self._beat_on()), asyncio.create_task(self._listen_on())]
        if self._shared is not None:
            tasks.append(asyncio.create_task(self._shared.keep(self._lost_elsewhere)))
        await self._stopped.wait()
        # A registration that is on its way would bring the worker back after it has said goodbye.
        await within(STOP_SECONDS, self._call_under_way.acquire())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _beat_on(self) -> None:
        pause_seconds = self._every_seconds
        while True:
            await asyncio.sleep(pause_seconds)
            # After a failure sooner: only a renewal tells a store that comes back that this holder lives.
            pause_seconds = min(TRY_AGAIN_SECONDS, self._every_seconds / 2)
            try:
                async with self._call_under_way:
                    await self.beat()
                    if self._membership.is_lost:
                        # Asleep or cut off for long, the worker may have been forgotten, or its name given to another.
                        await self._membership.join_again()
            except QoError as error:
                self._not_renewed.tell(error)
            except Exception:
                # Whatever it was, without renewals every job here would be given away.
                log.exception("leases could not be renewed, trying again")
            else:
                self._not_renewed.over()
                pause_seconds = self._every_seconds

    async def beat(self) -> None:
        with self._lock:
            held = dict(self._held)
        renewals = [
            Renewal(holder=execution.lease.job_id, token=token, lease_ms=self._lease_ms)
            for token, execution in held.items()
        ]
        first, rest = Portion[Renewal](RENEW_AT_ONCE).cut(renewals)
        while True:  # without any lease, the worker itself lives on by this
            for answer in await self._membership.renew(first):
                if answer.lost:
                    self._interrupt(held[answer.token], Interruption.LOST)
                elif answer.cancel_wanted:
                    self._interrupt(held[answer.token], Interruption.CANCELLED)
            if not rest:
                return
            first, rest = Portion[Renewal](RENEW_AT_ONCE).cut(rest)

    async def _listen_on(self) -> None:
        while True:
            try:
                name = self._membership.name
                async with aclosing(self._store.signals(name, self._cursor)) as feeds:
                    async for feed in feeds:
                        self._not_heard.over()
                        await self._hear(feed)
                        if self._membership.name != name:
                            break  # signals about what it claims from now on are sent to its new name
            except QoError as error:
                self._not_heard.tell(error)
                await asyncio.sleep(TRY_AGAIN_SECONDS)
            except Exception:
                # Whatever it was, handlers must go on being told.
                log.exception("cancellations could not be heard, trying again")
                await asyncio.sleep(TRY_AGAIN_SECONDS)

    async def _hear(self, feed: Feed) -> None:
        if feed.reset:
            await self.beat()  # what was told meanwhile is gone; asking each lease tells it too
        with self._lock:
            held = {execution.lease.job_id: execution for execution in self._held.values()}
        for event in feed.events:
            execution = held.get(event.subject)
            if execution is not None:
                self._heed(execution, event.kind, event.detail.get("token"))
        self._cursor = feed.cursor  # only now: what was not heeded is heard again

    def _heed(self, execution: Execution, kind: str, token: str | None) -> None:
        if kind == CANCEL_WANTED:
            self._interrupt(execution, Interruption.CANCELLED)
        elif kind == LEASE_LOST and token == execution.lease.token:  # an earlier lease on it is no longer ours to lose
            self._interrupt(execution, Interruption.LOST)

    def _lost_elsewhere(self, token: str) -> None:
        """A slot that is kept in a bucket may be somebody else's: the job goes back in line, for it has its lease."""
        with self._lock:
            execution = self._held.get(token)
        if execution is not None:
            self._interrupt(execution, Interruption.STOPPED)

    def _interrupt(self, execution: Execution, reason: Interruption) -> None:
        # The flags first: a function in a thread sees them even while the worker's loop is blocked.
        execution.flag(reason)
        try:
            self._worker_loop.call_soon_threadsafe(execution.interrupt, reason)
        except RuntimeError:
            pass  # the worker's loop has been closed, and its executions with it
