"""Semaphores of users and projects: slots taken by name, in the same groups as jobs and with the same limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from types import MappingProxyType

from qo.errors import QoError
from qo.limits.expired import end_expired
from qo.limits.holders import callers_of, check_holder, milliseconds
from qo.loops.timing import to_its_end, within
from qo.policy.admission import find_tier
from qo.policy.checks import check_name, check_seconds
from qo.queue.queue import Queue, check_queue
from qo.settings import BUILT_IN_TIERS
from qo.store.contract import HANDED_OVER_LEASE_MS, Store
from qo.values import Grant, Limit, Renewal, Source, Ticket

TIER_CONCURRENT_USER: Mapping[str, int] = MappingProxyType(
    {name: tier.per_user for name, tier in BUILT_IN_TIERS.items()}
)
TIER_CONCURRENT_PROJECT: Mapping[str, int] = MappingProxyType(
    {name: tier.per_project for name, tier in BUILT_IN_TIERS.items()}
)

ASKS_PER_LIFE = 3
FULL_SHARE = 0.75
"""The share of the full lease below which a lease has not been renewed since the grant."""


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

    A holder is a name of 1 to 100 characters and has at most one slot, whichever process asks in its name.
    Its lease lasts an hour (`[concurrency] semaphore_lease_duration_secs`), and only `heartbeat` renews it.
    """

    def __init__(self, queue: Queue, *, kind: str, owner: str, slots: int) -> None:
        check_name(f"{kind}_id", owner)
        self.group = f"{kind}:{owner}"
        self.queue = queue
        self._slots = _Slots(queue, Limit(group=self.group, slots=slots, source=Source.TIER))
        self._callers = callers_of(f"semaphore:{kind}", owner)

    async def acquire(self, holder: str, timeout: float = 0) -> bool:
        """Take a slot: at once, or when it is the holder's turn within `timeout` seconds. False: there was none.

        A holder that waits stands in the same line as jobs, at priority normal. For a holder that has a slot already
        this returns True; it neither gets a second slot nor renews the first. A cancelled call leaves neither a slot
        nor a place in line.

        The first call sets the tier's limit, as a submit with that tier would; later calls only if it has gone.
        """
        caller = self._caller(holder)
        check_seconds("timeout", timeout)
        if not self._slots.limit_was_set:
            await self._slots.set_limit()
        request = _Request(self._slots, caller)
        try:
            return await request.wait(timeout) if timeout > 0 else await request.ask(wait=False)
        except (Exception, asyncio.CancelledError):
            await to_its_end(request.undo())
            raise

    async def release(self, holder: str) -> bool:
        """Give the holder's slot back. False: it had none, and nothing was changed."""
        caller = self._caller(holder)
        token = await self._slots.token_of(caller)
        if token is None:
            return False
        # By its token: without one, the holder's place in line would go too, and it may wait there in another process.
        (released,) = await self._slots.store.release([(caller, token)])
        return released

    async def count(self) -> int:
        """The number of holders of this user or project, jobs included. A lease that has run out counts until the next
        `acquire`, `heartbeat` or `cleanup`, or until a worker looks."""
        return (await self._slots.store.groups([self.group]))[0].active

    async def heartbeat(self, holder: str) -> bool:
        """Let the lease last for its full time from now. False: it is lost; stop the work, or acquire again."""
        caller = self._caller(holder)
        await self._slots.store.catch_up()
        token = await self._slots.token_of(caller)
        return token is not None and await self._slots.renew(caller, token)

    async def cleanup(self) -> int:
        """End all leases that have run out, and return how many were of this user or project, jobs included.

        After the store was away, or unused for long, that time counts for no lease, so that its holder can renew it.
        Then this returns 0, and a later call ends the lease.
        """
        return await end_expired(self._slots.store, self.group)

    def _caller(self, holder: str) -> str:
        """The holder's name in the store: different from those of other semaphores and of limiters."""
        check_holder(holder)
        return self._callers + holder


