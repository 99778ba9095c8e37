"""An idle worker on Redis offers to take a job, and gets one in the step that makes it claimable."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

import qo
from qo.store.redis import RedisStore
from qo.values import Offer
from tests.servers.redis import shared_server
from tests.worker.running import running, soon, until


@pytest.fixture
async def queue() -> AsyncIterator[qo.Queue]:
    async with await open_queue(f"offers-{secrets.token_hex(6)}") as opened:
        yield opened


async def open_queue(namespace: str) -> qo.Queue:
    return await qo.connect(shared_server("valkey").url, namespace=namespace, settings={})


async def is_idle(queue: qo.Queue, worker: qo.Worker) -> None:
    store = queue.store
    assert isinstance(store, RedisStore)
    await until(lambda: store.client.command("HEXISTS", f"{store.client.prefix}idle_workers", worker.name))


async def kinds_of_events(queue: qo.Queue, job_id: str) -> list[str]:
    feed = await queue.store.events(0)
    return [event.kind for event in feed.events if event.subject == job_id]


async def test_an_idle_worker_runs_the_job_without_asking_for_it(queue: qo.Queue) -> None:
    worker = qo.Worker(queue, "worker-1")
    worker.task("build")(lambda: "done")
    claims = count_calls(queue.store, "claim")
    async with running(worker):
        await is_idle(queue, worker)
        before = len(claims)
        job = await queue.submit("build")
        ended = await queue.wait(job.id, timeout=20)

    assert (ended.result, ended.attempts, ended.worker) == ("done", 1, "worker-1")
    assert job.state is qo.State.QUEUED, "as it was when it was accepted"
    assert all(not given for given in claims[before:]), "no claim brought it"


async def test_a_worker_with_a_handler_that_runs_makes_no_offer(queue: qo.Queue) -> None:
    worker = qo.Worker(queue, "worker-1", concurrency=2)
    begun, release = asyncio.Queue[int](), asyncio.Event()

    @worker.task
    async def build(data: int) -> None:
        begun.put_nowait(data)
        await release.wait()

    offers = record_offers(queue.store)
    async with running(worker):
        await is_idle(queue, worker)
        await queue.submit("build", 1)
        assert await soon(begun.get()) == 1
        await is_idle(queue, worker)
        await queue.submit("build", 2)
        assert await soon(begun.get()) == 2
        release.set()

    assert [offer is None for offer in offers[:2]] == [False, True]


async def test_a_job_that_is_given_to_a_worker_as_it_stops_goes_back_to_its_place(queue: qo.Queue) -> None:
    worker = qo.Worker(queue, "worker-1")
    worker.task("build")(lambda: "done")
    run = asyncio.create_task(worker.run())
    await is_idle(queue, worker)

    # The event loop stands still until the job has been given away, so the worker sees both at the same time.
    elsewhere = threading.Thread(target=submit_elsewhere, args=(queue.store,))
    elsewhere.start()
    elsewhere.join()
    worker.stop()
    await soon(run)

    assert await kinds_of_events(queue, "given") == ["queued", "starting", "queued"]
    job = await queue.get("given")
    assert (job.state, job.attempts, job.position, job.worker) == (qo.State.QUEUED, 0, 1, None)


def submit_elsewhere(store: Any) -> None:
    async def submit() -> None:
        namespace = store.client.prefix.partition("{")[2].partition("}")[0]
        async with await open_queue(namespace) as queue:
            await queue.submit("build", id="given")

    asyncio.run(submit())


def count_calls(store: Any, name: str) -> list[bool]:
    """For each call from now on, whether it brought something."""
    calls: list[bool] = []
    operation = getattr(store, name)

    async def call(**options: Any) -> Any:
        answer = await operation(**options)
        calls.append(bool(answer.leases))
        return answer

    setattr(store, name, call)
    return calls


def record_offers(store: Any) -> list[Offer | None]:
    offers: list[Offer | None] = []
    wait_for_work = store.wait_for_work

    async def call(**options: Any) -> Any:
        offers.append(options["offer"])
        return await wait_for_work(**options)

    store.wait_for_work = call
    return offers
