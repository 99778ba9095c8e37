"""Jobs in states that a worker would bring about, for the pages that show them."""

from __future__ import annotations

import msgspec

import qo
from qo.job import JobError
from qo.values import Outcome
from tests.by_hand import JobByHand, start


async def end(queue: qo.Queue, job: JobByHand, state: qo.State, **fields: object) -> None:
    (answer,) = await queue.store.finish([Outcome(job_id=job.id, token=job.token, state=state, **fields)])  # type: ignore[arg-type]
    assert not answer.lost


async def run_and_fail(queue: qo.Queue, message: str, detail: str, debug_id: str = "DEBUG1") -> str:
    """Start the first job in line and let it fail. Answers its id."""
    job = await start(queue)
    await job.is_at("code")
    await end(queue, job, qo.State.FAILED, error=JobError(message, detail, debug_id))
    return job.id


async def run_and_succeed(queue: qo.Queue, result: object) -> str:
    job = await start(queue)
    await job.runs()
    await end(queue, job, qo.State.SUCCEEDED, result=msgspec.json.encode(result))
    return job.id
