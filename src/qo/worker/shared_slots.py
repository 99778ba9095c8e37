"""Groups whose slots are kept in a bucket, for workers whose queues live elsewhere: many machines, one API quota.

A worker takes the slots after its claim. Where a group is full, the job goes back to its place without an attempt
spent, and the group is closed in this queue for a moment: other jobs go on, and no worker polls hard.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Self

from qo import chance
from qo.errors import InvalidValue, SettingsError, StoreUnavailable
from qo.ids import new_id
from qo.job import Job
from qo.loops.repeating import repeat
from qo.loops.timing import within
from qo.loops.trouble import Trouble
from qo.settings import Settings

if TYPE_CHECKING:
    from qo.store.bucket import BucketSlots

log = logging.getLogger("qo.worker")

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 30.0
RENEWALS_PER_LEASE = 3
LOOKS_PER_LEASE = 30
LOOK_AGAIN_SECONDS = 1.0
HOLDER_CHARACTERS = 100
START_SECONDS = 5.0
"""How long the start of a worker waits for the bucket. Then it begins without it, and tries again later."""

Held = dict[str, tuple[int, str]]
"""By group, the number of the slot and the holder's name."""


@asynccontextmanager
async def sharing_slots(settings: Settings, *, worker: str) -> AsyncIterator[SharedSlots | None]:
    """Yield the slots that a worker shares through a bucket, None where its settings name no group, and close them."""
    shared = await SharedSlots.open(settings, worker=worker)
    try:
        yield shared
    finally:
        if shared is not None:
            await shared.close()


