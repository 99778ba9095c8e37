"""`@worker.lifespan` around a worker's run, and `@worker.around` around each run of a handler."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import pytest

import qo
from tests.worker.running import run_one, running, soon

request_id: ContextVar[str] = ContextVar("request_id", default="none")


async def test_handlers_share_what_the_lifespan_yields(queue: qo.Queue, worker: qo.Worker) -> None:
    steps: list[str] = []

    @worker.lifespan
    async def shared() -> AsyncIterator[dict[str, str]]:
        steps.append("open")
        yield {"pool": "of connections"}
        steps.append("close")

    @worker.task
    async def uses(data: Any, ctx: qo.Context) -> str:
        steps.append("run")
        return str(ctx.state["pool"])

    @worker.task
    def uses_in_a_thread(data: Any, ctx: qo.ThreadContext) -> str:
        return str(ctx.state["pool"])

    assert (await run_one(queue, worker, "uses")).result == "of connections"
    assert (await run_one(queue, worker, "uses_in_a_thread")).result == "of connections"
    assert steps == ["open", "run", "close", "open", "close"]


async def test_the_lifespan_ends_after_the_last_handler(queue: qo.Queue, worker: qo.Worker) -> None:
    steps: list[str] = []
    began = asyncio.Event()

    @worker.lifespan
    @asynccontextmanager
    async def shared() -> AsyncIterator[None]:
        try:
            yield
        finally:
            steps.append("closed")

    @worker.task
    async def slow() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            steps.append("ended")

    await queue.submit("slow")
    async with running(worker):
        await soon(began.wait())

    assert steps == ["ended", "closed"]


async def test_a_lifespan_that_cannot_open_ends_the_worker_before_it_claims(queue: qo.Queue, worker: qo.Worker) -> None:
    @worker.lifespan
    async def shared() -> AsyncIterator[None]:
        if worker.name:
            raise ConnectionError("the database is away")
        yield

    @worker.task
    async def never() -> None: ...

    job = await queue.submit("never")

    with pytest.raises(ConnectionError, match="the database is away"):
        await worker.run()
    assert (await queue.get(job.id)).attempts == 0
    assert await queue.workers() == []


async def test_without_a_lifespan_the_state_is_none(queue: qo.Queue, worker: qo.Worker) -> None:
    @worker.task
    async def looks(data: Any, ctx: qo.Context) -> bool:
        return ctx.state is None

    assert (await run_one(queue, worker, "looks")).result is True


async def test_around_surrounds_each_run_and_sees_its_error(queue: qo.Queue, worker: qo.Worker) -> None:
    seen: list[str] = []

    @worker.around
    async def report(ctx: qo.Context) -> AsyncIterator[None]:
        request_id.set(ctx.job.id)
        seen.append(f"{ctx.job.task} {ctx.attempt}")
        try:
            yield
        except ValueError as error:
            seen.append(repr(error))
            raise

    @worker.task(max_attempts=1)
    async def breaks() -> None:
        raise ValueError("broken")

    @worker.task
    def in_a_thread() -> str:
        return request_id.get()

    failed = await run_one(queue, worker, "breaks")
    worked = await run_one(queue, worker, "in_a_thread")

    assert failed.state is qo.State.FAILED
    assert worked.result == worked.id  # what the block sets is there in the handler, in a thread too
    assert seen == ["breaks 1", "ValueError('broken')", "in_a_thread 1"]


async def test_around_cannot_turn_an_error_into_a_success(queue: qo.Queue, worker: qo.Worker) -> None:
    @worker.around
    async def swallow(ctx: qo.Context) -> AsyncIterator[None]:
        try:
            yield
        except ValueError:
            pass

    @worker.task(max_attempts=1)
    async def breaks() -> str:
        raise ValueError("broken")

    failed = await run_one(queue, worker, "breaks")

    assert failed.state is qo.State.FAILED
    assert failed.error is not None
    assert failed.error.detail == "ValueError: broken"


async def test_an_error_in_around_is_an_error_of_the_run(queue: qo.Queue, worker: qo.Worker) -> None:
    @worker.around
    async def report(ctx: qo.Context) -> AsyncIterator[None]:
        if ctx.attempt == 1:
            raise RuntimeError("no span")
        yield

    @worker.task
    async def works() -> str:
        return "done"

    job = await queue.submit("works")
    async with running(worker):
        await soon(queue.wait(job.id))
    ended = await queue.get(job.id)

    assert (ended.state, ended.attempts, ended.result) == (qo.State.SUCCEEDED, 2, "done")


async def test_a_worker_has_one_lifespan_and_one_around_and_says_what_they_are(
    queue: qo.Queue, worker: qo.Worker
) -> None:
    async def no_yield() -> None: ...

    async def shared() -> AsyncIterator[None]:
        yield

    async def report(ctx: qo.Context) -> AsyncIterator[None]:
        yield

    with pytest.raises(qo.InvalidValue, match=r"above an `async def lifespan\(\)` with one `yield`"):
        worker.lifespan(no_yield)  # type: ignore[type-var]
    with pytest.raises(qo.InvalidValue, match=r"above an `async def around\(ctx\)` with one `yield`"):
        worker.around(no_yield)  # type: ignore[type-var]
    worker.lifespan(shared)
    worker.around(report)
    with pytest.raises(qo.InvalidValue, match="already has a lifespan"):
        worker.lifespan(shared)
    with pytest.raises(qo.InvalidValue, match="already has an around"):
        worker.around(report)
