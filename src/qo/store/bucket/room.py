"""Which slots may be taken now. A pure function of the limit and the slots that are held."""

from __future__ import annotations

from collections.abc import Collection


def slots_to_try(limit: int, held: Collection[int]) -> list[int]:
    """The free slots below a bound. The bound plus the number of slots held at or above it is at most the limit.

    The bound is the limit itself, unless the limit was lowered while slots above it were held. Counting the holders
    and then taking any free slot would not be safe: two contenders could see the same count and take different slots.
    """
    bound = limit
    while bound and bound + sum(slot_id >= bound for slot_id in held) > limit:
        bound -= 1
    return [slot_id for slot_id in range(bound) if slot_id not in held]
