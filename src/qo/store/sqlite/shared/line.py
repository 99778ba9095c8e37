"""Join, enter and leave the line. The rules are in `store/__init__.py`.

These functions change the row in memory and write every index; the caller then saves the row with `LINE_FIELDS`.
"""

from __future__ import annotations

from collections.abc import Iterable

from qo.job import Displaced, State
from qo.policy.groups import GATES
from qo.policy.ordering import (
    PLACE_BITS,
    displacement,
    drawn_place,
    joining_order,
    order_key,
    place_of,
    priority_of,
    was_moved,
)
from qo.store.sqlite.shared import sql
from qo.store.sqlite.shared.lanes import JOBS, Entry
from qo.store.sqlite.shared.rows import JobRow, lane_of, save
from qo.store.sqlite.shared.step import Step

STATE_FIELDS = ("state", "states")
LINE_FIELDS = (*STATE_FIELDS, "key", "lane", "first", "parked", "aged_at")
DISPLACED_FIELDS = ("undisturbed_key", "displaced")
JOIN_FIELDS = (*LINE_FIELDS, *DISPLACED_FIELDS, "joined_at", "position_original", "due_at", "steady_at", "deferred")


def join(step: Step, row: JobRow) -> None:
    """Draw a place and enter the line."""
    place = drawn_place(step.draw_sequence(), row.boost)
    step.reach(row, State.QUEUED)
    row.due_at = row.steady_at = None
    row.deferred = False
    row.joined_at = step.now
    row.undisturbed_key = row.displaced = None
    enter(step, row, order_key(row.priority, place))
    row.position_original = _position_of_newest(step, row)
    step.event(row.state, row.id, {"position": row.position_original})


def in_joining_order(rows: Iterable[JobRow]) -> list[JobRow]:
    """The order in which jobs that join in one step draw their places. `due_at` is None when all are due now."""
    return sorted(rows, key=lambda row: joining_order(row.due_at or 0, row.parent, row.phase, row.number))


def join_all(step: Step, rows: Iterable[JobRow]) -> None:
    for row in rows:
        join(step, row)
        save(step.writes, row, *JOIN_FIELDS)


def come_back(step: Step, row: JobRow, reason: str) -> None:
    """Put a job back at the place that it had before it was claimed."""
    assert row.key is not None
    step.reach(row, State.QUEUED)
    enter(step, row, row.key)
    step.event(row.state, row.id, {"reason": reason})


def enter(step: Step, row: JobRow, key: int) -> None:
    """Enter the line under this key, in the lane of the job."""
    row.key = key
    row.aged_at = step.now
    step.count_waiting(priority_of(key), +1)
    _enter_lane(step, row)


def enter_again(step: Step, row: JobRow, key: int) -> None:
    """Enter the line again after the key or the groups of the job have changed."""
    assert row.key is not None
    step.count_waiting(priority_of(row.key), -1)
    step.count_waiting(priority_of(key), +1)
    row.key = key
    assert row.lane is not None
    if row.lane == lane_of(row):
        _note_entry(row, step.lanes.enter_again(JOBS, row.lane, row.number, key, lambda: step.groups_of(row)[GATES:]))
    else:
        step.lanes.leave(JOBS, row.lane, row.number)
        _enter_lane(step, row)


def take_new_key(step: Step, row: JobRow, key: int) -> None:
    """Stand under another key at the same position in line."""
    assert row.lane is not None
    row.key = key
    step.lanes.take_new_key(JOBS, row.lane, row.number, key)


def _enter_lane(step: Step, row: JobRow) -> None:
    assert row.key is not None
    row.lane = lane_of(row)
    _note_entry(row, step.lanes.enter(JOBS, row.lane, row.number, row.key, lambda: step.groups_of(row)[GATES:]))


def _note_entry(row: JobRow, entry: Entry) -> None:
    row.first, row.parked = entry.first or None, entry.parked


def note_displacement(row: JobRow, reason: Displaced, key: int) -> None:
    """Note that a person is about to give the job this key."""
    assert row.key is not None
    note_disturbance(row)
    assert row.undisturbed_key is not None
    row.displaced = displacement(reason, undisturbed=row.undisturbed_key, old=row.key, new=key, present=row.displaced)


def note_disturbance(row: JobRow) -> None:
    """Note that the job is about to get another key, by a person or to make room for a moved job."""
    if row.undisturbed_key is None:
        row.undisturbed_key = row.key


def end_turn(step: Step, row: JobRow) -> None:
    """Begin to count anew how often the job is passed."""
    if row.passed or row.turn:
        row.passed, row.turn = 0, False
        save(step.writes, row, "passed", "turn")


def leave(step: Step, row: JobRow) -> None:
    """Leave the line and keep the key, so that the job can come back to its place."""
    end_turn(step, row)
    assert row.key is not None
    assert row.lane is not None
    step.count_waiting(priority_of(row.key), -1)
    step.lanes.leave(JOBS, row.lane, row.number, (row.number, row.key, row.parked) if row.first else None)
    row.lane = row.first = row.parked = None
    row.aged_at = None


def give_up_place(step: Step, row: JobRow) -> None:
    """Free the place, which the job will not come back to."""
    if row.key is not None and was_moved(place_of(row.key)):
        step.db.execute("DELETE FROM moved WHERE place = ?", (place_of(row.key),))
    row.key = None


def _position_of_newest(step: Step, row: JobRow) -> int:
    # This place was drawn last, so in its priority only the jobs that its boost has passed stand behind it.
    assert row.key is not None
    own = priority_of(row.key)
    counts = step.waiting()
    up_to_here = sum(count for priority, count in counts.items() if priority <= own)
    if row.boost == 0:
        return up_to_here
    behind: int = sql.value(
        step.db,
        "SELECT count(*) FROM job WHERE state = 'queued' AND key > ? AND key < ?",
        (row.key, (own + 1) << PLACE_BITS),
    )
    return up_to_here - behind
