"""ConcurrencyManager: numbered slots of a group, taken and given back by hand, on any store."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Self

import msgspec

from qo.errors import InvalidValue, QoError
from qo.limits.expired import end_expired
from qo.limits.holders import callers_of, check_holder, milliseconds
from qo.loops.timing import to_its_end
from qo.policy.checks import check_group, check_name_or_none, check_number, shown
from qo.queue.connect import connect
from qo.queue.queue import Queue
from qo.spans import checked_seconds
from qo.store.contract import Store
from qo.store.open import is_bucket
from qo.values import GroupStatus, Limit, Renewal, SlotInfo, Source, Ticket

if TYPE_CHECKING:
    from qo.store.bucket import BucketSlots


class ConcurrencyManager:
    """On a queue, the slots are those of jobs and limiters, in the same groups and under the same limits. In a bucket,
    all programs that name the same bucket share them.

    A holder is a name of 1 to 100 characters and has at most one slot of a group. Nothing is renewed by itself: a
    holder that does not extend its lease in time loses its slot.
    """

    def __init__(self, slots: Queue | BucketSlots) -> None:
        if not isinstance(slots, Queue) and not hasattr(slots, "try_acquire"):
            raise InvalidValue(
                f"slots is {shown(slots)}; give a queue of `await qo.connect(...)`, or open a url with "
                "`await qo.ConcurrencyManager.open(...)`."
            )
        self._owner = slots
        self._slots = _SlotsOnQueue(slots) if isinstance(slots, Queue) else slots

    @classmethod
    async def open(cls, url: str | Path, *, namespace: str | None = None) -> Self:
        """On any url: a store's, as for `qo.connect`, or a bucket's (`s3://…`, `gs://…`, `az://…`)."""
        if isinstance(url, str) and is_bucket(url):
            from qo.store.bucket import BucketSlots

            return cls(await BucketSlots.open(url))
        return cls(await connect(url, namespace=namespace))

    async def close(self) -> None:
        """Close the queue or the bucket. Slots that are held stay held until their leases end."""
        await self._owner.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def try_acquire(
        self, group: str, limit: int, holder: str, worker_id: str | None = None, lease: float | timedelta = 300
    ) -> int | None:
        """Take a free slot of a group for `lease` seconds, and return its number. None: no slot is free, or a job
        or another caller waits for it.

        `limit` is what the group is limited to, unless an operator, the configuration or a tier says otherwise. A
        holder that has a slot gets the same number again, and no second slot. A cancelled call leaves no new slot
        behind.
        """
        check_holder(holder)
        check_group(group)
        check_number("limit", limit, 0)
        check_name_or_none("worker_id", worker_id)
        return await self._slots.try_acquire(group, limit, holder, worker_id, checked_seconds("lease", lease))

    async def release(self, group: str, slot_id: int, holder: str) -> bool:
        """Give a slot back. False: this holder does not have it, and nothing was changed."""
        check_holder(holder)
        check_group(group)
        check_number("slot_id", slot_id, 0)
        return await self._slots.release(group, slot_id, holder)

    async def extend_lease(self, group: str, slot_id: int, holder: str, additional: float | timedelta) -> bool:
        """Let a lease end `additional` seconds later. False: this holder does not have the slot (any more)."""
        check_holder(holder)
        check_group(group)
        check_number("slot_id", slot_id, 0)
        return await self._slots.extend_lease(group, slot_id, holder, checked_seconds("additional", additional))

    async def cleanup_expired(self, group: str) -> int:
        """End the leases that have run out, and return how many of them were of this group.

        After the store was away, or unused for long, that time counts for no lease, so that holders can renew.
        In a bucket, a lease has run out when this process has itself seen it unchanged for that long.
        """
        check_group(group)
        return await self._slots.cleanup_expired(group)

    async def get_status(self, group: str) -> GroupStatus:
        """The limit, the holder of each slot by the name it gave, and how many callers wait."""
        check_group(group)
        return await self._slots.get_status(group)


class _SlotsOnQueue:
    """Holders are callers without a job. The store knows each by its group and name."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    @property
    def _store(self) -> Store:
        return self._queue.store_here

    async def try_acquire(
        self, group: str, limit: int, holder: str, worker_id: str | None, lease_seconds: float
    ) -> int | None:
        caller = self._caller(group, holder)
        wanted = Limit(group=group, slots=limit, source=Source.TASK)
        self._queue.warn_of_ignored(await self._store.set_limits([wanted]))
        lease_ms = milliseconds(lease_seconds)
        ticket = Ticket(holder=caller, groups=(group,), lease_ms=lease_ms, wait_ms=0, worker=worker_id)
        before = await self._tokens_of(group, caller)
        try:
            (grant,) = await to_its_end(self._store.acquire([ticket]))
        except (Exception, asyncio.CancelledError):
            await to_its_end(self._undo(group, caller, before))
            raise
        return grant.slots.get(group)

    async def _undo(self, group: str, caller: str, before: set[str]) -> None:
        """Give back what this call took, and keep what the holder had before."""
        with suppress(QoError):  # if the store cannot be reached, the slot is free when its lease runs out
            taken = await self._tokens_of(group, caller) - before
            await self._store.release([(caller, token) for token in taken])

    async def _tokens_of(self, group: str, caller: str) -> set[str]:
        return {slot.token for slot in (await self._store.groups([group]))[0].slots if slot.holder == caller}

    async def release(self, group: str, slot_id: int, holder: str) -> bool:
        slot = await self._slot_of(group, slot_id, holder)
        if slot is None:
            return False
        (released,) = await self._store.release([(slot.holder, slot.token)])
        return released

    async def extend_lease(self, group: str, slot_id: int, holder: str, additional_seconds: float) -> bool:
        slot = await self._slot_of(group, slot_id, holder)
        if slot is None:
            return False
        extend_ms = milliseconds(additional_seconds)
        renewal = Renewal(holder=slot.holder, token=slot.token, extend_ms=extend_ms)
        (held,) = (await self._store.renew([renewal])).held
        return not held.lost

    async def cleanup_expired(self, group: str) -> int:
        return await end_expired(self._store, group)

    async def get_status(self, group: str) -> GroupStatus:
        status = (await self._store.groups([group]))[0]
        own = callers_of("slot", group)
        slots = tuple(msgspec.structs.replace(slot, holder=slot.holder.removeprefix(own)) for slot in status.slots)
        return msgspec.structs.replace(status, slots=slots)

    def _caller(self, group: str, holder: str) -> str:
        return callers_of("slot", group) + holder

    async def _slot_of(self, group: str, slot_id: int, holder: str) -> SlotInfo | None:
        caller = self._caller(group, holder)
        slots = (await self._store.groups([group]))[0].slots
        return next((slot for slot in slots if slot.slot_id == slot_id and slot.holder == caller), None)
