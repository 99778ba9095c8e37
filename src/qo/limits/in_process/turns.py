"""Turns in process: slots that are kept for waiters that were passed too often.

A waiter is passed when a hand-over looks at it and has to park its line at another group, so callers behind it may get
the slot that came free. Passed often enough, it has a turn: one slot of each of its groups that has a limit is kept,
and callers behind it do not get it. However many turns need a group, one slot of it is kept, for the first of them in
line. So that one gets all its slots once their present holders have left, whatever the other turns need.

The stores also count a slot that a caller behind takes in the group where a waiter is parked. In process that cannot
happen: what has no room for a waiter has none for those behind it.
"""

from __future__ import annotations

from collections.abc import Iterable

from qo.limits.in_process.line import NOBODY, UNLIMITED, Group, Line
from qo.values import DEFAULT_TURN_AFTER, Bounds

NEVER = UNLIMITED
BOUNDS = Bounds()


class Turns(dict[int, Line]):
    """The lines whose first waiter has a turn, by the key of that waiter. Used with the lock of the slots held."""

    def __init__(
        self, *, after: int = DEFAULT_TURN_AFTER, most: int = BOUNDS.turns, most_groups: int = BOUNDS.turn_groups
    ) -> None:
        """A waiter that was passed `after` times takes a turn; 0 switches turns off."""
        super().__init__()
        self.after = after or NEVER
        self._most = most
        self._most_groups = most_groups
        self._kept: dict[Group, int] = {}

    def begin(self, passed: Iterable[Line]) -> None:
        """The first waiters of these lines were just passed, and often enough. They are in the order of their keys.

        A waiter that finds no room among the turns tries again when it is passed again.
        """
        for line in passed:
            key = line.waiters[0].key
            if key in self:
                continue
            ending = self._to_end_for(key, line)
            if ending is not None:
                for other in ending:
                    del self[other]
                self[key] = line
                self.keep_slots()

    def end(self, key: int) -> list[Group]:
        """The waiter got its slots or left. Returns the groups that have room now for some that had none."""
        del self[key]
        return self.keep_slots()

    def keep_slots(self) -> list[Group]:
        """Work out which slots are kept, after a change of the turns or of a limit.

        Returns the groups in which the slot is no longer kept, or for a turn further behind: some callers that it
        stopped may go.
        """
        kept: dict[Group, int] = {}
        for key in sorted(self):
            for group in _groups_to_keep(self[key]):
                kept.setdefault(group, key)
        eased = []
        for group in {**self._kept, **kept}:
            before = group.kept_for
            group.keep_slot_for(kept.get(group, NOBODY))
            if group.kept_for > before:
                eased.append(group)
        self._kept = kept
        return eased

    def _to_end_for(self, key: int, line: Line) -> list[int] | None:
        """The turns that end so that this waiter can have one: none while there is room. None: it cannot have one.

        Only a turn that keeps nothing ends, the last in line first, and only for one that would keep something.
        """
        ending: list[int] = []
        if self._has_room_for(line, ending):
            return ending
        if all(group.kept_for < key for group in _groups_to_keep(line)):
            return None
        for other in sorted(self.keys() - self._kept.values(), reverse=True):
            ending.append(other)
            if self._has_room_for(line, ending):
                return ending
        return None

    def _has_room_for(self, line: Line, ending: list[int]) -> bool:
        staying = [self[key] for key in self if key not in ending]
        groups = {group for each in (*staying, line) for group in each.groups}
        return len(staying) < self._most and len(groups) <= self._most_groups


def _groups_to_keep(line: Line) -> list[Group]:
    """The groups that have a limit. None while one of them lets no caller in: the others would be kept for nothing."""
    if not all(group.limit for group in line.groups):
        return []
    return [group for group in line.groups if group.limit != UNLIMITED]
