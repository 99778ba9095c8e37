"""Slots of groups as objects in a bucket, one object for each slot, changed only by conditional writes.

A slot is given back by writing a free record over it, never by deleting it. Some servers ignore the condition of a
deletion, so a late one could remove the next holder's record. A free record also keeps the last token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime
from typing import Any, NamedTuple, Self, TypeVar
from weakref import WeakValueDictionary

from qo import chance
from qo.errors import InvalidValue, LeaseAlive, QoError, SlotNotFound, StoreUnavailable
from qo.ids import new_mark
from qo.policy.checks import check_by, check_finite, check_group, check_name, check_number, shown
from qo.store.bucket.address import parse_bucket_url
from qo.store.bucket.clocks import elapsed_seconds, utc_now
from qo.store.bucket.driver import client_for
from qo.store.bucket.holdings import TRIES, Holdings
from qo.store.bucket.keys import MAX_SLOTS, ROOT, limit_key, name_of
from qo.store.bucket.lease import SlotLease
from qo.store.bucket.objects import Objects
from qo.store.bucket.probe import probe
from qo.store.bucket.record import LimitRecord, SlotRecord, decode, encode
from qo.store.bucket.room import slots_to_try
from qo.store.bucket.watch import View, Watch
from qo.values import GroupStatus, SlotInfo, Source

REQUEST_SECONDS = 10.0
MAX_LEASE_SECONDS = 30 * 86_400.0

Answer = TypeVar("Answer")


class Acquired(NamedTuple):
    slot_id: int | None
    fresh: bool
    """False when the holder already had the slot before this call."""


class BucketSlots:
    """The slots of all groups below one prefix of one bucket. No other storage is used.

    **The limit is never exceeded, whatever the clocks say.** A process takes over a dead holder's slot only after it
    has itself seen the same record for a whole lease, on a clock that cannot be set. A holder that could not renew for
    a whole lease sees in `still_held` that it has lost the slot, before any other process may take it. So a dead
    holder's slot comes free one lease after the other processes first *looked*; a process that has just started has
    seen nothing yet. (The exception is the same as on every store: code that goes on after it lost its lease. The
    token lets a resource reject its writes.)

    **A holder's name is its right to the slot.** A call with that name may renew, extend, release and retake it, from
    any process. Holders that exist at the same time need different names; for a job's run, put its token in the name.

    All calls except `try_acquire` may come from several event loops at once, such as the heartbeat's. A call raises
    `StoreUnavailable` when the bucket does not answer after a few attempts. The change may then have happened, or
    still happen; repeating the call is safe.
    """

    def __init__(
        self,
        objects: Objects,
        *,
        clock: Callable[[], float] = elapsed_seconds,
        wall_clock: Callable[[], datetime] = utc_now,
        shuffle: Callable[[list[int]], None] = chance.shuffle,
    ) -> None:
        self._objects = objects
        self._clock = clock
        self._wall_clock = wall_clock
        self._shuffle = shuffle
        self._watch = Watch(objects, clock)
        self._holdings = Holdings(objects, self._watch, clock, wall_clock)
        self._turns: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        self._unfinished: set[asyncio.Task[Any]] = set()

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        request_seconds: float = REQUEST_SECONDS,
        clock: Callable[[], float] = elapsed_seconds,
        wall_clock: Callable[[], datetime] = utc_now,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        shuffle: Callable[[list[int]], None] = chance.shuffle,
    ) -> Self:
        """Open `s3://bucket/prefix`, `gs://…` or `az://…`. Endpoint, region and credentials come from the url's query,
        or from the environment variables that each provider's tools use.

        Raises `SettingsError` for another url, `StoreUnavailable` for a bucket that cannot be reached or does not
        enforce conditions. `request_seconds` is the timeout of one request; a lease should be several times as long.
        """
        address = parse_bucket_url(url)
        objects = Objects(client_for(address, request_seconds=request_seconds), address, sleep=sleep)
        try:
            await probe(objects)
        except BaseException:
            objects.close()
            raise
        return cls(objects, clock=clock, wall_clock=wall_clock, shuffle=shuffle)

    async def close(self) -> None:
        """Close the connection, after releases under way have ended.

        Held slots stay held until another process releases them or their leases run out.
        """
        loop = asyncio.get_running_loop()
        while mine := [task for task in tuple(self._unfinished) if task.get_loop() is loop]:
            await asyncio.wait(mine)
        self._objects.close()

    # --- holding ----------------------------------------------------------------------------------------------

    async def try_acquire(
        self, group: str, limit: int | None, holder: str, worker_id: str | None, lease_seconds: float
    ) -> int | None:
        """The number of the slot that `holder` now holds for `lease_seconds`, or None when all are taken.

        A holder that has a slot gets the same one again, with a new lease. A limit that was set on the group wins over
        `limit`, which may then be None. A caller that is cancelled here holds nothing new: a slot that was taken
        nevertheless is given back.
        """
        check_group(group)
        if limit is not None:
            check_number("limit", limit, 0, MAX_SLOTS)
        check_name("holder", holder)
        if worker_id is not None:
            check_name("worker_id", worker_id)
        _check_seconds("lease_seconds", lease_seconds)
        taking = self._begin(self._acquire(group, limit, holder, worker_id, float(lease_seconds)))
        try:
            return (await asyncio.shield(taking)).slot_id
        except asyncio.CancelledError:
            self._begin(self._give_back(taking, group, holder))
            raise

    async def renew(self, group: str, slot_id: int, holder: str) -> bool:
        """Restart the lease with its full duration, or keep its present end if that is later.

        Returns False, and changes nothing, when the holder does not hold this slot (any more). A lease that this
        process lost stays lost, even if the slot is still free: the work should have stopped when it ran out.
        """
        _check_slot(group, slot_id, holder)
        return await self._holdings.prolong(group, slot_id, holder, additional_seconds=None)

    async def extend_lease(self, group: str, slot_id: int, holder: str, additional_seconds: float) -> bool:
        """Add to the end of the lease; renewals do not shorten it. Returns False as `renew` does.

        In a process that did not take the slot, this adds to a whole lease from now, because it is not known there
        how much is left. The process that took it learns of the extension with its next renewal.
        """
        _check_slot(group, slot_id, holder)
        _check_seconds("additional_seconds", additional_seconds)
        return await self._holdings.prolong(group, slot_id, holder, additional_seconds=float(additional_seconds))

    async def release(self, group: str, slot_id: int, holder: str) -> bool:
        """Give the slot back. Returns False, and changes nothing, when the holder did not hold it (any more).

        `still_held` is false from the start of the call, whether or not it succeeds. Cancelling does not stop it.
        """
        _check_slot(group, slot_id, holder)
        return await asyncio.shield(self._begin(self._holdings.free(group, slot_id, holder)))

    def lease(self, group: str, slot_id: int, holder: str) -> SlotLease | None:
        """The lease of a slot that this process took, with its deadline. Every renewal makes a new one."""
        return self._holdings.lease(group, slot_id, holder)

    def still_held(self, group: str, slot_id: int, holder: str, now: float | None = None) -> bool:
        """Whether this process took the slot and still holds it, by its own clock. Sends no request."""
        lease = self.lease(group, slot_id, holder)
        return lease is not None and lease.still_held(self._clock() if now is None else now)

    # --- groups -----------------------------------------------------------------------------------------------

    async def cleanup_expired(self, group: str) -> int:
        """Free the slots that this process has seen unchanged for a whole lease, and return how many they were.

        It is never necessary: `try_acquire` takes such slots too.
        """
        check_group(group)
        view = await self._watch.look(group)
        now = self._clock()
        freed = 0
        for slot_id, slot in view.slots.items():
            if slot.record.holder is not None and not slot.held(now):
                freed += await self._holdings.free_as_seen(group, slot_id, slot)
        return freed

    async def get_status(self, group: str) -> GroupStatus:
        """The limit and the holders of a group, without those that this process has seen unchanged for a whole lease.

        `expires_at` is by the holders' own clocks. Without a limit on the group, the newest holder's is returned.
        """
        check_group(group)
        view = await self._watch.look(group)
        slots = tuple(_slot_info(slot_id, view.slots[slot_id].record) for slot_id in sorted(view.held(self._clock())))
        limit, source = view.limit, Source.OPERATOR
        if limit is None:
            limit, source = view.given_limit(), Source.TASK
        return GroupStatus(
            group=group, limit=limit, source=None if limit is None else source, active=len(slots), slots=slots
        )

    async def groups(self) -> list[str]:
        """The names of all groups that ever had a limit or a holder here, sorted. One request for each thousand.

        Names that were too long for a key are left out.
        """
        names = map(name_of, await self._objects.folders(ROOT))
        return sorted(name for name in names if name is not None)

    async def release_slot(self, group: str, slot_id: int, *, force: bool = False) -> str:
        """Take a slot from its holder by hand, and return the holder's name.

        Without `force`, only when this process has itself seen the lease run out. The holder notices with its next
        renewal; until then it may run beside its successor. Raises `SlotNotFound`, `LeaseAlive`.
        """
        check_group(group)
        check_number("slot_id", slot_id, 0)
        for _ in range(TRIES):
            seen = (await self._watch.look(group)).slots.get(slot_id)
            if seen is None or seen.record.holder is None:
                raise SlotNotFound(group, slot_id)
            if seen.held(self._clock()) and not force:
                raise LeaseAlive(group, slot_id, seen.record.holder)
            if await self._holdings.free_as_seen(group, slot_id, seen):
                return seen.record.holder
        raise StoreUnavailable(f"Slot {slot_id} of group {shown(group)} changed {TRIES} times in a row; try again.")

    async def limit(self, group: str) -> int | None:
        """The limit that was set on the group, or None when each caller's own limit counts."""
        check_group(group)
        key = limit_key(group)
        stored = await self._objects.read(key)
        return None if stored is None else decode(stored.body, LimitRecord, key=key).slots

    async def set_limit(self, group: str, slots: int, *, by: str | None = None) -> None:
        """Set the limit for every acquire that begins after this. When it is lowered below the present use, holders
        finish, and no slot is given out until there is room."""
        check_number("limit", slots, 0, MAX_SLOTS)
        await self._write_limit(group, slots, by)

    async def remove_limit(self, group: str, *, by: str | None = None) -> None:
        """Remove the group's limit, so that each caller's own counts again. A missing limit is not an error."""
        await self._write_limit(group, None, by)

    # --- within -----------------------------------------------------------------------------------------------

    async def _acquire(
        self, group: str, limit: int | None, holder: str, worker_id: str | None, lease_seconds: float
    ) -> Acquired:
        # Two calls at once for the same holder would both see that it has no slot, and take one each.
        async with self._turns.setdefault((group, holder), asyncio.Lock()):
            for _ in range(TRIES):
                view = await self._watch.look(group)
                own = [slot_id for slot_id, slot in view.slots.items() if slot.record.holder == holder]
                for slot_id in own or self._candidates(group, view, limit):
                    seen = view.slots.get(slot_id)
                    if await self._holdings.take(
                        group,
                        slot_id,
                        seen,
                        holder=holder,
                        worker_id=worker_id,
                        lease_seconds=lease_seconds,
                        limit=limit,
                    ):
                        return Acquired(slot_id, fresh=not own)
                if not own:
                    return Acquired(None, fresh=False)
                # The holder's slot was changed meanwhile, and another holder may have it by now.
            raise StoreUnavailable(f"The slots of group {shown(group)} changed {TRIES} times in a row; try again.")

    def _candidates(self, group: str, view: View, limit: int | None) -> list[int]:
        slots = limit if view.limit is None else view.limit
        if slots is None:
            raise InvalidValue(f"group {shown(group)} has no limit on this bucket; set one, or give one with the call.")
        candidates = slots_to_try(slots, view.held(self._clock()))
        # In the same order, all contenders would try the same slot, and all but one would fail each time.
        self._shuffle(candidates)
        return candidates

    async def _give_back(self, taking: asyncio.Task[Acquired], group: str, holder: str) -> None:
        try:
            slot_id, fresh = await taking
            if fresh and slot_id is not None:
                await self._holdings.free(group, slot_id, holder)
        except QoError:
            pass  # the caller is gone, and the slot comes free one lease later

    async def _write_limit(self, group: str, slots: int | None, by: str | None) -> None:
        check_group(group)
        check_by(by)
        key = limit_key(group)
        record = LimitRecord(slots=slots, set_at=self._wall_clock(), set_by=by, mark=new_mark())
        present = await self._objects.read(key)
        for _ in range(TRIES):
            if present is None and slots is None:
                return
            outcome = await self._objects.write(key, encode(record), expected=present)
            if outcome.written:
                return
            present = outcome.stored
        raise StoreUnavailable(f"The limit of group {shown(group)} was changed {TRIES} times in a row; try again.")

    def _begin(self, work: Coroutine[Any, Any, Answer]) -> asyncio.Task[Answer]:
        """Start work that goes on when its caller is cancelled; half done, it would leave a slot unused for a lease."""
        task = asyncio.ensure_future(work)
        self._unfinished.add(task)
        task.add_done_callback(self._unfinished.discard)
        return task


def _slot_info(slot_id: int, record: SlotRecord) -> SlotInfo:
    assert record.holder is not None
    return SlotInfo(
        slot_id=slot_id,
        holder=record.holder,
        worker_id=record.worker_id,
        expires_at=record.expires_at,
        token=str(record.token),
    )


def _check_slot(group: str, slot_id: int, holder: str) -> None:
    check_group(group)
    check_number("slot_id", slot_id, 0)
    check_name("holder", holder)


def _check_seconds(field: str, seconds: float) -> None:
    check_finite(field, seconds)
    if not 0 < seconds <= MAX_LEASE_SECONDS:
        raise InvalidValue(f"{field} is {shown(seconds)}; use more than 0 and at most {MAX_LEASE_SECONDS:.0f} seconds.")
