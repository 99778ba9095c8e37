"""Turns in a replay: which jobs in line have one, which slots they keep, and who takes one next.

The rules are those of a claim (`store/__init__.py`). A job is passed when it is looked at and put aside. The second
way of being passed, by a quicker worker of another task, does not exist in a replay: it has no workers that race.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from qo.values import Bounds

MOST_TURNS = Bounds().turns


class Passed(msgspec.Struct, frozen=True, kw_only=True):
    """How often jobs in line were passed before the replay begins, and which have a turn, by their rank from 0."""

    times: dict[int, int] = {}
    turns: frozenset[int] = frozenset()
    turn_after: int = 0
    """0: there are no turns."""


class Needs(msgspec.Struct, frozen=True, gc=False):
    """The resources of a kind of jobs, as far as turns ask about them. All are indices into the rooms.

    `near` and `far` are groups with a limit. `shut` have no room while one of the groups is paused or closed.
    """

    near: tuple[int, ...] = ()
    far: tuple[int, ...] = ()
    shut: tuple[int, ...] = ()
    can_start: bool = True


class Turns:
    def __init__(self, passed: Passed, line: Sequence[int], needs: Sequence[Needs]) -> None:
        self._line = line
        self._needs = needs
        self._after = passed.turn_after
        self._times = dict(passed.times)
        self._turns = sorted(passed.turns)
        self._due: list[int] = []
        self.kept: dict[int, int] = {}
        """By resource, the rank of the job that a slot is kept for."""

    def room_for(self, resource: int, index: int, room: Sequence[int]) -> int:
        return room[resource] - (1 if self.kept.get(resource, index) < index else 0)

    def put_aside(self, index: int) -> None:
        if self._after:
            self._times[index] = times = self._times.get(index, 0) + 1
            if times >= self._after:
                self._due.append(index)

    def started(self, index: int) -> None:
        if index in self._turns:
            self._turns.remove(index)
            self.kept = {resource: first for resource, first in self.kept.items() if first != index}

    def work_out(self, room: Sequence[int]) -> set[int]:
        """Which slots are kept from now on. Returns the resources of which more or less is kept than before."""
        for index in sorted(self._due):
            if index not in self._turns and len(self._turns) < MOST_TURNS:
                self._turns.append(index)
        self._due.clear()
        if not self._turns and not self.kept:
            return set()
        before, self.kept = self.kept, {}
        for index in sorted(self._turns):
            needs = self._needs[self._line[index]]
            if not needs.can_start or any(room[resource] <= 0 for resource in needs.shut):
                continue
            has_near_room = all(self.room_for(resource, index, room) > 0 for resource in needs.near)
            for resource in (*needs.near, *(needs.far if has_near_room else ())):
                self.kept.setdefault(resource, index)
        return {each for each in {*before, *self.kept} if before.get(each) != self.kept.get(each)}
