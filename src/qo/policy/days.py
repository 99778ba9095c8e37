"""Days of the quota (always UTC), and how deferred jobs are spread over a day."""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence

DAY_MS = 86_400_000


def day_of(at_ms: int) -> int:
    return at_ms // DAY_MS


def midnight(day: int) -> int:
    return day * DAY_MS


def add_due_time(times: Sequence[int], new: int) -> list[int]:
    """The due times of one user's deferred jobs of a day with a new time added, sorted and distinct.

    The caller gives them to the jobs in order of submission. So the times stay evenly spread and the user's jobs keep
    their order. Giving each new job a later time than the last would crowd the end of the hour.
    """
    taken = set(times)
    while new in taken:
        new += 1
    dealt = sorted(times)
    insort(dealt, new)
    return dealt
