"""What is seen of slots and limits, and since when. That, and no clock of anybody else, is what expiry goes by."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from qo.store.bucket.keys import group_folder, limit_key, slot_key, slot_of
from qo.store.bucket.objects import Objects, Stored
from qo.store.bucket.record import LimitRecord, SlotRecord, decode

MAX_GROUPS = 1000
"""Whoever uses more forgets what was seen of the one not looked at for longest, and counts its leases anew."""


class Seen(NamedTuple):
    stored: Stored
    since: float
    """when this very body was first seen, once it had been received: its writer had sent it earlier than that"""


class SlotSeen(NamedTuple):
    stored: Stored
    record: SlotRecord
    since: float

    def held(self, now: float) -> bool:
        """False once its holder must have given up, because the record has not changed for a whole lease of it."""
        return self.record.holder is not None and now < self.since + self.record.free_after_seconds


class View(NamedTuple):
    """Of one group. A slot that was never taken is not among `slots`."""

    limit: int | None
    slots: dict[int, SlotSeen]

    def given_limit(self) -> int | None:
        """The limit that the newest holder gave, whether or not it still holds its slot."""
        newest = max(self.slots.values(), key=lambda slot: slot.record.token, default=None)
        return None if newest is None else newest.record.limit

    def held(self, now: float) -> list[int]:
        return [slot_id for slot_id, slot in self.slots.items() if slot.held(now)]


class Watch:
    """Remembers what was read, so that a look costs one listing and a read of each object that has changed."""

    def __init__(self, objects: Objects, clock: Callable[[], float]) -> None:
        self._objects = objects
        self._clock = clock
        self._groups: dict[str, dict[str, Seen]] = {}

    async def look(self, group: str) -> View:
        listed = await self._objects.listed(group_folder(group))
        before = self._groups.get(group, {})
        ours = [key for key in listed if key == limit_key(group) or slot_of(group, key) is not None]
        changed = [key for key in ours if key not in before or not _is(before[key].stored, listed[key])]
        read = dict(zip(changed, await self._objects.read_all(changed), strict=True))
        now = self._clock()
        after: dict[str, Seen] = {}
        for key in ours:
            stored = read[key] if key in read else before[key].stored
            if stored is not None:
                after[key] = _noted(before.get(key), stored, now)
        self._remember(group, after)
        return _view(group, after)

    def note(self, group: str, slot_id: int, stored: Stored) -> None:
        """What stands there, as the answer to a write tells."""
        seen = self._groups.get(group, {})
        key = slot_key(group, slot_id)
        self._remember(group, seen | {key: _noted(seen.get(key), stored, self._clock())})

    def _remember(self, group: str, seen: dict[str, Seen]) -> None:
        self._groups.pop(group, None)
        self._groups[group] = seen
        if len(self._groups) > MAX_GROUPS:
            del self._groups[next(iter(self._groups))]


def _is(stored: Stored, e_tag: str | None) -> bool:
    return e_tag is not None and e_tag == stored.e_tag


def _noted(before: Seen | None, stored: Stored, now: float) -> Seen:
    # Bodies never come back, so one that was there before has been there ever since.
    since = before.since if before is not None and before.stored.body == stored.body else now
    return Seen(stored, since)


def _view(group: str, seen: dict[str, Seen]) -> View:
    limit: int | None = None
    slots: dict[int, SlotSeen] = {}
    for key, (stored, since) in seen.items():
        slot_id = slot_of(group, key)
        if slot_id is None:
            limit = decode(stored.body, LimitRecord, key=key).slots
        else:
            slots[slot_id] = SlotSeen(stored, decode(stored.body, SlotRecord, key=key), since)
    return View(limit, slots)
