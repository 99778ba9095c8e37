"""How much goes to the store in one call, so that no step holds it for more than a few milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from qo.values import GROUPS_A_LOOK, Advance, Outcome, Submission, Ticket, looks

Item = TypeVar("Item")

MOST_BYTES = 1024 * 1024
"""The most bytes of payloads, results or checkpoints in one call. A single item may be as large as this."""
RENEW_AT_ONCE = 250


def _one(_: object) -> int:
    return 1


def _nothing(_: object) -> int:
    return 0


class Portion(Generic[Item]):
    """The first items of a list that go to the store together: as many as `most` and MOST_BYTES allow, at least one."""

    def __init__(
        self, most: int, *, counts: Callable[[Item], int] = _one, size: Callable[[Item], int] = _nothing
    ) -> None:
        """`counts` returns what an item counts for towards `most`, `size` how many bytes it has."""
        self.most = most
        self._counts = counts
        self._size = size

    def length(self, items: Iterable[Item]) -> int:
        """The number of these items that the next call takes; 0 if there are none."""
        length = count = size = 0
        for item in items:
            count += self._counts(item)
            size += self._size(item)
            if length and (count > self.most or size > MOST_BYTES):
                break
            length += 1
        return length

    def cut(self, items: list[Item]) -> tuple[list[Item], list[Item]]:
        """The next call's items, and those that stay."""
        length = self.length(items)
        return items[:length], items[length:]


# --- what an item counts for ------------------------------------------------------------------------------------


def submission_count(submission: Submission) -> int:
    """A job of 64 groups of its own costs the store about nine times what one without any does."""
    return 1 + len(submission.groups) // GROUPS_A_LOOK


def ticket_count(ticket: Ticket) -> int:
    return looks(len(ticket.groups))


def payload_size(submission: Submission) -> int:
    return len(submission.payload)


def result_size(outcome: Outcome) -> int:
    return len(outcome.result or b"")


def checkpoint_size(advance: Advance) -> int:
    return len(advance.checkpoint or b"")
