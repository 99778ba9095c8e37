"""Suspects in the reference model: jobs that may have killed their worker, and which of them a worker may look at."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from qo.values import Suspicion
from tests.conformance.model.rows import Rows
from tests.conformance.model.state import JobRow


@dataclass
class Taker:
    """The worker that claims, as suspects see it."""

    worker: str
    held: int
    """how many job leases it has"""
    is_alone: bool
    """it runs a last suspect"""
    suspects: float
    """how many more suspects it may take"""
    now: int

    def may_take(self, job: JobRow) -> bool:
        return job.suspicion is not Suspicion.LAST or self.held == 0

    def note(self, job: JobRow) -> None:
        """It has taken this job."""
        self.held += 1
        self.suspects -= job.suspicion is not Suspicion.NONE
        self.is_alone = job.suspicion is Suspicion.LAST


class Suspects(Rows):
    def taker(self, worker: str, suspects: int | None, now: int) -> Taker:
        return Taker(worker, self.running(worker), self.runs_alone(worker), inf if suspects is None else suspects, now)

    def may_look_at(self, job: JobRow, taker: Taker) -> bool:
        """Whether the job is among those that a claim of this worker looks at: to take it, or to end there."""
        if taker.is_alone:
            return False
        if job.suspicion is Suspicion.LAST and taker.held:
            return self.empties_itself(taker, job.task)
        return job.suspicion is Suspicion.NONE or taker.suspects > 0

    def empties_itself(self, taker: Taker, task: str) -> bool:
        """Whether this is the worker that takes nothing more while a last suspect of the task waits."""
        heard_of = [
            worker.name
            for worker in self.state.workers.values()
            if worker.expires_at > taker.now
            and worker.heard_at > taker.now - self.state.lease_ms
            and worker.handles(task)
        ]

        def jobs_of(worker: str) -> int:
            return taker.held if worker == taker.worker else self.running(worker)

        return min(heard_of, key=lambda worker: (jobs_of(worker), worker), default=None) == taker.worker

    def runs_alone(self, worker: str) -> bool:
        jobs = (self.state.jobs[lease.holder] for lease in self.state.leases.values() if lease.is_job)
        return any(job.worker == worker and job.suspicion is Suspicion.LAST for job in jobs)
