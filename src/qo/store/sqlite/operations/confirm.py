"""confirm: a job that waits for a person joins the line again with one more batch of iterations.

Writes   the job
Answers  the job as it is now
Events   queued. Audit "confirm"
"""

from __future__ import annotations

from qo.job import Job, State
from qo.policy.confirming import granted_after
from qo.policy.lifecycle import Change, refusal
from qo.store.sqlite.operations.read_jobs import with_position
from qo.store.sqlite.shared.hand_over import hand_over
from qo.store.sqlite.shared.line import JOIN_FIELDS, join
from qo.store.sqlite.shared.overdue import drop_start_by
from qo.store.sqlite.shared.rows import by_id, save
from qo.store.sqlite.shared.step import Step


def confirm(step: Step, job_id: str, *, by: str | None = None) -> Job:
    row = by_id(step.db, job_id)
    if row.state != State.CONFIRMING:
        raise refusal(job_id, row.state, Change.CONFIRM)
    drop_start_by(step, row)
    row.attempts = 0
    row.confirming_at = row.message = None
    row.iterations_granted = granted_after(row.iterations_granted, row.iterations_batch, row.iterations_max)
    join(step, row)
    save(step.writes, row, *JOIN_FIELDS, "attempts", "confirming_at", "message", "iterations_granted")
    step.audit(by, "confirm", row.id, {"iterations_granted": row.iterations_granted})
    hand_over(step)
    return with_position(step, row.id)
