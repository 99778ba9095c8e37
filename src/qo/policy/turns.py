"""Turns: a job or caller that needs busy groups has free slots of them kept for it, so that it does not starve.

A job is *passed* when it is looked at and put aside, or when a job or caller behind it takes a slot in the group that
it is parked in. Passed often enough, it takes a turn. `store/__init__.py` has the rules; stores keep the turns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple, Protocol

from qo.policy.groups import GLOBAL

NEAR_KINDS = ("user:", "project:", "tier:", "parent:")


class Turn(NamedTuple):
    """A job or caller whose turn it is. `task` is None for a caller."""

    key: int
    name: str
    task: str | None
    groups: tuple[str, ...]
    is_overdue: bool = False
    """The job has not started by its `start_by`, and never will."""


class Room(Protocol):
    """What has to be known of a group."""

    @property
    def limit(self) -> int | None: ...

    @property
    def active(self) -> int: ...

    @property
    def paused(self) -> bool: ...

    @property
    def closed_until(self) -> object: ...


class Kept:
    """The slots that turns keep, worked out when a claim or a hand-over begins.

    Of each group, one slot is kept, for the first turn in line that asks for it. The others that ask for it follow when
    that one has started.
    """

    def __init__(self) -> None:
        self._turns: dict[str, list[Turn]] = {}

    def __bool__(self) -> bool:
        return bool(self._turns)

    def ask(self, turn: Turn, groups: Iterable[str]) -> None:
        """Turns ask in the order of the line."""
        for group in groups:
            self._turns.setdefault(group, []).append(turn)

    def end(self, key: int) -> None:
        """The job or caller with this key has got its slots."""
        for turns in self._turns.values():
            turns[:] = [turn for turn in turns if turn.key != key]

    def first(self, group: str) -> Turn | None:
        """The one that a slot of this group is kept for."""
        turns = self._turns.get(group)
        return turns[0] if turns else None

    def before(self, group: str, key: int) -> int:
        """How many slots of the group are kept for a turn before this key: 0 or 1."""
        turns = self._turns.get(group)
        return 1 if turns and turns[0].key < key else 0

    def groups_of(self, turn: Turn) -> list[str]:
        """The groups in which a slot is kept for this turn."""
        return [group for group, turns in self._turns.items() if turns and turns[0].key == turn.key]


def is_near(group: str, task: str | None) -> bool:
    """Whether a turn keeps a slot of the group whatever its other groups are like: the task's own group, and what
    follows from the job's user."""
    return task is not None and (group == task or group.startswith(NEAR_KINDS))


def kept_slots(turns: Iterable[Turn], room_of: Callable[[str], Room], served: Callable[[str], bool]) -> Kept:
    """The slots that these turns keep, which are in the order of the line. `served` says whether a live worker handles
    a task: a slot is not kept for a job that nothing can start."""
    kept = Kept()
    for turn in turns:
        if turn.is_overdue or (turn.task is not None and not served(turn.task)):
            continue
        rooms = {group: room_of(group) for group in turn.groups}
        if any(room.paused or room.closed_until is not None or room.limit == 0 for room in rooms.values()):
            continue
        limited = [group for group, room in rooms.items() if room.limit is not None and group != GLOBAL]
        near = [group for group in limited if is_near(group, turn.task)]
        has_near_room = all(rooms[group].active + kept.before(group, turn.key) < _limit(rooms[group]) for group in near)
        kept.ask(turn, limited if has_near_room else near)
    return kept


def _limit(room: Room) -> int:
    assert room.limit is not None
    return room.limit


def rests_to_end(
    new: Turn,
    turns: Sequence[Turn],
    *,
    most: int,
    most_groups: int,
    keep: Callable[[Sequence[Turn]], Kept],
) -> list[Turn] | None:
    """The turns that end so that `new` can begin, which is none while there is room for it; None when it cannot.

    A turn that keeps nothing gives way, the last in line first, to one that would keep something. `keep` works out
    what turns keep.
    """
    if _fits([*turns, new], most, most_groups):
        return []
    kept = keep(turns)
    resting = [turn for turn in turns if not kept.groups_of(turn)]
    ending: list[Turn] = []
    for turn in sorted(resting, reverse=True):
        ending.append(turn)
        staying = [one for one in turns if one not in ending]
        if _fits([*staying, new], most, most_groups):
            return ending if keep(sorted([*staying, new])).groups_of(new) else None
    return None


def _fits(turns: Collection[Turn], most: int, most_groups: int) -> bool:
    groups = {group for turn in turns for group in turn.groups if group != GLOBAL}
    return len(turns) <= most and len(groups) <= most_groups
