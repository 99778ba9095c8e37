"""LineView: the whole line as people look at it, from one reading every few seconds for all of them.

The reading is the estimator's: line, groups, leases and workers. It is made only while somebody asks.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from qo.errors import QoError
from qo.job import Estimate, Job, State
from qo.loops.system import System
from qo.policy.estimates.forecast import Forecast
from qo.policy.movement import STILL, Movement, movements
from qo.policy.ordering import priority_of, sequence_drawn
from qo.policy.reasons.line import LineReasons
from qo.policy.reasons.reason import Reasons
from qo.queue.estimator import Estimator
from qo.values import InLine

log = logging.getLogger("qo.queue")


class Read(msgspec.Struct, frozen=True):
    """What was worked out from one reading of the line."""

    forecast: Forecast
    reasons: LineReasons
    movements: dict[str, Movement]
    drawn: dict[str, int]
    """The sequence that each job drew whose key no longer says it, because of a move."""


class LineView:
    """One for each queue."""

    def __init__(self, estimator: Estimator, *, system: System) -> None:
        self._estimator = estimator
        self._system = system
        self._read: Read | None = None

    def keep_promises(self) -> None:
        """Note from now on, in the store, the first range that each job's user is told. Servers do that."""
        self._estimator.keeps_promises = True

    async def forecast(self) -> Forecast:
        """The last forecast with its reading, which is a few seconds old."""
        self._estimator.start()
        return await self._estimator.recent()

    async def reasons(self) -> LineReasons:
        """Why the jobs in line wait, worked out once for each reading."""
        return (await self.read()).reasons

    async def read(self) -> Read:
        forecast = await self.forecast()
        if self._read is None or self._read.forecast is not forecast:
            self._read = await self._system.call_in_thread(_work_out, forecast)
        return self._read

    async def reasons_of(self, jobs: Sequence[Job]) -> list[Reasons]:
        """Why each of these jobs waits; none for a job that is not in line. They only inform: where they cannot be
        computed, there are none."""
        if all(job.position is None for job in jobs):
            return [()] * len(jobs)
        try:
            reasons = await self.reasons()
        except Exception as error:
            log.warning("jobs are shown without reasons: %s", error, exc_info=not isinstance(error, QoError))
            return [()] * len(jobs)
        return [reasons.of(job) for job in jobs]

    def movement_at_hand(self, job_id: str) -> Movement:
        """How the job had moved in line when that was last read."""
        return STILL if self._read is None else self._read.movements.get(job_id, STILL)

    def sequence_at_hand(self, job_id: str, key: int) -> int | None:
        """The number that a job drew when it joined the line: those that joined later have greater ones. None of a job
        that has been moved and was not in the last reading of the line."""
        return sequence_drawn(key, None) or (None if self._read is None else self._read.drawn.get(job_id))

    def front(self, count: int) -> list[tuple[InLine, Estimate | None, Movement]]:
        """The first jobs in line when that was last read, with their estimates and movements as of now."""
        if self._read is None:
            return []
        first = self._read.forecast.situation.line[:count]
        estimates = self._estimator.estimates_at_hand([_as_job(job, rank) for rank, job in enumerate(first)])
        return [(job, each, self.movement_at_hand(job.id)) for job, each in zip(first, estimates, strict=True)]

    def estimates_at_hand(self, jobs: Sequence[Job]) -> list[Estimate | None]:
        """Estimates as far as the last replay has them, without waiting for a new one."""
        return self._estimator.estimates_at_hand(jobs)


def _work_out(forecast: Forecast) -> Read:
    situation, made_at = forecast.situation, datetime.fromtimestamp(forecast.made_at, UTC)
    reasons = LineReasons(situation.line, groups=situation.groups, workers=situation.workers, now=made_at)
    drawn = {
        job.id: sequence
        for job in situation.line
        if job.undisturbed_key is not None and (sequence := sequence_drawn(job.undisturbed_key, None)) is not None
    }
    return Read(forecast, reasons, movements(situation.line), drawn)


def _as_job(job: InLine, rank: int) -> Job:
    """The job with the fields that an estimate needs."""
    return Job(
        id=job.id,
        task=job.task,
        state=State.QUEUED,
        status=State.QUEUED,
        priority=priority_of(job.key),
        groups=job.groups,
        submitted_at=datetime.fromtimestamp(0, UTC),
        attempts=0,
        tier=job.tier,
        position=rank + 1,
    )
