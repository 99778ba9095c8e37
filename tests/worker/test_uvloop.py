"""qo in uvloop, the event loop that uvicorn brings and in which FastAPI applications therefore call it."""

from __future__ import annotations

import asyncio
from typing import Any

import uvloop

import qo
from qo.queue.queue import Queue
from qo.settings import load_settings
from qo.values import Bounds
from tests.stores import StoreUnderTest


def test_jobs_are_submitted_run_and_waited_for(store_under_test: StoreUnderTest) -> None:
    async def main() -> Any:
        store = await store_under_test.open(Bounds())
        async with Queue(store, load_settings({}, environ={})) as queue:
            worker = qo.Worker(queue, "worker-1")

            @worker.task
            async def double(data: int) -> int:
                return 2 * data

            jobs = [await queue.submit("double", number) for number in range(3)]
            await worker.run_until_idle()
            results = [(await queue.wait(job.id, timeout=10)).result for job in jobs]
        await store_under_test.close(store)
        return results

    assert uvloop.run(main()) == [0, 2, 4]


def test_the_limiter_lets_in_as_many_as_it_may(store_under_test: StoreUnderTest) -> None:
    async def main() -> list[int]:
        store = await store_under_test.open(Bounds())
        most = []
        async with Queue(store, load_settings({}, environ={})) as queue:
            for limiter in (qo.Limiter({"ollama": 2}), qo.Limiter({"ollama": 2}, queue=queue)):
                most.append(await _most_inside(limiter))
                limiter.close()
        await store_under_test.close(store)
        return most

    assert uvloop.run(main()) == [2, 2]


async def _most_inside(limiter: qo.Limiter) -> int:
    inside = most = 0

    async def call() -> None:
        nonlocal inside, most
        async with limiter.acquire("ollama"):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0.001)
            inside -= 1

    await asyncio.gather(*[call() for _ in range(10)])
    return most
