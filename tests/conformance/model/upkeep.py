"""What time does in the reference model: leases that run out, jobs that come due, aging, reminders, retention."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from qo.event import AGED, LEASE_LOST
from qo.job import ENDED, LOST, REVOKED, JobError, State, moment
from qo.policy.figures import own_group_of
from qo.policy.groups import within_portion
from qo.policy.ordering import aged_priority, order_key, place_of, priority_of
from qo.policy.suspects import suspicion_of
from qo.values import Keep, Portion, Reminder, Source, Suspicion, looks
from tests.conformance.model.admission import DAY_MS
from tests.conformance.model.handing_over import HandingOver
from tests.conformance.model.state import JobRow, LeaseRow, ModelState, certain
from tests.conformance.model.telling import MINUTE_MS

Item = TypeVar("Item")


class Upkeep(HandingOver):
    before: ModelState
    """the state at the beginning of the step"""
    left: int
    """what is left of the portion that the parts of upkeep share"""
    left_over: bool
    """whether a part of upkeep found more than its share"""

    # --- the clock --------------------------------------------------------------------------------------------

    def note_time(self, now: int) -> bool:
        """Whether a gap has just ended."""
        state, ends_gap = self.state, False
        if state.noted_at is not None:
            passed = now - state.noted_at
            ends_gap = passed > state.lease_ms / 2
            if ends_gap:
                self.note_gap(passed)
            elif passed < -state.lease_ms:
                state.uncounted_ms += passed
                state.fallen_ms += passed
        state.noted_at = now
        return ends_gap

    def note_gap(self, passed: int) -> None:
        state = self.state
        if state.renewed_since_gap:
            state.uncounted_ms += passed
        else:
            for lease in state.leases.values():
                if lease.token > state.token_at_gap:
                    lease.expires_at += passed
        state.renewed_since_gap = False
        state.token_at_gap = state.last_token

    # --- catching up ------------------------------------------------------------------------------------------

    def deal_with_what_is_due(self, now: int) -> Portion:
        self.note_time(now)
        more_closed = self.open_closed_groups(now)
        more_tickets = self.drop_tickets(now)
        back, more_leases = self.end_leases(now)
        overdue, more_overdue = self.fail_overdue_jobs(now)
        joined, more_due = self.join_due_jobs(now)
        self.hand_over(now)
        more = more_closed or more_tickets or more_leases or more_overdue or more_due
        return Portion(ids=(*back, *overdue, *joined), more=more)

    def open_closed_groups(self, now: int) -> bool:
        closed = [
            (group.closed_until, name, group)
            for name, group in self.state.groups.items()
            if group.closed_until is not None and group.closed_until <= self.steady(now)
        ]
        portion, more = self.portion_of(sorted(closed, key=lambda each: each[:2]))
        for _, _, group in portion:
            group.closed_until = None
        return more

    def drop_tickets(self, now: int) -> bool:
        past = [ticket for ticket in self.state.tickets.values() if ticket.expires_at <= self.counted(now)]
        portion, more = self.portion_of(sorted(past, key=lambda ticket: (ticket.expires_at, ticket.key)))
        for ticket in portion:
            del self.state.tickets[ticket.holder]
        return more

    def end_leases(self, now: int) -> tuple[list[str], bool]:
        """The leases past their end are over; jobs come back when all their slots are free."""
        past = [lease for lease in self.state.leases.values() if lease.expires_at <= self.counted(now)]
        portion, more = self.portion_of(
            sorted(past, key=lambda lease: (lease.expires_at, lease.token)), groups=lambda lease: len(lease.slots)
        )
        coming_back = [job for lease in portion if (job := self.end_lease(lease, "expired", now)) is not None]
        for job in coming_back:
            self.come_back(job, "expired", now)
        return [lease.holder for lease in portion if lease.is_job], more

    def end_lease(self, lease: LeaseRow, reason: str, now: int) -> JobRow | None:
        """Free all its slots. A job is cancelled, failed, or returned here to come back."""
        del self.state.leases[lease.token]
        detail: dict[str, Any] = {"token": str(lease.token), "reason": reason}
        if freed := sorted(self.limited_slots(lease)):
            detail["groups"] = freed
        self.tell(LEASE_LOST, lease.holder, detail, now)
        if not lease.is_job:
            return None
        job = self.state.jobs[lease.holder]
        ran_out = reason == "expired"
        self.note_attempt(job, lease, LOST if ran_out else REVOKED, now)
        if job.cancel_wanted:
            self.end(job, State.CANCELLED, now)
        elif job.attempts >= certain(job.max_attempts):
            job.error = JobError(
                message=f"The worker stopped responding, and all {job.max_attempts} attempts are used."
            )
            self.end(job, State.FAILED, now)
            job.suspicion = Suspicion.SUSPECT if ran_out else Suspicion.NONE
        else:
            suspicion = suspicion_of(attempts=job.attempts, max_attempts=certain(job.max_attempts))
            job.suspicion = suspicion if ran_out else Suspicion.NONE
            return job
        return None

    def fail_overdue_jobs(self, now: int) -> tuple[list[str], bool]:
        overdue = [job for job in self.state.jobs.values() if self.is_overdue(job, now)]
        portion, more = self.portion_of(sorted(overdue, key=lambda job: (self.latest_start(job), job.number)))
        for job in portion:
            self.fail_overdue(job, now)
        self.give_quota_back(portion, now)
        return [job.id for job in portion], more

    # --- aging, confirmations ---------------------------------------------------------------------------------

    def age_jobs(self, period_ms: int, now: int) -> list[str]:
        waited = [job for job in self.in_line() if certain(job.aged_at) <= now - period_ms]
        longest_first = sorted(waited, key=lambda job: (job.aged_at, job.number))
        moved_up = []
        for job in self.share_of(longest_first, groups=lambda job: len(self.groups_of_job(job))):
            job.aged_at = now
            key = certain(job.key)
            priority = aged_priority(priority_of(key))
            if priority is None:
                continue
            job.key = order_key(priority, place_of(key))
            self.enter(job, now)
            self.tell(AGED, job.id, {"priority": priority}, now)
            moved_up.append(job.id)
        return moved_up

    def confirming(self) -> list[JobRow]:
        """Those that wait for a person, longest first."""
        jobs = [job for job in self.state.jobs.values() if job.state is State.CONFIRMING]
        return sorted(jobs, key=lambda job: (job.confirmation_required_at, job.number))

    def fail_those_unconfirmed(self, after_ms: int, error: JobError, now: int) -> list[str]:
        late = [job for job in self.confirming() if certain(job.confirmation_required_at) <= now - after_ms]
        portion = self.share_of(late)
        for job in portion:
            job.error = error
            self.end(job, State.FAILED, now)
        return [job.id for job in portion]

    def hand_out_reminders(self, ages_ms: Sequence[int], now: int) -> list[Reminder]:
        def due(job: JobRow) -> int:
            return sum(certain(job.confirmation_required_at) + age <= now for age in ages_ms)

        numbered = [(job, number) for job in self.confirming() for number in range(job.reminded + 1, due(job) + 1)]
        portion = self.share_of(numbered)
        for job, number in portion:
            job.reminded = number
        return [
            Reminder(
                job_id=job.id,
                number=number,
                confirmation_required_at=moment(job.confirmation_required_at),
                contact=job.contact,
            )
            for job, number in portion
        ]

    # --- retention --------------------------------------------------------------------------------------------

    def forget_the_past(self, keep: Keep, now: int) -> list[str]:
        jobs = self.share_of(self.jobs_to_forget(now - keep.ms, keep.jobs))
        for job in jobs:
            del self.state.jobs[job.id]
            if job.parent is not None and not self.jobs_of_parent(job.parent):
                del self.state.parents[job.parent]
        self.forget_events(keep.events)
        self.forget_audit(keep.audit)
        self.sum_up_series((now - keep.ms) // MINUTE_MS)
        self.forget_quota(now // DAY_MS)
        self.forget_users()
        self.forget_limits()
        self.forget_workers(now - keep.ms)
        return [job.id for job in jobs]

    def jobs_to_forget(self, ended_until: int, keep_jobs: int) -> list[JobRow]:
        """Oldest first. The phases of a parent go together, when the last one to end may go."""

        def by_age(job: JobRow) -> tuple[int, int]:
            return (certain(job.finished_at), job.number)

        ended = sorted((job for job in self.state.jobs.values() if job.state in ENDED), key=by_age)
        too_many = ended[: max(0, len(ended) - keep_jobs)]

        def may_go(job: JobRow) -> bool:
            return certain(job.finished_at) <= ended_until or job in too_many

        def all_may_go(parent: str) -> bool:
            jobs = self.jobs_of_parent(parent)
            return all(job.state in ENDED for job in jobs) and may_go(max(jobs, key=by_age))

        return [job for job in ended if (may_go(job) if job.parent is None else all_may_go(job.parent))]

    def oldest_kept_number(self) -> float:
        return min((job.number for job in self.state.jobs.values()), default=float("inf"))

    def forget_events(self, keep_events: int) -> None:
        keep = max(1, keep_events)  # the newest tells followers how far the feed has come
        # What this step itself appended comes on top.
        before = [event for event in self.state.events if event.id <= self.before.last_event]
        del self.state.events[: len(self.share_of(before[: max(0, len(before) - keep)]))]

    def forget_audit(self, keep_audit: int) -> None:
        del self.state.audit[: len(self.share_of(self.state.audit[: max(0, len(self.state.audit) - keep_audit)]))]

    def sum_up_series(self, first_kept_minute: int) -> None:
        old = [(minute, name) for name, minute in self.state.series if 0 < minute < first_kept_minute]
        for minute, name in self.share_of(sorted(old)):
            count, total_ms = self.state.series.pop((name, minute))
            if name == "depth":
                continue
            group = own_group_of(name)
            if group is not None and (group not in self.state.groups or self.state.groups[group].limit is None):
                continue
            count_before, total_before = self.state.series.get((name, 0), (0, 0))
            self.state.series[name, 0] = (count_before + count, total_before + total_ms)

    def forget_users(self) -> None:
        charged = {user for user, _ in self.state.quota}
        past = [
            (row.last_job, name)
            for name, row in self.state.users.items()
            if not row.pinned and name not in charged and row.last_job < self.oldest_kept_number()
        ]
        for _, name in self.share_of(sorted(past)):
            del self.state.users[name]

    def forget_limits(self) -> None:
        parked_in = {self.parked(waiting) for waiting in self.state.in_lanes()}
        past = [
            (row.last_job, name)
            for name, row in self.state.groups.items()
            if row.source in (Source.TIER, Source.SUBMIT)
            and not self.holders(name)
            and name not in parked_in
            and row.last_job < self.oldest_kept_number()
        ]
        for _, name in self.share_of(sorted(past)):
            self.state.groups[name].limit = self.state.groups[name].source = None
            sums = [figure for figure, minute in self.state.series if minute == 0]
            for figure in sums:
                if own_group_of(figure) == name:
                    del self.state.series[figure, 0]

    def forget_quota(self, today: int) -> None:
        for day, user in self.share_of(sorted((day, user) for user, day in self.state.quota if day < today)):
            del self.state.quota[user, day]

    def forget_workers(self, expired_until: int) -> None:
        gone = [name for name, worker in self.state.workers.items() if worker.expires_at <= expired_until]
        for name in self.share_of(sorted(gone)):
            del self.state.workers[name]

    def share_of(self, items: list[Item], groups: Callable[[Item], int] = lambda _: 1) -> list[Item]:
        """What fits into what is left of the portion that the parts of upkeep share."""
        portion = items[: within_portion(self.left, map(groups, items))]
        self.left = max(0, self.left - sum(max(1, looks(groups(item))) for item in portion))
        self.left_over = self.left_over or len(portion) < len(items)
        return portion

    def portion_of(self, items: list[Item], groups: Callable[[Item], int] = lambda _: 1) -> tuple[list[Item], bool]:
        """What one step deals with, and whether there is more; `groups` where those count."""
        portion = items[: within_portion(self.bounds.portion, map(groups, items))]
        return portion, len(portion) < len(items)
