"""submit: admit each job or refuse it, one after the other.

Writes   jobs, their payloads, parents, quota, the user's standing, limits; overdue jobs fail and due jobs join first
Answers  for each, the job or the reason
Events   the state of each job accepted. Audit "submit" where the submitter is named
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

from qo.job import NORMAL, Job, State
from qo.policy.admission import CAPPED_DELAY_MS
from qo.policy.days import day_of, midnight
from qo.policy.ordering import parent_order
from qo.policy.start_by import is_never_in_time
from qo.store.sqlite.operations.catch_up import join_due
from qo.store.sqlite.operations.read_jobs import state_of_phase, with_position
from qo.store.sqlite.operations.set_limits import apply_limits
from qo.store.sqlite.operations.set_tier import apply_standing, limit_by_standing, standing_of
from qo.store.sqlite.shared import sql
from qo.store.sqlite.shared.counted_time import steady_now
from qo.store.sqlite.shared.hand_over import hand_over
from qo.store.sqlite.shared.line import join
from qo.store.sqlite.shared.overdue import fail_overdue_jobs, note_start_by
from qo.store.sqlite.shared.quota import charge, defer, first_day_with_room, used_on
from qo.store.sqlite.shared.rows import JobRow, find, insert, to_job, to_json
from qo.store.sqlite.shared.step import Step
from qo.values import Accepted, LimitIgnored, Refusal, RefusalReason, Standing, Submission

INSERT_CONTENT = sql.Insert("content (number, payload, contact, overdue_message)", columns=4)


def submit(step: Step, submissions: Sequence[Submission]) -> list[Accepted | Refusal]:
    fail_overdue_jobs(step)
    join_due(step)
    present = _present_ids(step, submissions)
    answers = []
    for submission in submissions:
        answers.append(_known(step, submission, present) or _admit(step, submission))
        present.add(submission.id)
    hand_over(step)
    return answers


def _present_ids(step: Step, submissions: Sequence[Submission]) -> set[str]:
    """Those of the ids that are known already, by one look for all."""
    wanted = to_json([submission.id for submission in submissions])
    statement = "SELECT job.id FROM json_each(?) AS wanted CROSS JOIN job ON job.id = wanted.value"
    return {job_id for (job_id,) in sql.rows(step.db, statement, (wanted,))}


def _known(step: Step, submission: Submission, present: set[str]) -> Accepted | Refusal | None:
    """The answer where the id, the unique key or the phase is there already, or the job could not start in time."""
    row = find(step.db, "id = ?", (submission.id,)) if submission.id in present else None
    if row is None and submission.unique is not None:
        row = find(step.db, "unique_key = ? AND finished_at IS NULL", (submission.unique,))
    if row is not None:
        standing = None if row.user is None else standing_of(step, row.user)
        return _accepted(step, with_position(step, row.id), standing, known=True)
    if submission.phase is not None:
        taken_by = sql.value(
            step.db,
            "SELECT id FROM job WHERE parent = ? AND phase = ? AND state <> 'cancelled'",
            (submission.parent, submission.phase),
        )
        if taken_by is not None:
            return Refusal(id=submission.id, reason=RefusalReason.PHASE_TAKEN, taken_by=taken_by)
    if is_never_in_time(submission, now=step.now):
        return Refusal(id=submission.id, reason=RefusalReason.OVERDUE)
    return None


def _admit(step: Step, submission: Submission) -> Accepted | Refusal:
    user = submission.user
    present = None if user is None else standing_of(step, user)
    standing = submission.standing or present
    if user is None or standing is None or standing == present:
        return _accept(step, submission, standing, is_new=False)
    # Another standing may move the user's deferred jobs into the line before the cap is looked at, so that
    # a refusal has to undo it.
    step.write()
    step.db.execute("SAVEPOINT standing")
    ignored = apply_standing(step, user, standing, pinned=False, project=submission.project)
    answer = _accept(step, submission, standing, is_new=True, ignored=ignored)
    step.write()
    if isinstance(answer, Refusal):
        step.db.execute("ROLLBACK TO standing")
    step.db.execute("RELEASE standing")
    return answer


def _accept(
    step: Step,
    submission: Submission,
    standing: Standing | None,
    *,
    is_new: bool,
    ignored: tuple[LimitIgnored, ...] = (),
) -> Accepted | Refusal:
    row = _new_row(step, submission, standing)
    deferred_to = _day_it_is_deferred_to(step, row, standing)
    waits_for_phase = _waits_for_phase(step, row)
    waits_for_time = deferred_to is not None or (row.run_at is not None and row.run_at > step.now)
    joins_soon = deferred_to is None and (row.run_at is None or row.run_at < step.now + CAPPED_DELAY_MS)
    if submission.cap is not None and not waits_for_phase and joins_soon:
        waiting = step.waiting().total()
        if waiting >= submission.cap:
            return Refusal(id=submission.id, reason=RefusalReason.FULL, waiting=waiting, cap=submission.cap)

    row.number = step.draw_job_number()
    if standing is not None and not is_new:
        projects = [] if row.project is None else [row.project]
        ignored += limit_by_standing(step, standing, user=row.user, projects=projects)
    if submission.limits:
        ignored += apply_limits(step, submission.limits)[1]
    if deferred_to is not None:
        defer(step, row, deferred_to, midnight(deferred_to) + submission.quota_jitter_ms)
    groups = step.groups_of(row)
    _note_owner(step, row, groups)
    step.count_state(row.state, +1)
    if waits_for_phase:
        step.note_status(row, row.state)
        step.event(row.state, row.id)
    elif waits_for_time:
        step.reach(row, State.SCHEDULED)
        row.due_at = row.run_at if row.steady_at is None else row.steady_at
        step.event(row.state, row.id, {"run_at": row.run_at})
    else:
        join(step, row)
    _store(step, row, submission)
    position = row.position_original if row.state == State.QUEUED else None
    return _accepted(step, to_job(row, groups=groups, position=position), standing, ignored=ignored)


def _accepted(
    step: Step,
    job: Job,
    standing: Standing | None,
    *,
    known: bool = False,
    ignored: tuple[LimitIgnored, ...] = (),
) -> Accepted:
    if job.user is None:
        return Accepted(job=job, known=known, ignored=ignored, today=day_of(step.now))
    return Accepted(
        job=job,
        known=known,
        ignored=ignored,
        used_today=used_on(step, job.user, day_of(step.now)),
        daily_quota=None if standing is None else standing.daily_quota,
        today=day_of(step.now),
    )


def _note_owner(step: Step, row: JobRow, groups: tuple[str, ...]) -> None:
    if row.user is not None:
        if row.quota_day is None:
            row.quota_day = _day_it_is_due(step, row)
        charge(step, row.user, row.quota_day)
        step.writes.add("user", "UPDATE user SET last_job = ? WHERE name = ?", (row.number, row.user))
    if row.parent is not None:
        step.writes.add("parent", "INSERT INTO parent VALUES (?, ?) ON CONFLICT DO NOTHING", (row.parent, row.priority))
    for group in groups:
        step.groups.mention(group, row.number)


def _store(step: Step, row: JobRow, submission: Submission) -> None:
    insert(step.writes, row)
    content = (row.number, submission.payload, submission.contact, submission.overdue_message)
    step.writes.add("content", INSERT_CONTENT, content)
    note_start_by(step, row)
    step.figure("submitted")
    if submission.by is not None:
        step.audit(submission.by, "submit", row.id, {"task": row.task})


def _day_it_is_deferred_to(step: Step, row: JobRow, standing: Standing | None) -> int | None:
    if row.user is None or standing is None or standing.daily_quota is None:
        return None
    day = _day_it_is_due(step, row)
    if used_on(step, row.user, day) < standing.daily_quota:
        return None
    return first_day_with_room(step, row.user, day + 1, standing.daily_quota)


def _day_it_is_due(step: Step, row: JobRow) -> int:
    return day_of(max(row.run_at or step.now, step.now))


def _waits_for_phase(step: Step, row: JobRow) -> bool:
    if row.phase is None or row.phase == 1:
        return False
    return state_of_phase(step.db, row.parent, row.phase - 1) is not State.SUCCEEDED


def _new_row(step: Step, submission: Submission, standing: Standing | None) -> JobRow:
    """The row as it is before it joins anything; its number is drawn when it is accepted."""
    row = copy(_BLANK)
    row.id = submission.id
    row.task = submission.task
    row.priority = _priority(step, submission)
    row.user = submission.user
    row.project = submission.project
    row.parent = submission.parent
    row.phase = submission.phase
    row.own_groups = to_json(submission.groups) if submission.groups else "[]"
    row.unique_key = submission.unique
    row.run_at = submission.run_at_ms
    if submission.delay_ms is not None:
        row.run_at = step.now + submission.delay_ms
        row.steady_at = steady_now(step) + submission.delay_ms
    row.start_by = submission.start_by_ms
    if submission.start_within_ms is not None:
        row.steady_start_by = steady_now(step) + submission.start_within_ms
    row.parent_order = parent_order(submission.parent)
    row.max_attempts = submission.max_attempts
    row.timeout_ms = submission.timeout_ms
    row.trace = submission.trace
    row.has_contact = submission.contact is not None
    row.submitted_at = step.now
    if standing is not None:
        row.boost = standing.boost
        row.tier = standing.tier
        row.iterations_batch = row.iterations_granted = standing.iterations_batch
        row.iterations_max = standing.iterations_max
    return row


def _priority(step: Step, submission: Submission) -> int:
    if submission.priority is not None:
        return submission.priority
    if submission.parent is not None:
        inherited: int | None = sql.value(step.db, "SELECT priority FROM parent WHERE name = ?", (submission.parent,))
        if inherited is not None:
            return inherited
    return NORMAL


# A copy of this takes a quarter of the time that naming all fields takes, for every job.
_BLANK = JobRow(id="", task="", state=State.WAITING, priority=NORMAL, submitted_at=0)
