"""A job on its worker in the reference model: claim, renew, advance, finish."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from qo.event import PROGRESS, STAGE
from qo.job import Promise, State, moment
from qo.policy.lifecycle import check_transition
from qo.policy.ordering import joining_order
from qo.values import (
    DEFAULT_MAX_ATTEMPTS,
    Advance,
    Claimed,
    Finished,
    Held,
    Outcome,
    Renewal,
    Renewed,
    Suspicion,
    looks,
)
from tests.conformance.model.groups import recorded_groups
from tests.conformance.model.state import GroupRow, JobRow, LeaseRow, TicketRow, certain
from tests.conformance.model.step import Steps, step
from tests.conformance.model.turns import end_turn, kept_now, pass_over


class Running(Steps):
    # --- claim ----------------------------------------------------------------------------------------------------

    @step
    def claim(
        self,
        *,
        worker: str,
        tasks: Sequence[str],
        capacity: int,
        lease_ms: int,
        claim_id: str,
        suspects: int | None = None,
        now: int,
    ) -> Claimed:
        known = [lease for _, lease in sorted(self.state.leases.items()) if lease.claim == claim_id]
        if known:
            return Claimed(leases=tuple(self.as_lease(lease) for lease in known))
        due = self.deal_with_what_is_due(now)
        taker = self.taker(worker, suspects, now)
        right = self.search_whole_line(tasks, capacity, taker)
        kept = kept_now(self, now)
        put_aside: list[JobRow | TicketRow] = []
        started: list[tuple[int, tuple[str, ...]]] = []
        taken: list[LeaseRow] = []
        overdue: list[JobRow] = []
        examined, taken_bytes, bound_reached = 0, 0, False
        while len(taken) < capacity and not bound_reached:
            job = self.first_candidate(tasks, kept, taker)
            if job is None:
                break
            if examined >= self.bounds.examine or taken_bytes >= self.bounds.claim_bytes:
                bound_reached = True
                break
            examined += looks(len(self.groups_of_job(job)))
            blocking = self.first_without_room_for(job, kept)
            if self.is_overdue(job, now):
                self.fail_overdue(job, now)
                overdue.append(job)
            elif blocking is not None:
                self.park(job, blocking, now)
                put_aside.append(job)
            elif not taker.may_take(job):
                break
            else:
                taken.append(self.start(job, worker, lease_ms, claim_id, now))
                taker.note(job)
                taken_bytes += len(job.payload) + len(job.checkpoint or b"")
                started.append((certain(job.key), self.groups_of_job(job)))
                kept = kept.without(job)
        ids = [lease.holder for lease in taken]
        assert ids == (right[: len(ids)] if bound_reached else right), f"took {ids}, first in line are {right}"
        leases = tuple(self.as_lease(lease) for lease in taken)
        pass_over(self, started, put_aside, now)
        gave_back = self.give_quota_back(overdue, now)
        self.hand_over(now)
        return Claimed(leases=leases, more=bound_reached or due.more or gave_back)

    def start(self, job: JobRow, worker: str, lease_ms: int, claim_id: str, now: int) -> LeaseRow:
        waited_ms = now - certain(job.joined_at)
        lease = self.take(
            job.id,
            groups=recorded_groups(self, job),
            waited_ms=waited_ms,
            is_job=True,
            worker=worker,
            claim=claim_id,
            lease_ms=lease_ms,
            now=now,
        )
        lease.started_in = self.groups_of_job(job)
        self.reach(job, State.STARTING, now)
        if job.started_at is None:
            self.count_promise(job, now)
        job.attempts += 1
        job.max_attempts = job.max_attempts or self.options_of(job.task).max_attempts or DEFAULT_MAX_ATTEMPTS
        job.started_at = now
        job.worker, job.token = worker, lease.token
        job.stage = job.progress = job.message = None
        job.cancel_wanted = False
        job.aged_at = None
        end_turn(job)
        self.count(f"wait:{job.priority}", waited_ms, now)
        self.tell(State.STARTING, job.id, {"worker": worker, "attempt": job.attempts}, now)
        return lease

    def count_promise(self, job: JobRow, now: int) -> None:
        promise = job.history.promise
        if promise is None:
            return
        after = (moment(now) - promise.made_at).total_seconds()
        is_kept = promise.lower_bound <= after <= promise.upper_bound
        self.count(f"promise:{'kept' if is_kept else 'missed'}", round(after * 1000), now)

    @step
    def note_promises(self, ranges: Mapping[str, tuple[int, int]], *, now: int) -> None:
        for job_id, (lower_ms, upper_ms) in ranges.items():
            job = self.state.jobs.get(job_id)
            if job is not None and job.state is State.QUEUED and job.started_at is None and job.history.promise is None:
                promise = Promise(made_at=moment(now), lower_bound=lower_ms / 1000, upper_bound=upper_ms / 1000)
                job.history = msgspec.structs.replace(job.history, promise=promise)

    # --- while a lease is held ------------------------------------------------------------------------------------

    @step
    def renew(
        self,
        renewals: Sequence[Renewal],
        *,
        worker: str | None = None,
        instance: str = "",
        tickets: Sequence[str] = (),
        now: int,
    ) -> Renewed:
        ends_gap = self.note_time(now)
        for holder in tickets:
            if holder in self.state.tickets:
                self.state.tickets[holder].expires_at = self.counted(now) + self.state.tickets[holder].wait_ms
        return Renewed(
            held=tuple(self.renew_one(renewal, now, ends_gap) for renewal in renewals),
            registration=None if worker is None else self.renew_registration(worker, instance, now),
            now_ms=now,
        )

    def renew_one(self, renewal: Renewal, now: int, ends_gap: bool) -> Held:
        leases = self.state.leases.values()
        mine = (one for one in leases if (one.holder, str(one.token)) == (renewal.holder, renewal.token))
        lease = next(mine, None)
        if lease is None:
            return Held(holder=renewal.holder, token=renewal.token, lost=True)
        if renewal.lease_ms:
            lease.expires_at = max(lease.expires_at, self.counted(now) + renewal.lease_ms)
        lease.expires_at += renewal.extend_ms
        if not (ends_gap and renewal.lease_ms > 1.5 * self.state.lease_ms):
            self.state.renewed_since_gap = True
        return self.held(lease)

    def renew_registration(self, worker: str, instance: str, now: int) -> Held:
        known = self.state.workers.get(worker)
        if known is None or known.instance != instance:
            return Held(holder=worker, token=instance, lost=True)
        known.heard_at, known.expires_at = now, now + known.lifetime_ms
        return Held(holder=worker, token=instance, expires_at=moment(known.expires_at))

    def held(self, lease: LeaseRow) -> Held:
        return Held(
            holder=lease.holder,
            token=str(lease.token),
            cancel_wanted=lease.is_job and self.state.jobs[lease.holder].cancel_wanted,
            expires_at=moment(self.ends_at(lease)),
        )

    @step
    def advance(self, advances: Sequence[Advance], *, now: int) -> list[Held]:
        return [self.advance_one(advance, now) for advance in advances]

    def advance_one(self, advance: Advance, now: int) -> Held:
        lease = self.lease_of_job(advance.job_id, advance.token)
        if lease is None:
            return Held(holder=advance.job_id, token=advance.token, lost=True)
        job = self.state.jobs[advance.job_id]
        if job.state is State.STARTING:
            self.reach(job, State.RUNNING, now)
            self.tell(State.RUNNING, job.id, {}, now)
        if advance.message is not None:
            job.message = advance.message
        if advance.checkpoint is not None:
            job.checkpoint = advance.checkpoint
        if advance.iteration is not None:
            job.iterations = max(job.iterations, advance.iteration)
        if advance.stage is not None:
            if advance.stage != job.stage:
                self.note_status(job, advance.stage, now)
            job.stage = advance.stage
            self.tell(STAGE, job.id, {"stage": advance.stage, "message": advance.message}, now)
        if advance.progress is not None:
            job.progress = advance.progress
            done, total, text = advance.progress.done, advance.progress.total, advance.progress.text
            self.tell(PROGRESS, job.id, {"done": done, "total": total, "text": text}, now)
        return self.held(lease)

    # --- finish ---------------------------------------------------------------------------------------------------

    @step
    def finish(self, outcomes: Sequence[Outcome], *, now: int) -> list[Finished]:
        handed_back: list[JobRow] = []
        released: list[JobRow] = []
        answers = [self.finish_one(outcome, handed_back, released, now) for outcome in outcomes]
        for job in handed_back:
            self.come_back(job, "handed_back", now)
        for job in sorted(released, key=lambda job: joining_order(now, job.parent, job.phase, job.number)):
            self.join(job, now)
        self.hand_over(now)
        return answers

    def finish_one(self, outcome: Outcome, handed_back: list[JobRow], released: list[JobRow], now: int) -> Finished:
        job = self.state.jobs.get(outcome.job_id)
        lease = self.lease_of_job(outcome.job_id, outcome.token)
        if lease is None:
            if job is not None and str(job.ended_token) == outcome.token:
                return Finished(job_id=job.id, token=outcome.token, state=job.ended_state)
            return Finished(job_id=outcome.job_id, token=outcome.token, lost=True)
        assert job is not None
        del self.state.leases[lease.token]
        job.suspicion = Suspicion.NONE
        for group, closed_ms in outcome.closed.items():
            self.state.groups.setdefault(group, GroupRow()).closed_until = self.steady(now) + closed_ms
        if outcome.message is not None:
            job.message = outcome.message
        becomes = becomes_of(outcome, job)
        if becomes in (State.SUCCEEDED, State.CONFIRMING) and job.state is State.STARTING:
            self.reach(job, State.RUNNING, now)
            self.tell(State.RUNNING, job.id, {}, now)
        check_transition(job.id, job.state, becomes)
        if becomes is not State.QUEUED:
            self.note_attempt(job, lease, becomes, now, outcome.error)
        if becomes is State.SUCCEEDED:
            self.succeed(job, outcome, released, now)
        elif becomes is State.FAILED:
            job.error = outcome.error
            self.end(job, State.FAILED, now)
        elif becomes is State.CANCELLED:
            self.end(job, State.CANCELLED, now)
        elif becomes is State.SCHEDULED:
            self.wait_for_retry(job, outcome, now)
        elif becomes is State.CONFIRMING:
            self.ask_for_confirmation(job, outcome, now)
        else:
            job.attempts -= 1
            if job.attempts == 0:
                job.started_at = None
            handed_back.append(job)
        job.ended_token, job.ended_state = lease.token, becomes
        return Finished(job_id=job.id, token=outcome.token, state=becomes)

    def succeed(self, job: JobRow, outcome: Outcome, released: list[JobRow], now: int) -> None:
        job.result, job.error = outcome.result, None
        for average in outcome.averages:
            self.move_average(average, (now - certain(job.started_at)) / 1000)
        self.end(job, State.SUCCEEDED, now)
        following = self.phase(certain(job.parent), job.phase + 1) if job.phase is not None else None
        if following is not None and following.state is State.WAITING:
            if self.has_to_wait(following, now):
                self.wait_until_due(following)
            else:
                released.append(following)

    def wait_for_retry(self, job: JobRow, outcome: Outcome, now: int) -> None:
        retry_after_ms = certain(outcome.retry_after_ms)
        self.count(f"ended:{State.SCHEDULED}", now - certain(job.started_at), now)
        self.leave_line(job)
        self.reach(job, State.SCHEDULED, now)
        job.worker = job.token = None
        job.error = outcome.error
        job.run_at = now + retry_after_ms
        job.steady_at = self.steady(now) + retry_after_ms
        self.wait_until_due(job)
        self.tell(State.SCHEDULED, job.id, {"run_at": job.run_at}, now)

    def ask_for_confirmation(self, job: JobRow, outcome: Outcome, now: int) -> None:
        self.leave_line(job)
        self.reach(job, State.CONFIRMING, now)
        job.worker = job.token = None
        job.message = outcome.message
        job.confirmation_required_at = now
        job.reminded = 0
        self.tell(State.CONFIRMING, job.id, {"message": job.message}, now)


def becomes_of(outcome: Outcome, job: JobRow) -> State:
    """What a lease that ends with this outcome makes of its job."""
    if job.cancel_wanted and outcome.state in (State.SCHEDULED, State.QUEUED, State.CONFIRMING):
        return State.CANCELLED
    if outcome.state is State.SCHEDULED and job.attempts >= certain(job.max_attempts):
        return State.FAILED
    return outcome.state
