"""A worker that runs beside the test, and waits that end as soon as their condition holds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TypedDict, TypeVar, Unpack

import qo

T = TypeVar("T")
AT_MOST_SECONDS = 20
"""A net for events that never come. Nothing here takes that long."""


class SubmitOptions(TypedDict, total=False):
    """The options of `Queue.submit` that tests give to `run_one`."""

    id: str
    user: str
    tier: str | None
    parent: str
    groups: list[str]
    max_attempts: int
    timeout: float | timedelta
    contact: str


@asynccontextmanager
async def running(*workers: qo.Worker) -> AsyncIterator[None]:
    """Run the workers beside the block; at its end they are stopped and gone."""
    runs = [asyncio.create_task(worker.run()) for worker in workers]
    try:
        yield
    finally:
        for worker in workers:
            worker.stop_now()
        await soon(asyncio.gather(*runs))


async def soon(awaitable: Awaitable[T]) -> T:
    return await asyncio.wait_for(awaitable, AT_MOST_SECONDS)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for a condition that nothing announces, by looking again and again."""

    async def look() -> None:
        while not await condition():  # noqa: ASYNC110 - other processes and threads change it
            await asyncio.sleep(0.005)

    await soon(look())


async def state_is(queue: qo.Queue, job_id: str, state: qo.State) -> None:
    async def reached() -> bool:
        return (await queue.get(job_id)).state is state

    await until(reached)


async def run_one(
    queue: qo.Queue, worker: qo.Worker, task: str, data: object = None, **options: Unpack[SubmitOptions]
) -> qo.Job:
    """Submit a job and run everything that can run. Returns the job as it is then."""
    job = await queue.submit(task, data, **options)
    await soon(worker.run_until_idle())
    return await queue.get(job.id)
