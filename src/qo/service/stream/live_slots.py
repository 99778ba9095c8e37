"""The slots of the groups that are most wanted, and what has changed of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from qo.service.stream.frames import HeldSlot
from qo.values import GroupStatus, SlotInfo

MOST_GROUPS = 12
MOST_SLOTS = 64
"""Of a larger group pages show a bar."""

Slots = dict[str, dict[int, HeldSlot]]


def most_wanted(groups: Iterable[GroupStatus]) -> list[str]:
    """The names of the groups whose slots operators look at: those with the most waiting, then the fullest."""
    shown = [group for group in groups if group.limit is not None and group.active and group.active <= MOST_SLOTS]
    shown.sort(key=lambda group: (-group.waiting, -group.active / max(group.limit or 1, 1), group.group))
    return [group.group for group in shown[:MOST_GROUPS]]


def slots_of(groups: Sequence[GroupStatus]) -> Slots:
    return {group.group: {slot.slot_id: _held(slot) for slot in group.slots} for group in groups}


def all_of(slots: Slots) -> dict[str, list[HeldSlot] | None]:
    return {group: list(held.values()) for group, held in slots.items()}


def changes(before: Slots, after: Slots) -> dict[str, list[HeldSlot] | None]:
    """By group, the slots that are not as they were; None for a group that is no longer among them."""
    found: dict[str, list[HeldSlot] | None] = {group: None for group in before if group not in after}
    for group, held in after.items():
        known = before.get(group, {})
        changed = [slot for number, slot in held.items() if known.get(number) != slot]
        changed += [HeldSlot(number) for number in known if number not in held]
        if changed or group not in before:
            found[group] = changed
    return found


def _held(slot: SlotInfo) -> HeldSlot:
    # A token is the microsecond at which the lease was given, greater than all before it.
    since, expires_at = int(slot.token) // 1000, int(slot.expires_at.timestamp() * 1000)
    return HeldSlot(slot.slot_id, slot.holder, slot.worker_id, since, expires_at)
