"""The portion that the parts of one step share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from qo.policy.groups import within_portion
from qo.values import looks

T = TypeVar("T")


class Share:
    """What is left of a step's portion, and whether something was left over for the next step.

    A part reads one item more than is left, so that it knows whether there are more.
    """

    def __init__(self, portion: int) -> None:
        self.left = portion
        self.more = False

    @property
    def and_one(self) -> int:
        return self.left + 1

    def take(self, found: Sequence[T], groups: Callable[[T], int] = lambda _: 1) -> Sequence[T]:
        """The first items that fit. One with more than eight groups counts as several."""
        counts = [groups(item) for item in found]
        taken = found[: within_portion(self.left, counts)]
        self.left = max(0, self.left - sum(max(1, looks(count)) for count in counts[: len(taken)]))
        self.more |= len(taken) < len(found)
        return taken
