"""The line of the reference model: how a job joins it, comes back to it and leaves it, and the history it then has."""

from __future__ import annotations

import msgspec

from qo.job import HELD, Attempt, JobError, Reached, State, moment
from qo.policy.groups import within_portion
from qo.policy.job_history import KEPT_ATTEMPTS, KEPT_STATES
from qo.policy.lifecycle import check_transition
from qo.policy.ordering import drawn_place, joining_order, order_key
from qo.values import Suspicion
from tests.conformance.model.lanes import Lanes
from tests.conformance.model.state import JobRow, LeaseRow, certain
from tests.conformance.model.turns import end_turn


class Line(Lanes):
    # --- joining ----------------------------------------------------------------------------------------------

    def draw_key(self, priority: int, boost: int) -> int:
        sequence = self.state.next_sequence
        self.state.next_sequence += 1
        return order_key(priority, drawn_place(sequence, boost))

    def join(self, job: JobRow, now: int) -> None:
        """The job is in line from now on, at a place of its own."""
        self.drop_empty_lanes()
        self.reach(job, State.QUEUED, now)
        job.sequence = self.state.next_sequence
        job.key = self.draw_key(job.priority, job.boost)
        end_turn(job)
        job.undisturbed_key = job.displaced = None
        job.joined_at = job.aged_at = now
        job.deferred = False
        job.due_at = job.steady_at = None
        job.position_original = self.rank(job)
        self.enter(job, now)
        self.tell(State.QUEUED, job.id, {"position": job.position_original}, now)

    def come_back(self, job: JobRow, reason: str, now: int) -> None:
        """The job is in line again at the place it had. Its lease must be gone already."""
        self.drop_empty_lanes()
        self.reach(job, State.QUEUED, now)
        job.worker = job.token = None
        job.cancel_wanted = False
        job.aged_at = now
        self.enter(job, now)
        self.tell(State.QUEUED, job.id, {"reason": reason}, now)

    def join_due_jobs(self, now: int) -> tuple[list[str], bool]:
        """One portion of the jobs whose time has come, and whether there are more."""
        due = [job for job in self.state.jobs.values() if self.is_due(job, now)]
        due.sort(key=lambda job: joining_order(self.due_on_the_clock(job), job.parent, job.phase, job.number))
        portion = due[: within_portion(self.bounds.portion, (len(self.groups_of_job(job)) for job in due))]
        for job in portion:
            self.join(job, now)
        return [job.id for job in portion], len(due) > len(portion)

    # --- a job's history --------------------------------------------------------------------------------------

    def reach(self, job: JobRow, state: State, now: int) -> None:
        job.state = state
        self.note_status(job, state, now)

    def note_status(self, job: JobRow, status: str, now: int) -> None:
        states = (*job.history.states, Reached(status=str(status), at=moment(now)))[-KEPT_STATES:]
        job.history = msgspec.structs.replace(job.history, states=states)

    def note_attempt(self, job: JobRow, lease: LeaseRow, outcome: str, now: int, error: JobError | None = None) -> None:
        attempt = Attempt(
            number=job.attempts,
            worker=certain(lease.worker),
            slots=self.limited_slots(lease),
            started_at=moment(certain(job.started_at)),
            ended_at=moment(now),
            outcome=str(outcome),
            debug_id=None if error is None else error.debug_id,
        )
        attempts = (*job.history.attempts, attempt)[-KEPT_ATTEMPTS:]
        job.history = msgspec.structs.replace(job.history, attempts=attempts)

    # --- leaving ----------------------------------------------------------------------------------------------

    def leave_line(self, job: JobRow) -> None:
        """Neither in line nor on the way there."""
        job.key = job.aged_at = job.due_at = None
        job.deferred = False
        end_turn(job)

    def end(self, job: JobRow, state: State, now: int) -> None:
        """Into succeeded, failed or cancelled, from anywhere."""
        ran_ms = now - certain(job.started_at) if job.state in HELD else 0
        self.count(f"ended:{state}", ran_ms, now)
        self.leave_line(job)
        self.reach(job, state, now)
        self.drop_empty_lanes()
        job.suspicion = Suspicion.NONE
        job.contact = None
        job.finished_at = now
        job.cancel_wanted = False
        job.confirmation_required_at = None
        if state is State.SUCCEEDED:
            detail = {}
        elif state is State.FAILED:
            detail = {"message": job.error.message if job.error else None}
        else:
            detail = {"message": job.message}
        self.tell(state, job.id, detail, now)

    def fail_overdue(self, job: JobRow, now: int) -> None:
        """It has not started in time. What it gives back is dealt with later: `give_quota_back`."""
        check_transition(job.id, job.state, State.FAILED)
        job.error = JobError(message=certain(job.overdue_message))
        self.end(job, State.FAILED, now)
