"""Which slots may be taken now. Pure: what is known goes in, numbers come out."""

from __future__ import annotations

from collections.abc import Collection


def slots_to_try(limit: int, held: Collection[int]) -> list[int]:
    """The free numbers below the largest bound at which all that are held from it on, and every number below it,
    are no more than the limit.

    The bound is the limit itself unless the limit was lowered and holders have stayed above it. To count them and
    then take any free number would not do: several contenders would count the same and each take another one.
    """
    bound = limit
    while bound and bound + sum(slot_id >= bound for slot_id in held) > limit:
        bound -= 1
    return [slot_id for slot_id in range(bound) if slot_id not in held]
