"""Tiers and the daily quota in the reference model: standings, days with room, deferral, moving forward."""

from __future__ import annotations

from collections.abc import Iterable

from qo.event import RESCHEDULED
from qo.job import State
from qo.values import LimitIgnored, Source, Standing
from tests.conformance.model.line import Line
from tests.conformance.model.state import JobRow, UserRow, certain

DAY_MS = 86_400_000
STANDING_APPLIES_TO = frozenset({State.SCHEDULED, State.WAITING, State.QUEUED, State.CONFIRMING})


class Admission(Line):
    # --- standings --------------------------------------------------------------------------------------------

    def apply_standing(
        self, user: str, standing: Standing, *, pinned: bool, project: str | None = None, now: int
    ) -> list[LimitIgnored]:
        """The user's standing from now on, for all their jobs that do not run, and for `project` besides theirs."""
        self.state.users[user] = UserRow(standing, pinned, self.state.last_number)
        jobs = [job for job in self.state.jobs.values() if job.user == user and job.state in STANDING_APPLIES_TO]
        for job in jobs:
            give_standing(job, standing)
        projects = {name for name in (project, *(job.project for job in jobs)) if name is not None}
        ignored = self.grant_tier_limits(user, sorted(projects), standing, now)
        for job in self.in_line():
            if job in jobs:
                self.enter(job, now)
        self.move_forward(user, now)
        return ignored

    def grant_tier_limits(
        self, user: str | None, projects: list[str], standing: Standing, now: int
    ) -> list[LimitIgnored]:
        ignored = []
        if user is not None:
            ignored += self.grant_limit(f"user:{user}", standing.user_limit, Source.TIER, now)
        for project in projects:
            ignored += self.grant_limit(f"project:{project}", standing.project_limit, Source.TIER, now)
        return ignored

    # --- quota ------------------------------------------------------------------------------------------------

    def used(self, user: str, day: int) -> int:
        return self.state.quota.get((user, day), 0)

    def charge(self, user: str, day: int, jobs: int) -> None:
        # Retention may have dropped a day that a clock set back makes today again: never below none.
        used = max(0, self.used(user, day) + jobs)
        self.state.quota.pop((user, day), None)
        if used:
            self.state.quota[user, day] = used

    def give_quota_back(self, jobs: Iterable[JobRow], now: int) -> bool:
        """Of jobs that never started, whose day is not over; then their users' deferred jobs move forward."""
        refunded = set()
        for job in jobs:
            if job.user is not None and certain(job.quota_day) >= now // DAY_MS:
                self.charge(job.user, certain(job.quota_day), -1)
                job.quota_day = None
                refunded.add(job.user)
        for user in sorted(refunded):
            self.move_forward(user, now)
        return bool(refunded)

    def first_day_with_room(self, user: str, quota: int, day: int) -> int:
        while self.used(user, day) >= quota:
            day += 1
        return day

    def deferred_jobs(self, user: str) -> list[JobRow]:
        """Those that wait for a later day because of the quota, earliest first."""
        jobs = [job for job in self.state.jobs.values() if job.user == user and job.deferred]
        return sorted(jobs, key=lambda job: (job.run_at, job.number))

    def defer(self, job: JobRow, day: int, time: int) -> None:
        """Add a job and its time to the user's deferred ones of that day, and deal the times out again in order:
        those that were there first keep their order and the newcomer is last, whatever its own time was."""
        deferred_jobs = self.deferred_jobs(certain(job.user))
        others = [other for other in deferred_jobs if other.quota_day == day and other is not job]
        times = [certain(other.run_at) for other in others]
        while time in times:
            time += 1
        job.quota_day, job.deferred, job.steady_at = day, True, None
        for deferred, new_time in zip([*others, job], sorted([*times, time]), strict=True):
            deferred.run_at = new_time
            if deferred.due_at is not None:
                deferred.due_at = new_time

    def move_forward(self, user: str, now: int) -> None:
        """The user's deferred jobs fill every earlier day that has room, the earliest first."""
        row = self.state.users.get(user)
        if row is None or row.standing.daily_quota is None:
            return
        today = day = now // DAY_MS
        while True:
            day = self.first_day_with_room(user, row.standing.daily_quota, day)
            later = [job for job in self.deferred_jobs(user) if certain(job.quota_day) > day]
            if not later:
                return
            job = later[0]
            day_before = certain(job.quota_day)
            time_of_day = certain(job.run_at) - day_before * DAY_MS
            self.charge(user, day_before, -1)
            self.charge(user, day, 1)
            if day > today:
                self.defer(job, day, day * DAY_MS + time_of_day)
            else:
                job.quota_day, job.run_at, job.deferred = day, now, False
                if job.due_at is not None:
                    self.join(job, now)
                    continue
            self.tell(RESCHEDULED, job.id, {"run_at": job.run_at}, now)


def give_standing(job: JobRow, standing: Standing) -> None:
    job.tier = standing.tier
    job.boost = standing.boost
    job.iterations_batch = standing.iterations_batch
    job.iterations_max = standing.iterations_max
