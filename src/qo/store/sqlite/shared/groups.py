"""Groups during a step: their room, their slots, and the `open` index.

After every step, a group is in open(task) if and only if it has room and has jobs of that task parked, under the key
of the first one. `settle` ensures it for the groups whose room or parked jobs this step has changed; the index is
still right for all others.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

import apsw

from qo.policy.groups import GLOBAL, kind_of
from qo.policy.turns import Kept
from qo.store.sqlite.shared import sql
from qo.store.sqlite.shared.rows import to_json
from qo.store.sqlite.shared.sql import Insert
from qo.store.sqlite.shared.writes import Writes

READ = (
    "SELECT slots, source, paused, closed_until, last_job,"
    " iif(slots IS NULL, 0, (SELECT count(*) FROM slot WHERE grp = grp.name AND token IS NOT NULL))"
    " FROM grp WHERE name = ?"
)
TAKE = Insert("slot", columns=3, on_conflict="ON CONFLICT DO UPDATE SET token = excluded.token")


class Group:
    """One group as this step sees it."""

    __slots__ = (
        "active",
        "closed_until",
        "had_room",
        "held_changed",
        "last_job",
        "limit",
        "mentioned",
        "name",
        "numbers",
        "parked_changed",
        "paused",
        "source",
        "spoken_for",
        "stored",
    )

    def __init__(self, name: str, row: tuple[int | None, int | None, int, int | None, int, int] | None) -> None:
        self.name = name
        self.stored = row is not None
        unlimited = None, None, 0, None, 0, 0
        self.limit, self.source, paused, self.closed_until, self.last_job, self.active = row or unlimited
        self.paused = bool(paused)
        self.numbers: _Numbers | None = None
        self.spoken_for = 0
        """How many slots a hand-over leaves for jobs that could start now."""
        self.had_room = True
        self.parked_changed = False
        self.held_changed = False
        self.mentioned = False

    def has_room(self) -> bool:
        return not self.paused and self.closed_until is None and (self.limit is None or self.active < self.limit)

    def has_room_unspoken(self) -> bool:
        return self.has_room() and (self.limit is None or self.active + self.spoken_for < self.limit)


class _Numbers:
    """The free slot numbers of a group: returned ones, lowest first, then those above the highest held one."""

    __slots__ = ("_free", "_highest")

    def __init__(self, free: list[int], highest: int) -> None:
        heapq.heapify(free)
        self._free = free
        self._highest = highest

    def take(self) -> int:
        if self._free:
            return heapq.heappop(self._free)
        self._highest += 1
        return self._highest

    def give_back(self, number: int) -> None:
        heapq.heappush(self._free, number)


class Groups:
    def __init__(self, writes: Writes) -> None:
        self._writes = writes
        self._groups: dict[str, Group] = {}
        self._touched: dict[str, Group] = {}
        """The groups changed since the last `settle`; a step may read thousands and settle after each caller."""
        self.kept = Kept()
        """The slots that are kept for turns, as of the walk that began last."""
        self._spoken_for: list[Group] = []
        self._rejections: list[str] = []

    @property
    def _db(self) -> apsw.Connection:
        return self._writes.db

    def get(self, name: str) -> Group:
        group = self._groups.get(name)
        if group is None:
            # The settings of groups never wait in `Writes`, and slots wait only for groups that were read before.
            db = self._writes.connection
            group = Group(name, sql.row(db, READ, (name,)))
            group.had_room = group.has_room()
            self._groups[name] = group
        return group

    def has_room(self, name: str) -> bool:
        return self.get(name).has_room()

    def has_room_for(self, name: str, key: int, *, unspoken: bool = False) -> bool:
        """Whether there is a slot for this key, beside the one that is kept for a turn before it."""
        group = self.get(name)
        if not group.has_room():
            return False
        if group.limit is None or not (self.kept or unspoken):
            return True
        spoken_for = group.spoken_for if unspoken else 0
        return group.active + spoken_for + self.kept.before(name, key) < group.limit

    def gate_lets_by(self, task: str, key: int) -> bool:
        """Whether the task's gate, which has room, has room for this key."""
        return not self.kept or self.has_room_for(task, key, unspoken=True)

    def gates_open(self, task: str, *, unspoken: bool = False) -> bool:
        everything, own = self.get(GLOBAL), self.get(task)
        if unspoken:
            return everything.has_room_unspoken() and own.has_room_unspoken()
        return everything.has_room() and own.has_room()

    def speak_for(self, names: tuple[str, ...]) -> None:
        """Leave one slot in each of these groups for a job that could start now."""
        for name in names:
            group = self.get(name)
            group.spoken_for += 1
            self._spoken_for.append(group)

    def forget_spoken_for(self) -> None:
        for group in self._spoken_for:
            group.spoken_for = 0
        self._spoken_for.clear()

    def first_without_room(self, names: tuple[str, ...]) -> str | None:
        for name in names:
            if not self.get(name).has_room():
                return name
        return None

    def first_without_room_for(self, names: tuple[str, ...], key: int) -> str | None:
        if not self.kept:
            return self.first_without_room(names)
        return next((name for name in names if not self.has_room_for(name, key)), None)

    # --- slots ------------------------------------------------------------------------------------------------

    def take(self, name: str, token: int) -> int:
        """Take the lowest free slot of a group for this token, and return its number."""
        group = self.get(name)
        if group.numbers is None:
            group.numbers = self._free_numbers(name)
        number = group.numbers.take()
        group.active += 1
        self._touched[name] = group
        self._writes.add("slot", TAKE, (name, number, token))
        return number

    def free(self, tokens: Sequence[int]) -> dict[int, dict[str, int]]:
        """Free all slots of these tokens. Returns, by token, those in groups with a limit."""
        ended = to_json(tokens)
        held = sql.rows(
            self._db,
            "SELECT token, grp, number FROM json_each(?) AS ended CROSS JOIN slot ON token = ended.value",
            (ended,),
        )
        limited: dict[int, dict[str, int]] = {}
        for token, name, number in held:
            group = self.get(name)
            if group.limit is not None:
                limited.setdefault(token, {})[name] = number
            group.active -= 1
            group.held_changed = True
            self._touched[name] = group
            if group.numbers is not None:
                group.numbers.give_back(number)
        if held:
            self._db.execute("UPDATE slot SET token = NULL WHERE token IN (SELECT value FROM json_each(?))", (ended,))
        return limited

    def held_by(self, token: int) -> dict[str, int]:
        """By group with a limit, the number of the slot that this token holds."""
        return {
            name: number
            for name, number in sql.rows(self._db, "SELECT grp, number FROM slot WHERE token = ?", (token,))
            if self.get(name).limit is not None
        }

    def _free_numbers(self, name: str) -> _Numbers:
        # No slot of a group waits in `Writes` before its numbers were read.
        *free, (highest,) = sql.rows(
            self._writes.connection,
            "SELECT number FROM slot INDEXED BY slot_free WHERE grp = ?1 AND token IS NULL"
            " UNION ALL SELECT coalesce(max(number), -1) FROM slot WHERE grp = ?1",
            (name,),
        )
        return _Numbers([number for (number,) in free], highest)

    def adopt(self, name: str) -> None:
        """Record the running jobs of a group that gets its first limit as its holders.

        Only `global`, a task's group and `priority:` need it; all other groups always record their holders.
        """
        tokens = sql.rows(
            self._db,
            "SELECT token FROM lease"
            " WHERE job IS NOT NULL AND (?1 = 'global' OR task = ?1 OR 'priority:' || priority = ?1)"
            " AND token NOT IN (SELECT token FROM slot WHERE grp = ?1 AND token IS NOT NULL) ORDER BY token",
            (name,),
        )
        for (token,) in tokens:
            self.take(name, token)
        self.get(name).active = _count_holders(self._db, name)

    # --- limits and pauses ------------------------------------------------------------------------------------

    def store(self, group: Group) -> None:
        """Write a group's settings; a group without any has no row."""
        self._touched[group.name] = group
        if group.limit is None and not group.paused and group.closed_until is None:
            self._db.execute("DELETE FROM grp WHERE name = ?", (group.name,))
            group.stored = False
            return
        self._db.execute(
            "INSERT OR REPLACE INTO grp VALUES (?, ?, ?, ?, ?, ?)",
            (group.name, group.limit, group.source, group.paused, group.closed_until, group.last_job),
        )
        group.stored = True

    def mention(self, name: str, job: int) -> None:
        """Note the newest job that named a group, so that `forget` knows when no job can need its limit."""
        group = self.get(name)
        if group.stored:
            group.last_job = job
            group.mentioned = True
            self._touched[name] = group

    # --- parked jobs and the open index -----------------------------------------------------------------------

    def rejected(self, name: str) -> None:
        self._rejections.append(kind_of(name))

    def take_rejections(self) -> list[str]:
        rejections, self._rejections = self._rejections, []
        return rejections

    def parked_changed(self, name: str | None) -> None:
        """Another lane is parked in this group now, or one fewer, or one of them has another key."""
        if name is not None:
            self._touched[name] = group = self.get(name)
            group.parked_changed = True

    def settle(self) -> None:
        """Bring the open index up to date, and delete free numbers above the highest held one."""
        self._writes.flush()
        touched, self._touched = self._touched, {}
        for group in touched.values():
            room = group.has_room()
            if room != group.had_room or (room and group.parked_changed):
                self._refresh_open(group, room)
                group.had_room = room
            group.parked_changed = False
            if group.mentioned:
                self._db.execute("UPDATE grp SET last_job = ? WHERE name = ?", (group.last_job, group.name))
                group.mentioned = False
            if group.held_changed:
                self._trim_slots(group.name)
                group.held_changed = False
                group.numbers = None

    def _refresh_open(self, group: Group, room: bool) -> None:
        self._db.execute("DELETE FROM open WHERE grp = ?", (group.name,))
        if room:
            for task, suspicion, key in self.heads(group.name):
                self._db.execute("INSERT INTO open VALUES (?, ?, ?, ?)", (task, suspicion, group.name, key))

    def heads(self, name: str) -> Iterator[tuple[str, int, int]]:
        """The first of what is parked in a group, of each task and suspicion ("" for callers), with its key."""
        key = sql.value(self._db, "SELECT min(key) FROM ticket WHERE parked = ?", (name,))
        if key is not None:
            yield "", 0, key
        task, suspicion = "", 0
        while True:
            head = sql.row(
                self._db,
                "SELECT task, suspicion, key FROM job WHERE parked = ? AND (task, suspicion) > (?, ?)"
                " ORDER BY task, suspicion, key LIMIT 1",
                (name, task, suspicion),
            )
            if head is None:
                return
            yield head
            task, suspicion, _ = head

    def _trim_slots(self, name: str) -> None:
        self._db.execute(
            "DELETE FROM slot WHERE grp = ?1 AND number >"
            " coalesce((SELECT max(number) FROM slot WHERE grp = ?1 AND token IS NOT NULL), -1)",
            (name,),
        )


def _count_holders(db: apsw.Connection, name: str) -> int:
    count: int = sql.value(db, "SELECT count(*) FROM slot WHERE grp = ? AND token IS NOT NULL", (name,))
    return count
