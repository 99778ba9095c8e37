"""set_priority: of a job that waits, or of a parent and all its unfinished jobs.

Writes   priorities and order keys; places are kept
Answers  the jobs as they are now
Events   priority, each job. Audit "priority", each job
"""

from __future__ import annotations

from qo.errors import ParentNotFound
from qo.event import PRIORITY
from qo.job import HELD, Displaced, Job, State
from qo.policy.lifecycle import WAITS, Change, refusal
from qo.policy.ordering import order_key, place_of
from qo.store.sqlite.operations.read_jobs import with_position
from qo.store.sqlite.shared import sql
from qo.store.sqlite.shared.hand_over import hand_over
from qo.store.sqlite.shared.line import DISPLACED_FIELDS, LINE_FIELDS, end_turn, enter_again, note_displacement
from qo.store.sqlite.shared.rows import JobRow, by_id, save, select
from qo.store.sqlite.shared.step import Step
from qo.store.sqlite.shared.undoing import undone_of_job


def set_priority(
    step: Step,
    priority: int,
    *,
    job_id: str | None = None,
    parent: str | None = None,
    by: str | None = None,
    undoes: int | None = None,
) -> tuple[Job, ...]:
    if job_id is not None:
        rows = [_waiting_job(step, job_id)]
        if undoes is not None:
            undone_of_job(step, rows[0], undoes)
    else:
        assert parent is not None
        rows = unfinished_jobs(step, parent)
        step.db.execute("UPDATE parent SET priority = ? WHERE name = ?", (priority, parent))
    for row in rows:
        detail = {"priority": priority, "from": row.priority}
        row.priority = priority
        save(step.writes, row, "priority")
        _reorder(step, row)
        step.event(PRIORITY, row.id, detail)
        step.audit(by, "priority", row.id, detail)
    hand_over(step)
    return tuple(with_position(step, row.id) for row in rows)


def _waiting_job(step: Step, job_id: str) -> JobRow:
    row = by_id(step.db, job_id)
    if row.state not in WAITS:
        raise refusal(job_id, row.state, Change.PRIORITY)
    return row


def _reorder(step: Step, row: JobRow) -> None:
    if row.key is None:
        return
    key = order_key(row.priority, place_of(row.key))
    note_displacement(row, Displaced.PRIORITY, key)
    if State(row.state) in HELD:
        row.key = key
    else:
        end_turn(step, row)
        enter_again(step, row, key)
    save(step.writes, row, *LINE_FIELDS, *DISPLACED_FIELDS)


def unfinished_jobs(step: Step, parent: str) -> list[JobRow]:
    """A parent's jobs that have not ended, by phase, then those without one. Raises ParentNotFound."""
    if sql.value(step.db, "SELECT 1 FROM parent WHERE name = ?", (parent,)) is None:
        raise ParentNotFound(parent)
    return list(select(step.db, "parent = ? AND finished_at IS NULL ORDER BY phase IS NULL, phase, number", (parent,)))
