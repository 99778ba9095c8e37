"""What is where in the reference model, found by looking at all rows, and how its rows stand in time."""

from __future__ import annotations

from qo.errors import JobNotFound
from qo.job import ENDED, State
from qo.policy.groups import GLOBAL, groups_of
from qo.values import TaskOptions
from tests.conformance.model.state import JobRow, LeaseRow, TicketRow, certain
from tests.conformance.model.telling import Telling

MAY_BE_OVERDUE = frozenset({State.SCHEDULED, State.WAITING, State.QUEUED})


class Rows(Telling):
    # --- what is where ----------------------------------------------------------------------------------------

    def row(self, job_id: str) -> JobRow:
        if job_id not in self.state.jobs:
            raise JobNotFound(job_id)
        return self.state.jobs[job_id]

    def in_line(self) -> list[JobRow]:
        """Every job that may run but does not yet, in its order."""
        queued = (job for job in self.state.jobs.values() if job.state is State.QUEUED)
        return sorted(queued, key=lambda job: certain(job.key))

    def rank(self, job: JobRow) -> int:
        return 1 + sum(certain(other.key) < certain(job.key) for other in self.in_line())

    def options_of(self, task: str) -> TaskOptions:
        return self.state.tasks.get(task, TaskOptions(name=task))

    def groups_of_job(self, job: JobRow) -> tuple[str, ...]:
        return groups_of(
            task=job.task,
            priority=job.priority,
            user=job.user,
            project=job.project,
            tier=job.tier,
            parent=job.parent,
            task_groups=self.options_of(job.task).groups,
            own=job.own_groups,
        )

    def all_groups(self, waiting: JobRow | TicketRow) -> tuple[str, ...]:
        return waiting.groups if isinstance(waiting, TicketRow) else self.groups_of_job(waiting)

    def groups_to_park_in(self, waiting: JobRow | TicketRow) -> list[str]:
        """The groups of a job without its gates; all groups of a caller, who has no gates."""
        if isinstance(waiting, TicketRow):
            return list(waiting.groups)
        return [group for group in self.groups_of_job(waiting) if group not in gates(waiting.task)]

    def jobs_of_parent(self, parent: str) -> list[JobRow]:
        """Its phases by number, then its jobs without a phase by submission."""
        jobs = [job for job in self.state.jobs.values() if job.parent == parent]
        return sorted(jobs, key=lambda job: (job.phase is None, job.phase or 0, job.number))

    def unfinished_with(self, unique: str | None) -> JobRow | None:
        if unique is None:
            return None
        same = (job for job in self.state.jobs.values() if job.unique == unique)
        return next((job for job in same if job.state not in ENDED), None)

    def lease_of_job(self, job_id: str, token: str) -> LeaseRow | None:
        found = (lease for lease in self.state.leases.values() if lease.is_job and lease.holder == job_id)
        return next((lease for lease in found if str(lease.token) == token), None)

    def lease_of_caller(self, holder: str) -> LeaseRow | None:
        found = (lease for lease in self.state.leases.values() if not lease.is_job and lease.holder == holder)
        return next(found, None)

    # --- workers ----------------------------------------------------------------------------------------------

    def has_live_worker(self, task: str, now: int) -> bool:
        return any(worker.handles(task) and worker.expires_at > now for worker in self.state.workers.values())

    def running(self, worker: str) -> int:
        return sum(lease.is_job and lease.worker == worker for lease in self.state.leases.values())

    # --- time -------------------------------------------------------------------------------------------------

    def counted(self, now: int) -> int:
        """The scale on which leases and tickets end."""
        return now - self.state.uncounted_ms

    def steady(self, now: int) -> int:
        """The scale on which spans end."""
        return now - self.state.fallen_ms

    def ends_at(self, lease: LeaseRow) -> int:
        """by the store's clock"""
        return lease.expires_at + self.state.uncounted_ms

    def has_to_wait(self, job: JobRow, now: int) -> bool:
        """for the time or for the end of the span that was given"""
        if job.steady_at is not None:
            return job.steady_at > self.steady(now)
        return job.run_at is not None and job.run_at > now

    def wait_until_due(self, job: JobRow) -> None:
        job.due_at = job.run_at if job.steady_at is None else job.steady_at

    def is_due(self, job: JobRow, now: int) -> bool:
        return job.due_at is not None and not self.has_to_wait(job, now)

    def due_on_the_clock(self, job: JobRow) -> int:
        due_at = certain(job.due_at)
        return due_at if job.steady_at is None else due_at + self.state.fallen_ms

    def latest_start(self, job: JobRow) -> int | None:
        """by the store's clock; None where it has none, or it is void"""
        if job.state not in MAY_BE_OVERDUE or job.started_at is not None:
            return None
        return job.start_by if job.steady_start_by is None else job.steady_start_by + self.state.fallen_ms

    def is_overdue(self, job: JobRow, now: int) -> bool:
        latest = self.latest_start(job)
        return latest is not None and latest <= now


def gates(task: str) -> tuple[str, str]:
    return (GLOBAL, task)
