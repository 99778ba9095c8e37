"""Keeps the leases of a worker alive, and interrupts handlers whose lease is lost or whose job is to be cancelled.

It has a thread and an event loop of its own, so that a handler that blocks the worker's loop keeps its lease.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import aclosing

from qo.event import CANCEL_WANTED, LEASE_LOST, Feed
from qo.loops.background import Background
from qo.loops.portions import RENEW_AT_ONCE, Portion
from qo.loops.repeating import repeat
from qo.loops.system import SYSTEM, System
from qo.loops.timing import within
from qo.loops.trouble import Trouble
from qo.store.contract import Store
from qo.values import Renewal
from qo.worker.execution import Execution, Interruption
from qo.worker.membership import Membership
from qo.worker.shared_slots import SharedSlots

BEATS_PER_LIFE = 3
TRY_AGAIN_SECONDS = 1.0
STOP_SECONDS = 2.0
"""How long a heartbeat that is stopped waits for its call under way."""


class Heartbeat:
    """`start`, `stop`, `hold` and `let_go` are called in the worker's event loop; the rest runs in the background."""

    def __init__(
        self,
        store: Store,
        membership: Membership,
        *,
        lease_ms: int,
        renewals_per_lease: int,
        cursor: int,
        shared: SharedSlots | None = None,
        system: System = SYSTEM,
    ) -> None:
        """`cursor` is the feed's cursor before the worker's first claim, so that no cancellation is missed."""
        self._store = store
        self._membership = membership
        self._lease_ms = lease_ms
        self._cursor = cursor
        self._shared = shared
        self._system = system
        self._every_seconds = min(lease_ms / renewals_per_lease, membership.lifetime_ms / BEATS_PER_LIFE) / 1000
        self._worker_loop = asyncio.get_running_loop()
        self._held: dict[str, Execution] = {}
        self._lock = threading.Lock()
        self._not_heard = Trouble("cancellations cannot be heard for now")
        self._stopped = asyncio.Event()
        self._call_under_way = asyncio.Lock()
        self._background: Background | None = None

    def start(self) -> None:
        self._background = self._system.start_background(self._beat_and_listen, "qo-heartbeat")

    async def stop(self) -> None:
        if self._background is not None:
            self._background.call_soon(self._stopped.set)
            await self._background.ended()

    def hold(self, execution: Execution) -> None:
        with self._lock:
            self._held[execution.lease.token] = execution

    def let_go(self, token: str) -> None:
        with self._lock:
            self._held.pop(token, None)

    # --- in the background ------------------------------------------------------------------------------------

    async def _beat_and_listen(self) -> None:
        tasks = [asyncio.create_task(self._beat_on()), asyncio.create_task(self._listen_on())]
        if self._shared is not None:
            tasks.append(asyncio.create_task(self._shared.keep(self._lost_elsewhere)))
        await self._stopped.wait()
        # A registration that is on its way would bring the worker back after it has left.
        await within(STOP_SECONDS, self._call_under_way.acquire())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _beat_on(self) -> None:
        await repeat(
            self._beat_and_stay_registered,
            pause=lambda: self._every_seconds,
            # Sooner after a failure: only a renewal shows a store that comes back that this holder lives.
            retry_seconds=min(TRY_AGAIN_SECONDS, self._every_seconds / 2),
            trouble=Trouble("leases cannot be renewed for now"),
        )

    async def _beat_and_stay_registered(self) -> None:
        async with self._call_under_way:
            await self.beat()
            if self._membership.is_lost:
                # After a long sleep or cut, the worker may have been forgotten, or its name given to another.
                await self._membership.join_again()

    async def beat(self) -> None:
        with self._lock:
            held = dict(self._held)
        renewals = [
            Renewal(holder=execution.lease.job_id, token=token, lease_ms=self._lease_ms)
            for token, execution in held.items()
        ]
        first, rest = Portion[Renewal](RENEW_AT_ONCE).cut(renewals)
        while True:  # also without any lease: this renews the worker's registration too
            for answer in await self._membership.renew(first):
                if answer.lost:
                    self._interrupt(held[answer.token], Interruption.LOST)
                elif answer.cancel_wanted:
                    self._interrupt(held[answer.token], Interruption.CANCELLED)
            if not rest:
                return
            first, rest = Portion[Renewal](RENEW_AT_ONCE).cut(rest)

    async def _listen_on(self) -> None:
        await repeat(self._listen, pause=lambda: 0.0, retry_seconds=TRY_AGAIN_SECONDS, trouble=self._not_heard)

    async def _listen(self) -> None:
        """Heed signals until the worker has another name: those of its next claims are sent to that name."""
        name = self._membership.name
        async with aclosing(self._store.signals(name, self._cursor)) as feeds:
            async for feed in feeds:
                self._not_heard.over()
                await self._hear(feed)
                if self._membership.name != name:
                    return

    async def _hear(self, feed: Feed) -> None:
        if feed.reset:
            await self.beat()  # signals were lost; the answers to renewals say the same
        with self._lock:
            held = {execution.lease.job_id: execution for execution in self._held.values()}
        for event in feed.events:
            execution = held.get(event.subject)
            if execution is not None:
                self._heed(execution, event.kind, event.detail.get("token"))
        self._cursor = feed.cursor  # only now: after an error these events are read again

    def _heed(self, execution: Execution, kind: str, token: str | None) -> None:
        if kind == CANCEL_WANTED:
            self._interrupt(execution, Interruption.CANCELLED)
        elif kind == LEASE_LOST and token == execution.lease.token:  # not an earlier lease of this job
            self._interrupt(execution, Interruption.LOST)

    def _lost_elsewhere(self, token: str) -> None:
        """A slot in a bucket may have another holder by now. The job still has its lease, so it goes back in line."""
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
            pass  # the worker's loop is closed, so its executions have ended
