"""How jobs have moved in line since they joined it. Jobs ahead that started are no movement."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence

import msgspec

from qo.policy.ordering import order_key, place_of, sequence_drawn
from qo.values import InLine

OF_A_PRIORITY = "priority:"


class Movement(msgspec.Struct, frozen=True, gc=False):
    gained: int = 0
    """How many jobs behind it would be ahead of it without a move, another priority or aging of this job."""
    placed_ahead: int = 0
    """How many jobs ahead of it joined after it did."""


STILL = Movement()


def movements(line: Sequence[InLine]) -> dict[str, Movement]:
    """The movement of each job of the front of the line that has moved. Jobs behind that part are not counted."""
    keys = [job.key for job in line]
    ahead: list[int] = []
    """The sequences of the jobs ahead, sorted."""
    found: dict[str, Movement] = {}
    for rank, job in enumerate(line):
        gained = max(bisect_left(keys, _own_key(job)) - rank - 1, 0)
        placed_ahead = 0
        sequence = sequence_drawn(job.key, job.undisturbed_key)
        if sequence is not None:
            placed_ahead = len(ahead) - bisect_right(ahead, sequence)
            insort(ahead, sequence)
        if gained or placed_ahead:
            found[job.id] = Movement(gained, placed_ahead)
    return found


def _own_key(job: InLine) -> int:
    """The key that the job would have if nobody had changed it and it had not aged."""
    if job.undisturbed_key is not None:
        return job.undisturbed_key
    # Aging changes the order only: the group of the job's priority stays what a person last set.
    priority = next((group for group in job.groups if group.startswith(OF_A_PRIORITY)), None)
    return job.key if priority is None else order_key(int(priority.removeprefix(OF_A_PRIORITY)), place_of(job.key))