class _Slots:
    """The slots of one user or project on the store. Callers are known by their names in the store."""

    def __init__(self, queue: Queue, limit: Limit) -> None:
        self.queue = queue
        self.group = limit.group
        self.limit_was_set = False
        self._limit = limit
        concurrency = queue.settings.concurrency
        self.lease_ms = milliseconds(concurrency.semaphore_lease_duration_secs)
        # From the length of a lease a store judges whether it was away too long to blame the holders. From an hour's
        # lease alone it would end the leases of jobs that could not renew, so it gets one of the jobs' length first.
        jobs_lease_ms = milliseconds(concurrency.default_lease_duration_secs)
        self.first_lease_ms = max(1, min(jobs_lease_ms, self.lease_ms // 2))

    @property
    def store(self) -> Store:
        return self.queue.store_here

    async def set_limit(self) -> None:
        """Limit the group to what the tier gives, unless an operator or the configuration says otherwise."""
        self.queue.warn_of_ignored(await self.store.set_limits([self._limit]))
        self.limit_was_set = True

    async def token_of(self, caller: str) -> str | None:
        """The token of the slot that the caller holds, if it holds one."""
        slots = (await self.store.groups([self.group]))[0].slots
        # A job may have the same id, but a job always has a worker.
        return next((slot.token for slot in slots if slot.holder == caller and slot.worker_id is None), None)

    async def renew(self, caller: str, token: str) -> bool:
        """Let the lease last for its full time from now. False: it is lost."""
        renewal = Renewal(holder=caller, token=token, lease_ms=self.lease_ms)
        (held,) = (await self.store.renew([renewal])).held
        return not held.lost


class _Request:
    """One call of `acquire`.

    Every lease is short at first, whether it came with the answer, was handed over to a waiting holder, or was left
    behind by a process that died before it renewed. It is renewed to the full length at once.
    """

    def __init__(self, slots: _Slots, caller: str) -> None:
        self._slots = slots
        self._store = slots.store
        self._caller = caller
        self._wait_ms = milliseconds(slots.queue.settings.limiter.waiter_alive_secs)
        self._taken: str | None = None

    async def wait(self, seconds: float) -> bool:
        clock = asyncio.get_running_loop().time
        deadline = clock() + seconds
        if await self.ask(wait=True):
            return True
        # Often enough to stay in line, and to find a slot whose event was missed. Asking also ends the leases that
        # have run out; there may be no worker to do it.
        again_seconds = min(self._wait_ms / ASKS_PER_LIFE, HANDED_OVER_LEASE_MS / 2) / 1000
        async with self._listening() as heard:
            while (left := deadline - clock()) > 0:
                heard.clear()
                if await self.ask(wait=True):
                    return True
                await within(min(left, again_seconds), heard.wait())
        return await self.ask(wait=False)

    async def ask(self, *, wait: bool) -> bool:
        """Whether the caller has a slot. If not, it stands in line afterwards; without `wait` it does not."""
        while True:
            grant = await self._ask_once(wait_ms=self._wait_ms if wait else 0)
            if grant.token is None:
                return False
            if not self._is_new(grant):
                return True
            self._taken = grant.token
            if self._slots.group in grant.slots:
                return await to_its_end(self._slots.renew(self._caller, grant.token))
            # Granted without a limit: retention removes the limit of an unused group, perhaps just now.
            await to_its_end(self._store.release([(self._caller, grant.token)]))
            await self._slots.set_limit()

    async def undo(self) -> None:
        """Give back what this call took, and keep what the holder had before."""
        with suppress(QoError):  # if the store cannot be reached, the place in line and the short lease run out
            grant = await self._ask_once(wait_ms=0)
            if grant.token is not None and (grant.token == self._taken or self._is_new(grant)):
                await self._store.release([(self._caller, grant.token)])

    async def _ask_once(self, *, wait_ms: int) -> Grant:
        ticket = Ticket(
            holder=self._caller, groups=(self._slots.group,), lease_ms=self._slots.first_lease_ms, wait_ms=wait_ms
        )
        (grant,) = await to_its_end(self._store.acquire([ticket]))
        return grant

    def _is_new(self, grant: Grant) -> bool:
        """Whether the lease still is the short one that it began as."""
        assert grant.token is not None
        assert grant.expires_at is not None
        # A token is the time at which it was drawn, in microseconds of the store's clock, or a little later.
        given_ms = grant.expires_at.timestamp() * 1000 - int(grant.token) / 1000
        return given_ms < self._slots.lease_ms * FULL_SHARE

    @asynccontextmanager
    async def _listening(self) -> AsyncGenerator[asyncio.Event]:
        """An event that is set for every event of this caller in the store's feed, from now on."""
        heard = asyncio.Event()
        cursor = (await self._store.events(None)).cursor

        async def listen() -> None:
            # The queue's one reader serves all waiting callers, so a process reads a busy feed once.
            async with aclosing(self._slots.queue.follower.follow(self._caller, after=cursor)) as events:
                async for _ in events:
                    heard.set()

        listening = asyncio.create_task(listen(), name="qo-semaphore")
        try:
            yield heard
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
