"""The slots that turns keep in the reference model."""

from __future__ import annotations

from tests.conformance.model.state import JobRow, TicketRow, certain

Waiting = JobRow | TicketRow


class Kept:
    """For each group, those that ask for a slot of it to be kept, in the order of the line. One slot is kept, for the
    first of them. Worked out when a walk begins; those that get their slots in it no longer ask."""

    def __init__(self) -> None:
        self.asking: dict[str, list[Waiting]] = {}

    def first(self, group: str) -> Waiting | None:
        return next(iter(self.asking.get(group, [])), None)

    def before(self, group: str, key: int) -> int:
        first = self.first(group)
        return 1 if first is not None and certain(first.key) < key else 0

    def without(self, *gone: Waiting) -> Kept:
        kept = Kept()
        for group, asking in self.asking.items():
            kept.asking[group] = [one for one in asking if not any(one is other for other in gone)]
        return kept

    def groups_of(self, waiting: Waiting) -> list[str]:
        """The groups in which a slot is kept for it."""
        return [group for group in self.asking if self.first(group) is waiting]


def name_of(waiting: Waiting) -> str:
    return waiting.id if isinstance(waiting, JobRow) else waiting.holder
