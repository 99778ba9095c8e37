"""Admitting jobs in the reference model: the operation `submit`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from qo.job import NORMAL, State
from qo.policy.admission import CAPPED_DELAY_MS
from qo.values import Accepted, LimitIgnored, Refusal, RefusalReason, Standing, Submission
from tests.conformance.model.admission import DAY_MS, give_standing
from tests.conformance.model.state import JobRow, certain
from tests.conformance.model.step import Steps, step


class Submitting(Steps):
    @step
    def submit(self, submissions: Sequence[Submission], *, now: int) -> list[Accepted | Refusal]:
        self.fail_overdue_jobs(now)
        self.join_due_jobs(now)
        answers = [self.admit(submission, now) for submission in submissions]
        self.hand_over(now)
        return answers

    def admit(self, submission: Submission, now: int) -> Accepted | Refusal:
        known = self.known_job(submission)
        if known is not None:
            return self.accepted(known, now, known=True)
        if submission.phase is not None:
            taken_by = self.phase(certain(submission.parent), submission.phase)
            if taken_by is not None and taken_by.state is not State.CANCELLED:
                return Refusal(id=submission.id, reason=RefusalReason.PHASE_TAKEN, taken_by=taken_by.id)
        if never_in_time(submission, now):
            return Refusal(id=submission.id, reason=RefusalReason.OVERDUE)
        before = self.state.copy()
        changes_standing = self.changes_standing(submission)
        ignored: list[LimitIgnored] = []
        if changes_standing:
            user, standing, project = certain(submission.user), certain(submission.standing), submission.project
            ignored += self.apply_standing(user, standing, pinned=False, project=project, now=now)
        job = self.new_job(submission, now)
        in_line = len(self.in_line())
        if self.joins_soon(job, now) and submission.cap is not None and in_line >= submission.cap:
            self.state = before
            return Refusal(id=submission.id, reason=RefusalReason.FULL, waiting=in_line, cap=submission.cap)
        if not changes_standing:
            ignored += self.repeat_tier_limits(submission, now)
        for limit in submission.limits:
            ignored += self.set_limit(limit, now)[1]
        self.accept(job, now)
        if submission.by is not None:
            self.audit_entry(submission.by, "submit", job.id, {"task": job.task}, now)
        return self.accepted(job, now, ignored=tuple(ignored), standing=self.standing_of(submission))

    def accepted(self, job: JobRow, now: int, *, standing: Standing | None = None, **fields: Any) -> Accepted:
        if job.user is None:
            return Accepted(job=self.as_job(job), today=now // DAY_MS, **fields)
        present = self.state.users.get(job.user)
        standing = standing or (present.standing if present is not None else None)
        return Accepted(
            job=self.as_job(job),
            used_today=self.used(job.user, now // DAY_MS),
            daily_quota=None if standing is None else standing.daily_quota,
            today=now // DAY_MS,
            **fields,
        )

    def known_job(self, submission: Submission) -> JobRow | None:
        if submission.id in self.state.jobs:
            return self.state.jobs[submission.id]
        return self.unfinished_with(submission.unique)

    def standing_of(self, submission: Submission) -> Standing | None:
        """The submission's own, else the user's present one."""
        row = self.state.users.get(submission.user) if submission.user is not None else None
        return submission.standing or (row.standing if row else None)

    def changes_standing(self, submission: Submission) -> bool:
        if submission.user is None or submission.standing is None:
            return False
        row = self.state.users.get(submission.user)
        return row is None or row.standing != submission.standing

    def repeat_tier_limits(self, submission: Submission, now: int) -> list[LimitIgnored]:
        """A standing that is not new sets its limits all the same: the project may be, or somebody removed them."""
        standing = self.standing_of(submission)
        if standing is None:
            return []
        projects = [submission.project] if submission.project is not None else []
        return self.grant_tier_limits(submission.user, projects, standing, now)

    def new_job(self, submission: Submission, now: int) -> JobRow:
        """The job as it would be accepted, with its number, day and time; not in the model yet."""
        self.state.last_number += 1
        inherited = self.state.parents.get(submission.parent, NORMAL) if submission.parent is not None else NORMAL
        job = JobRow(
            number=self.state.last_number,
            id=submission.id,
            task=submission.task,
            payload=submission.payload,
            priority=inherited if submission.priority is None else submission.priority,
            user=submission.user,
            project=submission.project,
            parent=submission.parent,
            phase=submission.phase,
            own_groups=submission.groups,
            unique=submission.unique,
            max_attempts=submission.max_attempts,
            timeout_ms=submission.timeout_ms,
            contact=submission.contact,
            submitted_at=now,
            run_at=submission.run_at_ms,
            start_by=submission.start_by_ms,
            overdue_message=submission.overdue_message,
            trace=submission.trace,
        )
        if submission.start_within_ms is not None:
            job.steady_start_by = self.steady(now) + submission.start_within_ms
        if submission.delay_ms is not None:
            job.run_at = now + submission.delay_ms
            job.steady_at = self.steady(now) + submission.delay_ms
        standing = self.standing_of(submission)
        if standing is not None:
            give_standing(job, standing)
            job.iterations_granted = standing.iterations_batch
        if job.user is not None:
            job.quota_day = max(now, job.run_at or now) // DAY_MS
            quota = standing.daily_quota if standing is not None else None
            if quota is not None and self.used(job.user, job.quota_day) >= quota:
                day = self.first_day_with_room(job.user, quota, job.quota_day)
                self.defer(job, day, day * DAY_MS + submission.quota_jitter_ms)
        return job

    def next_state(self, job: JobRow, now: int) -> State:
        if job.phase is not None and job.phase > 1:
            before = self.phase(certain(job.parent), job.phase - 1)
            if before is None or before.state is not State.SUCCEEDED:
                return State.WAITING
        return State.SCHEDULED if self.has_to_wait(job, now) else State.QUEUED

    def joins_soon(self, job: JobRow, now: int) -> bool:
        """Whether the cap counts: a job that is deferred or waits for a phase is never refused."""
        state = self.next_state(job, now)
        is_short_delay = job.run_at is not None and job.run_at < now + CAPPED_DELAY_MS and not job.deferred
        return state is State.QUEUED or (state is State.SCHEDULED and is_short_delay)

    def accept(self, job: JobRow, now: int) -> None:
        state = self.next_state(job, now)
        if state is not State.QUEUED:
            self.reach(job, state, now)
        self.state.jobs[job.id] = job
        self.count("submitted", 0, now)
        if job.user is not None:
            self.charge(job.user, certain(job.quota_day), 1)
            if job.user in self.state.users:
                self.state.users[job.user].last_job = job.number
        if job.parent is not None:
            self.state.parents.setdefault(job.parent, job.priority)
        for group in self.groups_of_job(job):
            if group in self.state.groups:
                self.state.groups[group].last_job = job.number
        if state is State.QUEUED:
            self.join(job, now)
        elif state is State.SCHEDULED:
            self.wait_until_due(job)
            self.tell(State.SCHEDULED, job.id, {"run_at": job.run_at}, now)
        else:
            self.tell(State.WAITING, job.id, {}, now)


def never_in_time(submission: Submission, now: int) -> bool:
    """Whether it could not join the line before it is overdue, by the store's clock."""
    latest = submission.start_by_ms
    if submission.start_within_ms is not None:
        latest = now + submission.start_within_ms
    due = max(now, submission.run_at_ms or 0, now + (submission.delay_ms or 0))
    return latest is not None and latest <= due
