"""Semaphores of users and projects: slots taken by name, in the same groups as jobs and with the same limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from types import MappingProxyType

from qo.errors import QoError
from qo.policy.admission import find_tier
from qo.runtime.callers import callers_of, check_holder, milliseconds
from qo.runtime.manager import run_out_since
from qo.runtime.queue import Queue, check_queue
from qo.runtime.timing import to_its_end, within
from qo.settings import BUILT_IN_TIERS
from qo.store.base import HANDED_OVER_LEASE_MS, Store
from qo.store.check_value import check_name, check_seconds
from qo.store.values import Grant, Limit, Renewal, Source, Ticket

TIER_CONCURRENT_USER: Mapping[str, int] = MappingProxyType(
    {name: tier.per_user for name, tier in BUILT_IN_TIERS.items()}
)
TIER_CONCURRENT_PROJECT: Mapping[str, int] = MappingProxyType(
    {name: tier.per_project for name, tier in BUILT_IN_TIERS.items()}
)

ASKS_PER_LIFE = 3
FULL_SHARE = 0.75
"""of its lease: who was given less has not been renewed since the grant"""


def user_semaphore(queue: Queue, user_id: str, tier: str) -> Semaphore:
    """The slots that the tier gives a user, shared with the user's jobs. Raises `UnknownTier`."""
    check_queue(queue)
    return Semaphore(queue, kind="user", owner=user_id, slots=find_tier(tier, queue.settings.tiers).per_user)


def project_semaphore(queue: Queue, project_id: str, tier: str) -> Semaphore:
    """The slots that the tier gives a project, shared with the project's jobs. Raises `UnknownTier`."""
    check_queue(queue)
    return Semaphore(queue, kind="project", owner=project_id, slots=find_tier(tier, queue.settings.tiers).per_project)


class Semaphore:
    """Made by `user_semaphore` and `project_semaphore`.

    A holder is a name of 1 to 100 characters and has at most one slot, whoever asks in its name, in whatever
    process. Its lease lasts an hour (`[concurrency] semaphore_lease_duration_secs`) and only `heartbeat` renews it.
    """

    def __init__(self, queue: Queue, *, kind: str, owner: str, slots: int) -> None:
        check_name(f"{kind}_id", owner)
        self.group = f"{kind}:{owner}"
        self._queue = queue
        self._limit = Limit(group=self.group, slots=slots, source=Source.TIER)
        self._limit_was_set = False
        self._callers = callers_of(f"semaphore:{kind}", owner)
        concurrency = queue.settings.concurrency
        self._lease_ms = milliseconds(concurrency.semaphore_lease_duration_secs)
        # By the lease it is told of, a store judges whether it was away for too long to blame the holders. Told of
        # an hour only, it would end the leases of jobs that could not renew; so it is always told of theirs first.
        self._jobs_lease_ms = milliseconds(concurrency.default_lease_duration_secs)

    @property
    def _store(self) -> Store:
        return self._queue.store_here

    async def acquire(self, holder: str, timeout: float = 0) -> bool:
        """Take a slot: at once, or when it is the holder's turn within `timeout` seconds. False: there was none.

        Who waits stands in the same line as jobs, at priority normal. Who holds a slot already is told True, and
        neither gets a second one nor is renewed. Cancelling it leaves neither a slot nor a place in line.

        The first call sets the tier's limit, as a submit with that tier would; later ones only if it has gone.
        """
        caller = self._caller(holder)
        check_seconds("timeout", timeout)
        if not self._limit_was_set:
            await self._set_limit()
        request = _Request(self, caller)
        try:
            return await request.wait(timeout) if timeout > 0 else await request.ask(wait=False)
        except (Exception, asyncio.CancelledError):
            await to_its_end(request.undo())
            raise

    async def release(self, holder: str) -> bool:
        """Give the holder's slot back. False: it had none, and nothing was changed."""
        caller = self._caller(holder)
        token = await self._token_of(caller)
        if token is None:
            return False
        # By its token: without one, a place in line would go too, in which the same holder may be waiting elsewhere.
        (released,) = await self._store.release([(caller, token)])
        return released

    async def count(self) -> int:
        """How many hold a slot of this user or project, jobs included; also those whose lease has run out, until
        somebody looks (`acquire`, `heartbeat`, `cleanup`, any worker)."""
        return (await self._store.group(self.group)).active

    async def heartbeat(self, holder: str) -> bool:
        """Let the lease last for its full time from now. False: it is lost; stop the work, or acquire again."""
        caller = self._caller(holder)
        await self._store.catch_up()
        token = await self._token_of(caller)
        return token is not None and await self._renew(caller, token)

    async def cleanup(self) -> int:
        """End what has run out, everywhere, and tell how many of this user or project that were, jobs included.

        After the store was away, or nobody looked for long, time passed for no lease, so that its holder can renew it;
        then this is 0, and a later call tells.
        """
        cursor = await self._store.newest_event()
        held = {slot.token for slot in (await self._store.group(self.group)).slots}
        while (await self._store.catch_up()).more:
            pass
        return len(held & await run_out_since(self._store, cursor))

    async def _set_limit(self) -> None:
        """Limit the group to what the tier gives, unless an operator or the configuration says otherwise."""
        self._queue.warn_of_ignored(await self._store.set_limits([self._limit]))
        self._limit_was_set = True

    def _caller(self, holder: str) -> str:
        """The holder as the store knows it: like no other semaphore's, and no caller of a limiter."""
        check_holder(holder)
        return self._callers + holder

    async def _token_of(self, caller: str) -> str | None:
        slots = (await self._store.group(self.group)).slots
        # A job may have been given this very id; but it always has a worker.
        return next((slot.token for slot in slots if slot.holder == caller and slot.worker_id is None), None)

    async def _renew(self, caller: str, token: str) -> bool:
        renewal = Renewal(holder=caller, token=token, lease_ms=self._lease_ms)
        (held,) = (await self._store.renew([renewal])).held
        return not held.lost


