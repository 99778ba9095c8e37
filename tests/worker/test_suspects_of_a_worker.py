"""A worker takes suspects carefully: few at first, and the one that may not be lost again alone."""

from __future__ import annotations

import asyncio

import qo
from qo.values import Submission
from tests.worker.running import soon, until


async def submit_and_lose(queue: qo.Queue, *job_ids: str, max_attempts: int = 3) -> None:
    """Jobs whose worker is gone, and whose leases have run out."""
    submissions = [Submission(id=job_id, task="work", max_attempts=max_attempts) for job_id in job_ids]
    await queue.store.submit(submissions)
    claimed = await queue.store.claim(
        worker="gone", tasks=["work"], capacity=len(job_ids), lease_ms=1, claim_id=f"of-{job_ids[0]}"
    )
    assert len(claimed.leases) == len(job_ids)

    async def have_run_out() -> bool:
        await queue.store.catch_up()
        return not await queue.store.leases()

    await until(have_run_out)


def counting(worker: qo.Worker) -> list[tuple[str, int]]:
    """Each start of a job, with how many ran then. Each job runs until no other one starts."""
    starts: list[tuple[str, int]] = []
    inside = 0

    @worker.task("work")
    async def work(data: object, ctx: qo.Context) -> None:
        nonlocal inside
        inside += 1
        starts.append((ctx.job.id, inside))
        seen = 0
        while seen < len(starts):
            seen = len(starts)
            await asyncio.sleep(0.05)
        inside -= 1

    return starts


async def test_a_worker_runs_one_suspect_at_first_and_then_twice_as_many(queue: qo.Queue, worker: qo.Worker) -> None:
    await submit_and_lose(queue, *(f"job-{number}" for number in range(7)))
    starts = counting(worker)

    await soon(worker.run_until_idle())

    together = [inside for _, inside in starts]
    assert together[0] == 1
    assert max(together[:3]) == 2
    assert max(together) > 2
    assert {job.state for job in await queue.jobs()} == {qo.State.SUCCEEDED}


async def test_other_jobs_start_beside_a_suspect(queue: qo.Queue, worker: qo.Worker) -> None:
    await submit_and_lose(queue, "a", "b")
    await queue.submit("work", id="x")
    starts = counting(worker)

    await soon(worker.run_until_idle())

    assert [job_id for job_id, _ in starts] == ["a", "x", "b"]


async def test_a_suspect_whose_start_is_its_last_runs_alone(queue: qo.Queue, worker: qo.Worker) -> None:
    await submit_and_lose(queue, "last", max_attempts=2)
    for number in range(3):
        await queue.submit("work", id=f"other-{number}")
    await queue.submit("work", id="sooner", priority=10)
    starts = counting(worker)

    await soon(worker.run_until_idle())

    assert starts[:2] == [("sooner", 1), ("last", 1)]
    assert [inside for _, inside in starts[2:]] == [1, 2, 3]