class SharedSlots:
    """The heartbeat calls `keep` in its own event loop; all else belongs to the worker's."""

    def __init__(
        self,
        open_bucket: Callable[[], Awaitable[BucketSlots]],
        groups: Mapping[str, int | None],
        *,
        worker: str,
        lease_seconds: float,
    ) -> None:
        """Calls `open_bucket` until it succeeds. `groups` has each group's limit, None where the bucket has one."""
        self._open_bucket = open_bucket
        self._opening = asyncio.Lock()
        self._bucket: BucketSlots | None = None
        self._groups = groups
        self.worker = worker
        self._lease_seconds = lease_seconds
        self._held: dict[str, Held] = {}
        """The slots that are held, by the token of the job's lease."""
        self._refused: dict[str, int] = {}
        """By group, how often in a row there was no slot."""
        self._giving_back: set[asyncio.Task[None]] = set()
        self._unreachable = Trouble("slots in the bucket cannot be had for now")

    @classmethod
    async def open(cls, settings: Settings, *, worker: str) -> Self | None:
        """Return None where no group is kept in a bucket. A bucket that cannot be used for now is tried again with each
        job that needs it, so that other jobs go on. Raises SettingsError for a wrong url, and for a group without any
        limit if the bucket could be asked for it."""
        concurrency = settings.concurrency
        if concurrency.store is None or not concurrency.shared_groups:
            return None
        from qo.store.bucket import BucketSlots

        groups = {group: concurrency.limits.get(group) for group in concurrency.shared_groups}
        lease_seconds = concurrency.default_lease_duration_secs
        shared = cls(partial(BucketSlots.open, concurrency.store), groups, worker=worker, lease_seconds=lease_seconds)
        try:
            if not await within(START_SECONDS, shared._check_limits()):
                shared._unreachable.tell(StoreUnavailable(f"No answer from the bucket in {START_SECONDS:g} seconds."))
        except StoreUnavailable as error:
            shared._unreachable.tell(error)
        except BaseException:
            await shared.close()
            raise
        return shared

    async def _check_limits(self) -> None:
        bucket = await self._reached()
        for group, limit in self._groups.items():
            if limit is None and await bucket.limit(group) is None:
                raise SettingsError(
                    f"concurrency.shared_groups has {group!r}, which has no limit; give it one under "
                    f"[concurrency.limits], or with qo concurrency set {group} --limit N on the bucket."
                )

    async def _reached(self) -> BucketSlots:
        """Return the bucket, and open it first if that has not succeeded yet. Raises StoreUnavailable."""
        async with self._opening:
            if self._bucket is None:
                self._bucket = await self._open_bucket()
            return self._bucket

    async def close(self) -> None:
        await asyncio.gather(*self._giving_back)
        if self._bucket is not None:
            await self._bucket.close()

    def wanted(self, job: Job) -> tuple[str, ...]:
        """Return the groups of the job whose slots are kept in the bucket."""
        return tuple(group for group in job.groups if group in self._groups)

    async def take(self, token: str, job: Job) -> str | None:
        """Take one slot of each wanted group, all or none. Return the group that had no free slot, if any."""
        name = f"{job.id[:HOLDER_CHARACTERS]}:{new_id()}"
        held: Held = {}
        try:
            full = await self._take_each(job, name, held)
        except BaseException:
            await self._release(held)  # also when cancelled: nothing else knows of them
            raise
        if full is None:
            self._held[token] = held
        else:
            await self._release(held)
        return full

    async def _take_each(self, job: Job, name: str, held: Held) -> str | None:
        """Add a slot of one group after another to `held`. Return the first group that had no free slot, if any."""
        for group in self.wanted(job):
            try:
                bucket = await self._reached()
                number = await bucket.try_acquire(group, self._groups[group], name, self.worker, self._lease_seconds)
                self._unreachable.over()
            except (StoreUnavailable, InvalidValue) as error:
                # Also where a limit was removed: the job waits until the group has one again.
                self._unreachable.tell(error)
                number = None
            if number is None:
                self._refused[group] = self._refused.get(group, 0) + 1
                return group
            held[group] = number, name
            self._refused.pop(group, None)
        return None

    def pause_seconds(self, group: str) -> float:
        """Return how long a full group is left alone: longer each time, and not the same for all workers."""
        longest = FIRST_PAUSE_SECONDS * 2.0 ** min(self._refused.get(group, 1) - 1, 10)
        return min(longest, LONGEST_PAUSE_SECONDS) * chance.between(0.5, 1)

    async def give_back(self, token: str) -> None:
        held = self._held.pop(token, None)
        if held is not None:
            await self._release(held)

    def give_back_soon(self, token: str) -> None:
        """Give back in the background. `close` waits for it."""
        self._giving_back.add(giving_back := asyncio.create_task(self.give_back(token)))
        giving_back.add_done_callback(self._giving_back.discard)

    async def _release(self, held: Held) -> None:
        if not held:
            return
        bucket = await self._reached()
        for group, (number, name) in held.items():
            try:
                await bucket.release(group, number, name)
            except StoreUnavailable as error:
                log.warning(
                    "slot %d of %s could not be given back and runs out with its lease: %s", number, group, error
                )

    async def keep(self, lost: Callable[[str], None]) -> None:
        """Renew the slots that are held, until cancelled. Calls `lost(token)` for each job whose slot was lost."""
        renewing = asyncio.create_task(self._renew_on())
        try:
            while True:
                # Apart from the renewals: a bucket that does not answer must not delay this.
                await asyncio.sleep(min(LOOK_AGAIN_SECONDS, self._lease_seconds / LOOKS_PER_LEASE))
                for token in self._lost():
                    lost(token)
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)

    def _lost(self) -> list[str]:
        bucket = self._bucket
        return [
            token
            for token, held in tuple(self._held.items())
            if bucket is None or not all(bucket.still_held(group, *slot) for group, slot in held.items())
        ]

    async def _renew_on(self) -> None:
        every_seconds = self._lease_seconds / RENEWALS_PER_LEASE
        await repeat(
            self._renew_all,
            pause=lambda: every_seconds,
            retry_seconds=min(LOOK_AGAIN_SECONDS, every_seconds),
            trouble=Trouble("slots in the bucket cannot be renewed for now"),
        )

    async def _renew_all(self) -> None:
        bucket = self._bucket
        if bucket is not None:
            slots = [(group, *slot) for held in tuple(self._held.values()) for group, slot in held.items()]
            await asyncio.gather(*(bucket.renew(group, number, name) for group, number, name in slots))
