"""is_claimable: whether a claim might find something now. Asked by `wait_for_work` after every change of the file."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from qo.policy.groups import GATES
from qo.store.sqlite.operations.catch_up import ANY_JOB_DUE
from qo.store.sqlite.operations.read_groups import fallen_ms, looking, uncounted_ms
from qo.store.sqlite.shared import sql, turns
from qo.store.sqlite.shared import suspects as suspected
from qo.store.sqlite.shared.rows import JobRow
from qo.store.sqlite.shared.step import Step
from qo.store.sqlite.shared.walk import Walk


def is_claimable(db: apsw.Connection, *, worker: str, tasks: Sequence[str], suspects: int | None, now: int) -> bool:
    """Whether there is a candidate behind open gates that the worker may take, or something due."""
    if _is_due(db, now):
        return True
    step = looking(db, now)
    if turns.are_there(step) or suspected.are_there(step):
        return _is_found(step, suspected.Taker(step, worker, suspects), tasks)
    return any(_has_candidates(step, task) and step.groups.gates_open(task) for task in tasks)


def _is_due(db: apsw.Connection, now: int) -> bool:
    never_started = "started_at IS NULL AND finished_at IS NULL"
    due: int = sql.value(
        db,
        f"SELECT {ANY_JOB_DUE}"
        " OR EXISTS (SELECT 1 FROM grp WHERE closed_until <= ?2)"
        f" OR EXISTS (SELECT 1 FROM job WHERE start_by <= ?1 AND {never_started})"
        f" OR EXISTS (SELECT 1 FROM job WHERE steady_start_by <= ?2 AND {never_started})"
        " OR EXISTS (SELECT 1 FROM lease WHERE expires_at <= ?3)",
        (now, now - fallen_ms(db), now - uncounted_ms(db)),
    )
    return bool(due)


def _is_found(step: Step, taker: suspected.Taker, tasks: Sequence[str]) -> bool:
    first = Walk(step, taker.sources(tasks), expected=1, passes=taker.passes).next()
    if first is None:
        return False
    assert isinstance(first, JobRow)
    assert first.key is not None
    if taker.may_take(first.suspicion):
        return True
    # It has to become empty for this job; unless the job is blocked, which is for a claim to find out and to note.
    return step.groups.first_without_room_for(step.groups_of(first)[GATES:], first.key) is not None


def _has_candidates(step: Step, task: str) -> bool:
    found: int = sql.value(
        step.db,
        "SELECT EXISTS (SELECT 1 FROM job WHERE task = ?1 AND suspicion = 0 AND first AND parked IS NULL)"
        " OR EXISTS (SELECT 1 FROM open WHERE task = ?1 AND suspicion = 0)",
        (task,),
    )
    return bool(found)
