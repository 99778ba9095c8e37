"""Days of the quota (always UTC), and how deferred jobs are spread over one."""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence

DAY_MS = 86_400_000


def day_of(at_ms: int) -> int:
    return at_ms // DAY_MS


def midnight(day: int) -> int:
    return day * DAY_MS


def add_due_time(times: Sequence[int], new: int) -> list[int]:
    """The due times of one user's deferred jobs of a day, sorted and distinct, with one more among them.

    They are dealt out again in order of submission. Drawn evenly, they stay even, and one user's jobs
    keep their order: giving each new job a later time than the last would crowd the end of the hour.
    """
    taken = set(times)
    while new in taken:
        new += 1
    dealt = sorted(times)
    insort(dealt, new)
    return dealt
