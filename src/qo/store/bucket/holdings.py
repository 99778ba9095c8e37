"""Take, prolong and free one slot, and remember the slots of this process. Each change is one conditional write."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from math import inf

import msgspec

from qo.errors import StoreUnavailable
from qo.ids import new_mark
from qo.store.bucket.keys import slot_key
from qo.store.bucket.lease import SlotLease
from qo.store.bucket.objects import Objects, Outcome, Stored
from qo.store.bucket.record import SlotRecord, decode, encode
from qo.store.bucket.watch import SlotSeen, Watch

TRIES = 5
"""How often a change is tried when other processes change the same record."""


class Holdings:
    def __init__(
        self, objects: Objects, watch: Watch, clock: Callable[[], float], wall_clock: Callable[[], datetime]
    ) -> None:
        self._objects = objects
        self._watch = watch
        self._clock = clock
        self._wall_clock = wall_clock
        self._leases: dict[tuple[str, int], SlotLease] = {}
        """Includes lost leases until they are released, because a lost lease must not be renewed."""
        self._lock = threading.Lock()

    def lease(self, group: str, slot_id: int, holder: str) -> SlotLease | None:
        lease = self._leases.get((group, slot_id))
        return lease if lease is not None and lease.record.holder == holder else None

    async def take(
        self,
        group: str,
        slot_id: int,
        seen: SlotSeen | None,
        *,
        holder: str,
        worker_id: str | None,
        lease_seconds: float,
        limit: int | None,
    ) -> bool:
        """Take a slot that is free, expired or the holder's own, if it still is as `seen` (None: never taken)."""
        sent_at = self._clock()
        own = self.lease(group, slot_id, holder)
        record = SlotRecord(
            holder=holder,
            worker_id=worker_id,
            token=self._next_token(seen),
            lease_seconds=lease_seconds,
            free_after_seconds=lease_seconds,
            renewals=0,
            expires_at=self._in(lease_seconds),
            mark=new_mark(),
            limit=limit,
        )
        if own is not None and seen is not None and own.token == seen.record.token and own.still_held(sent_at):
            record = self._prolonged(
                msgspec.structs.replace(seen.record, worker_id=worker_id, lease_seconds=lease_seconds, limit=limit),
                max(lease_seconds, own.ends_at - sent_at),
            )
        outcome = await self._write(group, slot_id, record, expected=None if seen is None else seen.stored)
        if not outcome.written or outcome.stored is None:
            return False
        lease = SlotLease(group=group, slot_id=slot_id, sent_at=sent_at, record=record, stored=outcome.stored)
        with self._lock:
            self._leases[group, slot_id] = lease
        if lease.still_held(self._clock()):
            return True
        # The write took a whole lease, so another process may already take the slot.
        await self.free(group, slot_id, holder)
        return False

    async def prolong(self, group: str, slot_id: int, holder: str, *, additional_seconds: float | None) -> bool:
        """Add to the end of a lease, or with None restart it without making it shorter."""
        lease = self.lease(group, slot_id, holder)
        if lease is not None and not lease.still_held(self._clock()):
            return False
        key = slot_key(group, slot_id)
        known = await self._objects.read(key) if lease is None else lease.stored
        for _ in range(TRIES):
            record = _record(key, known)
            if record is None or record.holder != holder or (lease is not None and record.token != lease.token):
                self._lose(lease)
                return False
            sent_at = self._clock()
            # This process cannot know how much is left of a lease that another one wrote: at most all of it.
            left = record.free_after_seconds
            if lease is not None and known is lease.stored:
                left = lease.ends_at - sent_at
            lasting = max(record.lease_seconds, left) if additional_seconds is None else left + additional_seconds
            prolonged = self._prolonged(record, lasting)
            outcome = await self._write(group, slot_id, prolonged, expected=known)
            if outcome.written and outcome.stored is not None:
                return lease is None or self._keep(
                    SlotLease(group=group, slot_id=slot_id, sent_at=sent_at, record=prolonged, stored=outcome.stored)
                )
            known = outcome.stored
        raise self._unsettled(key)

    async def free(self, group: str, slot_id: int, holder: str) -> bool:
        lease = self.lease(group, slot_id, holder)
        if lease is not None:
            # Before the write is sent: from then on another process may take the slot at any moment.
            with self._lock:
                self._leases.pop((group, slot_id), None)
        key = slot_key(group, slot_id)
        known = await self._objects.read(key) if lease is None else lease.stored
        for _ in range(TRIES):
            record = _record(key, known)
            if record is None or record.holder != holder or (lease is not None and record.token != lease.token):
                return False
            outcome = await self._write(group, slot_id, self._freed(record), expected=known)
            if outcome.written:
                return True
            known = outcome.stored
        raise self._unsettled(key)

    async def free_as_seen(self, group: str, slot_id: int, seen: SlotSeen) -> bool:
        """Free a slot whatever its holder. Returns False when it was renewed or taken since it was seen."""
        return (await self._write(group, slot_id, self._freed(seen.record), expected=seen.stored)).written

    # --- within -----------------------------------------------------------------------------------------------

    async def _write(self, group: str, slot_id: int, record: SlotRecord, *, expected: Stored | None) -> Outcome:
        outcome = await self._objects.write(slot_key(group, slot_id), encode(record), expected=expected)
        if outcome.stored is not None:
            self._watch.note(group, slot_id, outcome.stored)
        return outcome

    def _keep(self, lease: SlotLease) -> bool:
        """Remember a prolonged lease, and return whether it is held.

        It is not when it was released meanwhile, or when prolonging it took longer than it lasts.
        """
        place = lease.group, lease.slot_id
        with self._lock:
            present = self._leases.get(place)
            if present is None or present.token != lease.token:
                return False
            if present.record.renewals < lease.record.renewals:
                self._leases[place] = lease
            return self._leases[place].still_held(self._clock())

    def _lose(self, lease: SlotLease | None) -> None:
        if lease is None:
            return
        place = lease.group, lease.slot_id
        with self._lock:
            present = self._leases.get(place)
            if present is not None and present.token == lease.token:
                self._leases[place] = msgspec.structs.replace(present, sent_at=-inf)

    def _next_token(self, seen: SlotSeen | None) -> int:
        """A token as in the other stores. Within one slot it always grows, whatever the clocks say."""
        microseconds = int(self._wall_clock().timestamp() * 1_000_000)
        return microseconds if seen is None else max(seen.record.token + 1, microseconds)

    def _prolonged(self, record: SlotRecord, seconds: float) -> SlotRecord:
        return msgspec.structs.replace(
            record,
            free_after_seconds=seconds,
            renewals=record.renewals + 1,
            expires_at=self._in(seconds),
            mark=new_mark(),
        )

    def _freed(self, record: SlotRecord) -> SlotRecord:
        return msgspec.structs.replace(
            record, holder=None, worker_id=None, renewals=0, expires_at=self._in(0), mark=new_mark()
        )

    def _in(self, seconds: float) -> datetime:
        return self._wall_clock() + timedelta(seconds=seconds)

    def _unsettled(self, key: str) -> StoreUnavailable:
        return StoreUnavailable(f"The object {key!r} was changed {TRIES} times in a row by others; try again.")


def _record(key: str, stored: Stored | None) -> SlotRecord | None:
    return None if stored is None else decode(stored.body, SlotRecord, key=key)
