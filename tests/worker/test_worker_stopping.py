"""A worker that is stopped or cancelled: what runs ends or goes back, and it can run again."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import qo
from qo.event import Feed
from tests.worker.running import run_one, soon


async def test_a_stopped_worker_lets_what_runs_end_and_takes_nothing_more(queue: qo.Queue, worker: qo.Worker) -> None:
    begun, release = asyncio.Event(), asyncio.Event()

    @worker.task
    async def slow() -> str:
        begun.set()
        await release.wait()
        return "done"

    job = await queue.submit("slow")
    run = asyncio.create_task(worker.run())
    await soon(begun.wait())
    worker.stop()
    later = await queue.submit("slow")
    release.set()
    await soon(run)

    assert (await queue.get(job.id)).result == "done"
    assert (await queue.get(later.id)).attempts == 0
    assert await queue.workers() == []


@pytest.mark.parametrize("overrides", [{"worker": {"grace_secs": 0.05}}])
async def test_what_does_not_end_in_the_grace_period_goes_back_to_its_place_without_an_attempt_spent(
    queue: qo.Queue, worker: qo.Worker
) -> None:
    begun, over, threads = asyncio.Event(), threading.Event(), []

    @worker.task
    async def endless() -> None:
        begun.set()
        await asyncio.Event().wait()

    @worker.task
    def endless_thread() -> None:
        threads.append(threading.current_thread())
        over.wait()

    jobs = [await queue.submit("endless"), await queue.submit("endless_thread")]
    run = asyncio.create_task(worker.run())
    await soon(begun.wait())
    worker.stop()
    await soon(run)

    after = [await queue.get(job.id) for job in jobs]
    over.set()
    await asyncio.to_thread(threads[0].join)
    assert [(job.state, job.attempts, job.position) for job in after] == [
        (qo.State.QUEUED, 0, 1),
        (qo.State.QUEUED, 0, 2),
    ]


async def test_a_handler_that_returns_a_result_when_it_is_stopped_has_succeeded(
    queue: qo.Queue, worker: qo.Worker
) -> None:
    begun = asyncio.Event()

    @worker.task
    async def careful() -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "saved"
        raise AssertionError("Nothing sets this event.")

    job = await queue.submit("careful")
    run = asyncio.create_task(worker.run())
    await soon(begun.wait())
    worker.stop_now()
    await soon(run)

    assert (await queue.get(job.id)).result == "saved"


async def test_cancelling_run_hands_back_what_runs(queue: qo.Queue, worker: qo.Worker) -> None:
    begun = asyncio.Event()

    @worker.task
    async def endless() -> None:
        begun.set()
        await asyncio.Event().wait()

    job = await queue.submit("endless")
    run = asyncio.create_task(worker.run())
    await soon(begun.wait())
    run.cancel()
    await asyncio.gather(run, return_exceptions=True)

    assert run.cancelled()
    assert ((await queue.get(job.id)).state, (await queue.get(job.id)).attempts) == (qo.State.QUEUED, 0)


async def test_a_claim_that_was_under_way_when_run_was_cancelled_is_handed_back(
    queue: qo.Queue, worker: qo.Worker
) -> None:
    worker.task("job")(lambda: None)
    claiming, go_on = asyncio.Event(), asyncio.Event()
    claim = queue.store.claim

    async def slow_claim(**options: Any) -> Any:
        answer = await claim(**options)
        claiming.set()
        await go_on.wait()
        return answer

    job = await queue.submit("job")
    queue.store.claim = slow_claim  # type: ignore[method-assign]
    run = asyncio.create_task(worker.run())
    await soon(claiming.wait())
    run.cancel()
    asyncio.get_running_loop().call_soon(go_on.set)
    await asyncio.gather(run, return_exceptions=True)

    assert (await queue.get(job.id)).state in (qo.State.QUEUED, qo.State.SUCCEEDED)
    assert await queue.store.leases() == ()


async def test_a_worker_that_is_cancelled_once_it_is_registered_is_gone_and_can_run_again(
    queue: qo.Queue, worker: qo.Worker
) -> None:
    worker.task("job")(lambda: "again")
    starting = asyncio.Event()
    events = queue.store.events

    async def held_up(*args: Any, **kwargs: Any) -> Feed:
        if not starting.is_set():
            starting.set()
            await asyncio.Event().wait()
        return await events(*args, **kwargs)

    queue.store.events = held_up  # type: ignore[method-assign]
    run = asyncio.create_task(worker.run())
    await soon(starting.wait())
    run.cancel()
    await asyncio.gather(run, return_exceptions=True)

    assert run.cancelled()
    assert await queue.workers() == []
    assert (await run_one(queue, worker, "job")).result == "again"


async def test_a_worker_can_run_again_after_it_was_stopped(queue: qo.Queue, worker: qo.Worker) -> None:
    worker.task("job")(lambda: "again")
    worker.stop()
    await soon(worker.run())

    assert (await run_one(queue, worker, "job")).result == "again"
