"""What this process has seen of slots and limits, and since when.

A lease has run out when its record was seen unchanged for a whole lease. The clocks of other machines do not count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from qo.store.bucket.keys import group_folder, limit_key, slot_key, slot_of
from qo.store.bucket.objects import Objects, Stored
from qo.store.bucket.record import LimitRecord, SlotRecord, decode

MAX_GROUPS = 1000
"""With more groups than this, the one not read for longest is forgotten, and its leases are counted from the start."""


class Seen(NamedTuple):
    stored: Stored
    since: float
    """When this body had first been received; its writer had sent it before that."""


class SlotSeen(NamedTuple):
    stored: Stored
    record: SlotRecord
    since: float

    def held(self, now: float) -> bool:
        """False once the record has not changed for a whole lease: its holder must have stopped by then."""
        return self.record.holder is not None and now < self.since + self.record.free_after_seconds


class View(NamedTuple):
    """The limit and the slots of one group. A slot that was never taken is not in `slots`."""

    limit: int | None
    slots: dict[int, SlotSeen]

    def given_limit(self) -> int | None:
        """The limit that the newest holder gave, even if it no longer holds its slot."""
        newest = max(self.slots.values(), key=lambda slot: slot.record.token, default=None)
        return None if newest is None else newest.record.limit

    def held(self, now: float) -> list[int]:
        return [slot_id for slot_id, slot in self.slots.items() if slot.held(now)]


class Watch:
    """Remembers what was read, so that looking at a group costs one listing and a read of each changed object."""

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
        """Remember the content of a slot, which the reply to a write has returned."""
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
    # No body is written twice, so an equal body has been there all the time.
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
