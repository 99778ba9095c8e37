"""Lanes during a step. The rules are in `store/__init__.py`.

A lane has no row of its own. Its first job, or its first ticket, is marked as such and has the group that the lane is
parked in; all others of the lane have neither. `settle` marks the next one of every lane whose first one has left.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from qo.store.sqlite.shared import sql
from qo.store.sqlite.shared.groups import Groups
from qo.store.sqlite.shared.writes import Writes

Member = int | str
"""A job's number, or the holder of a ticket."""
First = tuple[Member, int, str | None]
"""The first member of a lane, its key, and the group that it is parked in."""
GroupsOf = Callable[[], tuple[str, ...]]
"""The groups of a job without its gates, or of a ticket. Called only where the lane is looked at."""


class Kind:
    """The statements for lanes of jobs, or of tickets."""

    def __init__(self, table: str, *, member: str, lane: str) -> None:
        self.table = table
        self.first = f"SELECT {member}, key, parked FROM {table} WHERE {lane} = ? ORDER BY key LIMIT 1"
        self.first_of_others = (
            f"SELECT {member}, key FROM {table} WHERE {lane} = ? AND {member} <> ? ORDER BY key LIMIT 1"
        )
        self.mark = f"UPDATE {table} SET first = 1, parked = ? WHERE {member} = ?"
        self.unmark = f"UPDATE {table} SET first = NULL, parked = NULL WHERE {member} = ?"


JOBS = Kind("job", member="number", lane="lane")
TICKETS = Kind("ticket", member="holder", lane="groups")


class Entry(NamedTuple):
    """What the row of a job or ticket says about its lane."""

    first: bool
    parked: str | None


BEHIND = Entry(first=False, parked=None)


class _Lane:
    __slots__ = ("first", "first_left", "key", "parked")

    def __init__(self, found: First | None) -> None:
        self.first: Member | None = None
        """None when the lane is empty."""
        self.key = 0
        self.parked: str | None = None
        if found is not None:
            self.first, self.key, self.parked = found
        self.first_left = False
        """The first one has left the lane in this step, and the next one was not read yet."""


class Lanes:
    def __init__(self, writes: Writes, groups: Groups) -> None:
        self._writes = writes
        self._groups = groups
        self._lanes: dict[tuple[Kind, str], _Lane] = {}
        self._to_settle: dict[tuple[Kind, str], _Lane] = {}

    def load(self, kind: Kind, name: str, first: First | None = None) -> _Lane:
        """`first` is what a caller has read of the first member in this step."""
        lane = self._lanes.get((kind, name))
        if lane is None:
            # Whatever changes a lane goes through this cache, so nothing that waits in `Writes` is about this lane, and
            # what the caller has read is still so.
            lane = _Lane(first or sql.row(self._writes.connection, kind.first, (name,)))
            self._lanes[kind, name] = lane
        return lane

    def enter(self, kind: Kind, name: str, member: Member, key: int, groups: GroupsOf) -> Entry:
        """Join a lane. The caller writes the row as this returns it."""
        lane = self.load(kind, name)
        if lane.first_left:
            self._find_first(kind, name, lane)
        if lane.first is not None and lane.key < key:
            return BEHIND
        return self._look_at(kind, lane, member, key, groups)

    def enter_again(self, kind: Kind, name: str, member: Member, key: int, groups: GroupsOf) -> Entry:
        """Take another key within the lane."""
        lane = self.load(kind, name)
        if lane.first_left:
            self._find_first(kind, name, lane)
        if lane.first != member:
            return BEHIND if lane.key < key else self._look_at(kind, lane, member, key, groups)
        other = sql.row(self._writes.db, kind.first_of_others, (name, member))
        if other is None or key < other[1]:
            return self._look_at(kind, lane, member, key, groups)
        lane.first, lane.key = other
        self._write(kind, kind.mark, (lane.parked, lane.first))
        self._groups.parked_changed(lane.parked)
        return BEHIND

    def take_new_key(self, kind: Kind, name: str, member: Member, key: int) -> None:
        """Take another key at the same position of the lane, which is not looked at."""
        lane = self.load(kind, name)
        if lane.first == member:
            lane.key = key
            self._groups.parked_changed(lane.parked)

    def leave(self, kind: Kind, name: str, member: Member, first: First | None = None) -> None:
        """The caller takes the row out of the lane right afterwards. `first`: see `load`."""
        lane = self.load(kind, name, first)
        if lane.first == member and not lane.first_left:
            lane.first_left = True
            self._to_settle[kind, name] = lane
            self._groups.parked_changed(lane.parked)

    def look_again(self, kind: Kind, name: str, groups: GroupsOf) -> None:
        """Look at a lane whose groups have changed."""
        lane = self.load(kind, name)
        if lane.first is not None:
            entry = self._look_at(kind, lane, lane.first, lane.key, groups)
            self._write(kind, kind.mark, (entry.parked, lane.first))

    def park(self, kind: Kind, name: str, member: Member, key: int, group: str) -> None:
        """Park a lane whose next one, this member, was found blocked by this group.

        It is not the first one where a hand-over leaves those before it to their workers.
        """
        lane = self.load(kind, name)
        if lane.first_left:
            lane.first, lane.key, lane.first_left = member, key, False
            self._to_settle.pop((kind, name), None)
        self._put_aside(lane, group)
        self._write(kind, kind.mark, (group, lane.first))

    def settle(self) -> None:
        """Mark the first one of every lane whose first one has left."""
        to_settle, self._to_settle = self._to_settle, {}
        for (kind, name), lane in to_settle.items():
            self._find_first(kind, name, lane)

    def _find_first(self, kind: Kind, name: str, lane: _Lane) -> None:
        lane.first_left = False
        found = sql.row(self._writes.db, kind.first, (name,))
        if found is None:
            lane.first = lane.parked = None
            return
        lane.first, lane.key, _ = found
        self._write(kind, kind.mark, (lane.parked, lane.first))

    def _look_at(self, kind: Kind, lane: _Lane, member: Member, key: int, groups: GroupsOf) -> Entry:
        if lane.first is not None and lane.first != member:
            self._write(kind, kind.unmark, (lane.first,))
        lane.first, lane.key = member, key
        self._put_aside(lane, self._groups.first_without_room(groups()))
        return Entry(first=True, parked=lane.parked)

    def _put_aside(self, lane: _Lane, group: str | None) -> None:
        before, lane.parked = lane.parked, group
        self._groups.parked_changed(before)
        if group is not None and group != before:
            self._groups.parked_changed(group)  # it may get room in the same step
            self._groups.rejected(group)

    def _write(self, kind: Kind, statement: str, bindings: tuple[Member | None, ...]) -> None:
        self._writes.add(kind.table, statement, bindings)
