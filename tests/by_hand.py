"""A job that the test itself starts, reports on and ends, in place of a worker."""

from __future__ import annotations

from collections.abc import Sequence

import qo
from qo.job import JobError, Progress
from qo.values import Advance, Outcome

LEASE_MS = 600_000


class JobByHand:
    """The lease of one job. Each call is one step of the store."""

    def __init__(self, queue: qo.Queue, job_id: str, token: str) -> None:
        self.id = job_id
        self._store = queue.store
        self.token = token

    async def runs(self) -> None:
        await self._advance([Advance(job_id=self.id, token=self.token)])

    async def is_at(self, stage: str, message: str | None = None) -> None:
        await self._advance([Advance(job_id=self.id, token=self.token, stage=stage, message=message)])

    async def has_done(self, *done: float) -> None:
        reports = [Advance(job_id=self.id, token=self.token, progress=Progress(each)) for each in done]
        await self._advance(reports)

    async def has_done_of(self, done: float, total: float, text: str | None = None) -> None:
        await self._advance([Advance(job_id=self.id, token=self.token, progress=Progress(done, total, text))])

    async def has_said(self, *texts: str) -> None:
        """Progress with a text, for tests that need events of some size."""
        reports = [
            Advance(job_id=self.id, token=self.token, progress=Progress(number, text=text))
            for number, text in enumerate(texts)
        ]
        await self._advance(reports)

    async def succeeds(self) -> None:
        await self._finish(Outcome(job_id=self.id, token=self.token, state=qo.State.SUCCEEDED, result=None))

    async def fails(self, message: str) -> None:
        error = JobError(message)
        await self._finish(Outcome(job_id=self.id, token=self.token, state=qo.State.FAILED, error=error))

    async def asks(self, message: str) -> None:
        """Ask for confirmation."""
        await self._finish(Outcome(job_id=self.id, token=self.token, state=qo.State.CONFIRMING, message=message))

    async def is_handed_back(self) -> None:
        await self._finish(Outcome(job_id=self.id, token=self.token, state=qo.State.QUEUED))

    async def _finish(self, outcome: Outcome) -> None:
        (answer,) = await self._store.finish([outcome])
        assert not answer.lost

    async def _advance(self, advances: Sequence[Advance]) -> None:
        assert not any(held.lost for held in await self._store.advance(advances))


async def start(queue: qo.Queue, task: str = "build") -> JobByHand:
    """Start the first job in line of this task."""
    claimed = await queue.store.claim(
        worker="by-hand", tasks=[task], capacity=1, lease_ms=LEASE_MS, claim_id=queue.system.new_id()
    )
    (lease,) = claimed.leases
    return JobByHand(queue, lease.job.id, lease.token)
