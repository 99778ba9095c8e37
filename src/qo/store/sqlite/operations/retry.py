"""retry: a failed job joins the line again, as if it had never been tried.

Writes   the job; quota, where the job had given it back
Answers  the job as it is now
Events   queued. Audit "retry"
"""

from __future__ import annotations

from qo.job import Job, State
from qo.policy.days import day_of
from qo.policy.lifecycle import Change, key_is_free, phase_succeeded, refusal, refused_retry
from qo.store.sqlite.operations.read_jobs import state_of_phase, with_position
from qo.store.sqlite.shared.hand_over import hand_over
from qo.store.sqlite.shared.line import JOIN_FIELDS, join
from qo.store.sqlite.shared.overdue import drop_start_by
from qo.store.sqlite.shared.quota import charge
from qo.store.sqlite.shared.rows import by_id, find, save
from qo.store.sqlite.shared.step import Step
from qo.store.sqlite.shared.suspects import suspect_again


def retry(step: Step, job_id: str, *, by: str | None = None) -> Job:
    row = by_id(step.db, job_id)
    if row.state != State.FAILED:
        raise refusal(job_id, row.state, Change.RETRY)
    if row.unique_key is not None:
        other = find(step.db, "unique_key = ? AND finished_at IS NULL", (row.unique_key,))
        if other is not None:
            raise refused_retry(job_id, row.state, until=key_is_free(other.id, row.unique_key))
    before = None if row.phase is None else row.phase - 1
    if before and state_of_phase(step.db, row.parent, before) is not State.SUCCEEDED:
        raise refused_retry(job_id, row.state, until=phase_succeeded(before, row.parent))
    if row.user is not None and row.quota_day is None:
        row.quota_day = day_of(step.now)
        charge(step, row.user, row.quota_day)
    drop_start_by(step, row)
    row.attempts = 0
    row.error = row.stage = row.progress = row.message = row.finished_at = None
    row.worker = row.token = None
    suspect_again(step, row)
    join(step, row)
    save(
        step.writes,
        row,
        *JOIN_FIELDS,
        "quota_day",
        "attempts",
        "error",
        "stage",
        "progress",
        "message",
        "finished_at",
        "worker",
        "token",
    )
    step.audit(by, "retry", row.id, {})
    hand_over(step)
    return with_position(step, row.id)
