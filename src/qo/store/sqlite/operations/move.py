"""move: put a job in line directly before or after another one.

Writes   the job's key and priority; where there is no place left, the keys of its nearest neighbours
Answers  the job as it is now
Events   moved. Audit "move"
"""

from __future__ import annotations

from typing import Any

from qo.errors import MoveRefused
from qo.event import MOVED
from qo.job import Displaced, Job, State
from qo.policy.audit import changed_since
from qo.policy.lifecycle import Change, refusal
from qo.policy.ordering import (
    CELL,
    PLACE_BITS,
    SPREAD_AT_MOST,
    order_key,
    place_between,
    place_of,
    priority_of,
    spread_places,
)
from qo.store.sqlite.operations.read_jobs import with_position
from qo.store.sqlite.shared import sql
from qo.store.sqlite.shared.hand_over import hand_over
from qo.store.sqlite.shared.lanes import JOBS
from qo.store.sqlite.shared.line import (
    DISPLACED_FIELDS,
    LINE_FIELDS,
    end_turn,
    enter_again,
    note_displacement,
    note_disturbance,
    take_new_key,
)
from qo.store.sqlite.shared.rows import JobRow, by_id, save, select
from qo.store.sqlite.shared.step import Step
from qo.store.sqlite.shared.undoing import undone_of_job


def move(
    step: Step,
    job_id: str,
    *,
    before: str | None = None,
    after: str | None = None,
    by: str | None = None,
    undoes: int | None = None,
) -> Job:
    other_id = before if before is not None else after
    assert other_id is not None
    if other_id == job_id:
        raise MoveRefused(f"Job {job_id!r} cannot be moved beside itself; name another job in line.")
    row, other = by_id(step.db, job_id), by_id(step.db, other_id)
    for standing in (row, other):
        _check_in_line(standing)
    assert other.key is not None
    if undoes is not None:
        _check_undone(step, row, other, undoes)
    former = _former(step, row)
    band = priority_of(other.key)
    ahead, behind = _neighbours(step, row, other.key, includes_other_ahead=after is not None)
    _vacate(step, [row])
    place = _make_room(step, row, ahead, behind, next_to_high=before is not None)
    row.priority = other.priority
    note_displacement(row, Displaced.MOVED, order_key(band, place))
    end_turn(step, row)
    enter_again(step, row, order_key(band, place))
    _save_place(step, row)
    detail = {"before": before} if before is not None else {"after": after}
    step.event(MOVED, row.id, detail)
    step.audit(by, "move", row.id, {**detail, "from": former, "key": str(row.key)})
    hand_over(step)
    return with_position(step, row.id)


def _former(step: Step, row: JobRow) -> dict[str, Any]:
    """The job's priority, and the jobs that it stands directly before and after, for an undo."""
    in_line = "SELECT id FROM job WHERE state = 'queued'"
    behind = sql.value(step.db, f"{in_line} AND key > ? ORDER BY key LIMIT 1", (row.key,))
    ahead = sql.value(step.db, f"{in_line} AND key < ? ORDER BY key DESC LIMIT 1", (row.key,))
    return {"priority": row.priority, "before": behind, "after": ahead}


def _check_undone(step: Step, row: JobRow, other: JobRow, entry_id: int) -> None:
    detail = undone_of_job(step, row, entry_id)
    if "key" not in detail or detail["from"]["priority"] != other.priority:
        raise changed_since(row.id, entry_id)


def _check_in_line(row: JobRow) -> None:
    if row.state != State.QUEUED:
        raise refusal(row.id, row.state, Change.MOVE)


def _neighbours(step: Step, row: JobRow, key: int, *, includes_other_ahead: bool) -> tuple[list[JobRow], list[JobRow]]:
    """The jobs before and after the gap within the neighbour's priority, nearest first, without the moved one."""
    band = priority_of(key)
    low, high = band << PLACE_BITS, (band + 1) << PLACE_BITS
    ahead_of, behind_of = ("<=", ">") if includes_other_ahead else ("<", ">=")
    limit = SPREAD_AT_MOST // 2 + 1
    line = "state = 'queued' AND number != ?1 AND key >= ?2 AND key < ?3"
    ahead = select(
        step.db, f"{line} AND key {ahead_of} ?4 ORDER BY key DESC LIMIT ?5", (row.number, low, high, key, limit)
    )
    behind = select(
        step.db, f"{line} AND key {behind_of} ?4 ORDER BY key LIMIT ?5", (row.number, low, high, key, limit)
    )
    return list(ahead), list(behind)


def _make_room(step: Step, row: JobRow, ahead: list[JobRow], behind: list[JobRow], *, next_to_high: bool) -> int:
    """A place in the gap; where there is none left, the nearest neighbours are spread out first."""
    ceiling = step.number("next_sequence") * CELL
    places_ahead, places_behind = _places(ahead), _places(behind)
    place = place_between(
        places_ahead[0] if places_ahead else -1,
        places_behind[0] if places_behind else ceiling,
        next_to_high=next_to_high,
        taken=lambda place: _owner(step, place) is not None,
    )
    if place is not None:
        return place
    neighbours = {None, *(neighbour.number for neighbour in (*ahead, *behind))}
    spread = spread_places(
        places_ahead, places_behind, ceiling=ceiling, taken=lambda place: _owner(step, place) not in neighbours
    )
    if spread is None:
        raise MoveRefused(
            f"Job {row.id!r} cannot be moved there: no place is left between its neighbours, even when "
            f"{SPREAD_AT_MOST} of them are spread out; move it beside another job."
        )
    new_ahead, place, new_behind = spread
    moves = [*reversed([*zip(ahead, new_ahead, strict=False)]), *zip(behind, new_behind, strict=False)]
    _vacate(step, [neighbour for neighbour, _ in moves])
    for neighbour, new_place in moves:
        note_disturbance(neighbour)
        take_new_key(step, neighbour, order_key(priority_of(neighbour.key or 0), new_place))
        _save_place(step, neighbour)
    return place


def _vacate(step: Step, rows: list[JobRow]) -> None:
    """Give up places that may change hands in this step, before any of them is taken again."""
    for row in rows:
        assert row.lane is not None
        step.lanes.load(JOBS, row.lane)  # as it is before any key is given up
    for row in rows:
        step.db.execute("DELETE FROM moved WHERE number = ?", (row.number,))
        step.db.execute("UPDATE job SET key = -number WHERE number = ?", (row.number,))


def _save_place(step: Step, row: JobRow) -> None:
    step.db.execute("INSERT INTO moved VALUES (?, ?)", (place_of(row.key or 0), row.number))
    save(step.writes, row, *LINE_FIELDS, *DISPLACED_FIELDS, "priority")


def _owner(step: Step, place: int) -> int | None:
    owner: int | None = sql.value(step.db, "SELECT number FROM moved WHERE place = ?", (place,))
    return owner


def _places(rows: list[JobRow]) -> list[int]:
    return [place_of(row.key or 0) for row in rows]
