"""cancel: a job that waits at once, one that runs on request; of a parent all that is unfinished.

Writes   jobs; quota given back, deferred jobs moved forward into it
Answers  the jobs as they are now
Events   cancelled or cancel_wanted; queued or rescheduled for those that moved forward. Audit "cancel"
"""

from __future__ import annotations

from qo.event import CANCEL_WANTED
from qo.job import ENDED, HELD, Job, State
from qo.policy.lifecycle import Change, refusal
from qo.store.sqlite.operations.read_jobs import with_position
from qo.store.sqlite.operations.set_priority import unfinished_jobs
from qo.store.sqlite.shared.hand_over import hand_over
from qo.store.sqlite.shared.lease import end_job
from qo.store.sqlite.shared.overdue import give_quota_back
from qo.store.sqlite.shared.rows import JobRow, by_id, save
from qo.store.sqlite.shared.step import Step


def cancel(
    step: Step,
    *,
    job_id: str | None = None,
    parent: str | None = None,
    message: str | None = None,
    by: str | None = None,
) -> tuple[Job, ...]:
    if job_id is not None:
        rows = [by_id(step.db, job_id)]
    else:
        assert parent is not None
        rows = unfinished_jobs(step, parent)
    never_started = []
    for row in rows:
        if row.state != State.CANCELLED:
            if State(row.state) in ENDED:
                raise refusal(row.id, row.state, Change.CANCEL)
            former = row.state
            _cancel(step, row, message)
            if row.started_at is None:
                never_started.append(row)
            step.audit(by, "cancel", row.id, {"message": message, "from": former})
    give_quota_back(step, never_started)
    hand_over(step)
    return tuple(with_position(step, row.id) for row in rows)


def _cancel(step: Step, row: JobRow, message: str | None) -> None:
    if message is not None:
        row.message = message
    if State(row.state) in HELD:
        row.cancel_wanted = True
        save(step.writes, row, "cancel_wanted", "message")
        step.event(CANCEL_WANTED, row.id)
        return
    end_job(step, row, State.CANCELLED)
