"""ConcurrencyManager: numbered slots of a group, taken and given back by hand, on any store."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Self

import msgspec

from qo.errors import InvalidValue, QoError
from qo.event import LEASE_LOST
from qo.runtime.callers import callers_of, check_holder, milliseconds
from qo.runtime.connecting import connect
from qo.runtime.queue import Queue
from qo.runtime.timing import to_its_end
from qo.store.base import Store
from qo.store.check_value import check_group, check_name_or_none, check_number, shown
from qo.store.open import is_bucket
from qo.store.values import GroupStatus, Limit, Renewal, SlotInfo, Source, Ticket

if TYPE_CHECKING:
    from qo.store.bucket import BucketSlots

PAGE = 1000


class ConcurrencyManager:
    """On a queue, the slots are those that jobs and callers of a limiter use, in the same groups and under the same
    limits; in a bucket, those of everybody who names the same bucket.

    A holder is a name of 1 to 100 characters and has at most one slot of a group. Nothing is renewed by itself: a
    holder that does not extend its lease in time has lost its slot.
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
        await self._owner.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def try_acquire(
        self, group: str, limit: int, holder: str, worker_id: str | None = None, lease: float | timedelta = 300
    ) -> int | None:
        """Take a free slot of a group for `lease` seconds; None: there is none free, or it is not this holder's
        turn, because a job or a caller waits for it.

        `limit` is what the group is limited to, unless an operator, the configuration or a tier says otherwise. The
        same holder again is told its slot, and gets no second one. Cancelling it leaves no new slot behind.
        """
        check_holder(holder)
        check_group(group)
        check_number("limit", limit, 0)
        check_name_or_none("worker_id", worker_id)
        return await self._slots.try_acquire(group, limit, holder, worker_id, _seconds("lease", lease))

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
        return await self._slots.extend_lease(group, slot_id, holder, _seconds("additional", additional))

    async def cleanup_expired(self, group: str) -> int:
        """End what has run out, and tell how many of this group that were.

        After the store was away, or nobody looked for long, time passed for no lease, so that holders can renew.
        In a bucket, a lease has run out when this process has itself seen it unchanged for that long.
        """
        check_group(group)
        return await self._slots.cleanup_expired(group)

    async def get_status(self, group: str) -> GroupStatus:
        """Limit, who holds which slot, and how many wait; holders by the names they gave."""
        check_group(group)
        return await self._slots.get_status(group)


class _SlotsOnQueue:
    """Holders are callers without a job, of whom the store knows one for each group and name."""

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
        """Give back what was taken since, and leave alone what the holder had before."""
        with suppress(QoError):  # of a store that cannot be reached, the slot comes free with its lease
            taken = await self._tokens_of(group, caller) - before
            await self._store.release([(caller, token) for token in taken])

    async def _tokens_of(self, group: str, caller: str) -> set[str]:
        return {slot.token for slot in (await self._store.group(group)).slots if slot.holder == caller}

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
        cursor = await self._store.newest_event()
        held = {slot.token for slot in (await self._store.group(group)).slots}
        while (await self._store.catch_up()).more:
            pass
        return len(held & await run_out_since(self._store, cursor))

    async def get_status(self, group: str) -> GroupStatus:
        status = await self._store.group(group)
        own = callers_of("slot", group)
        slots = tuple(msgspec.structs.replace(slot, holder=slot.holder.removeprefix(own)) for slot in status.slots)
        return msgspec.structs.replace(status, slots=slots)

    def _caller(self, group: str, holder: str) -> str:
        return callers_of("slot", group) + holder

    async def _slot_of(self, group: str, slot_id: int, holder: str) -> SlotInfo | None:
        caller = self._caller(group, holder)
        slots = (await self._store.group(group)).slots
        return next((slot for slot in slots if slot.slot_id == slot_id and slot.holder == caller), None)


async def run_out_since(store: Store, cursor: int) -> set[str]:
    """The tokens of leases, of whatever group, that ran out; those given back or revoked are not among them."""
    tokens: set[str] = set()
    while True:
        feed = await store.events(cursor, kinds=[LEASE_LOST], limit=PAGE)
        tokens |= {event.detail["token"] for event in feed.events if event.detail["reason"] == "expired"}
        cursor = feed.cursor
        if len(feed.events) < PAGE:
            return tokens


def _seconds(field: str, span: float | timedelta) -> float:
    seconds = span.total_seconds() if isinstance(span, timedelta) else span
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < float("inf"):
        raise InvalidValue(f"{field} is {span!r}; use seconds above 0, or a timedelta.")
    return seconds