class _Request:
    """One call of `acquire`.

    What is granted is at first a short lease, however it came: in the call that asked, handed over to who waited,
    or left behind by a process that died between the grant and the renewal. It is renewed to the full one at once.
    """

    def __init__(self, semaphore: Semaphore, caller: str) -> None:
        self._semaphore = semaphore
        self._store = semaphore._store
        self._caller = caller
        self._lease_ms = semaphore._lease_ms
        self._first_lease_ms = max(1, min(semaphore._jobs_lease_ms, self._lease_ms // 2))
        self._wait_ms = milliseconds(semaphore._queue.settings.limiter.waiter_alive_secs)
        self._taken: str | None = None

    async def wait(self, seconds: float) -> bool:
        clock = asyncio.get_running_loop().time
        deadline = clock() + seconds
        if await self.ask(wait=True):
            return True
        # Often enough to stay in line, and to notice a slot even if its event is not heard. Asking also ends the
        # leases that have run out; there may be no worker to do it.
        again_seconds = min(self._wait_ms / ASKS_PER_LIFE, HANDED_OVER_LEASE_MS / 2) / 1000
        async with self._listening() as told:
            while (left := deadline - clock()) > 0:
                told.clear()
                if await self.ask(wait=True):
                    return True
                await within(min(left, again_seconds), told.wait())
        return await self.ask(wait=False)

    async def ask(self, *, wait: bool) -> bool:
        """Whether the caller has a slot. If not, it stands in line afterwards, or, without `wait`, surely does not."""
        while True:
            grant = await self._ask_once(wait_ms=self._wait_ms if wait else 0)
            if grant.token is None:
                return False
            if not self._is_new(grant):
                return True
            self._taken = grant.token
            if self._semaphore.group in grant.slots:
                return await to_its_end(self._semaphore._renew(self._caller, grant.token))
            # Granted without a limit: retention removes that of a group which nobody uses, perhaps just now.
            await to_its_end(self._store.release([(self._caller, grant.token)]))
            await self._semaphore._set_limit()

    async def undo(self) -> None:
        """Leave nothing of this call behind, and leave alone what the holder had before."""
        with suppress(QoError):  # a store that cannot be reached ends the place in line and the short lease by itself
            grant = await self._ask_once(wait_ms=0)
            if grant.token is not None and (grant.token == self._taken or self._is_new(grant)):
                await self._store.release([(self._caller, grant.token)])

    async def _ask_once(self, *, wait_ms: int) -> Grant:
        ticket = Ticket(
            holder=self._caller, groups=(self._semaphore.group,), lease_ms=self._first_lease_ms, wait_ms=wait_ms
        )
        (grant,) = await to_its_end(self._store.acquire([ticket]))
        return grant

    def _is_new(self, grant: Grant) -> bool:
        """Whether the lease still is the short one that it began as."""
        assert grant.token is not None
        assert grant.expires_at is not None
        # A token is the microsecond in which it was drawn, by the store's clock, or a later one.
        given_ms = grant.expires_at.timestamp() * 1000 - int(grant.token) / 1000
        return given_ms < self._lease_ms * FULL_SHARE

    @asynccontextmanager
    async def _listening(self) -> AsyncGenerator[asyncio.Event]:
        """Something that is set whenever the store tells of this caller, from now on."""
        told = asyncio.Event()
        cursor = await self._store.newest_event()

        async def listen() -> None:
            # The queue's one reader serves all who wait, so that a busy feed is read once a process.
            async with aclosing(self._semaphore._queue.follower.follow(self._caller, after=cursor)) as events:
                async for _ in events:
                    told.set()

        listening = asyncio.create_task(listen(), name="qo-semaphore")
        try:
            yield told
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
