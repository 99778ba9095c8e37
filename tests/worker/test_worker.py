"""A worker takes jobs and runs them: how many at once, from which tasks, with how few round trips."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from msgspec import structs

import qo
from qo.values import Advance, Claimed, Held
from tests.worker.running import running, soon, state_is, until


async def test_no_more_run_at_once_than_the_worker_has_capacity_for(queue: qo.Queue) -> None:
    worker = qo.Worker(queue, concurrency=3)
    running_now, most = 0, 0
    all_capacity_is_taken = asyncio.Event()

    @worker.task
    async def count() -> None:
        nonlocal running_now, most
        running_now += 1
        most = max(most, running_now)
        if running_now == 3:
            all_capacity_is_taken.set()
        await all_capacity_is_taken.wait()
        await asyncio.sleep(0.001)
        running_now -= 1

    await queue.submit_many([qo.New("count")] * 30)
    await soon(worker.run_until_idle())

    assert most == 3
    assert len(await queue.jobs(status="succeeded")) == 30


async def test_a_limited_group_is_never_exceeded_and_slots_are_numbered(queue: qo.Queue, worker: qo.Worker) -> None:
    ports: list[int] = []
    in_use: set[int] = set()

    @worker.task(max_concurrent=2, groups=["ports"])
    async def serve(data: Any, ctx: qo.Context) -> None:
        port = ctx.slots["ports"]
        assert port not in in_use
        in_use.add(port)
        ports.append(port)
        await asyncio.sleep(0.001)
        in_use.discard(port)

    await queue.set_limit("ports", 2)
    await queue.submit_many([qo.New("serve")] * 20)
    await soon(worker.run_until_idle())

    assert set(ports) == {0, 1}
    assert len(await queue.jobs(status="succeeded")) == 20


async def test_run_until_idle_also_runs_what_the_jobs_submit_and_release(queue: qo.Queue, worker: qo.Worker) -> None:
    @worker.task
    async def first() -> None:
        await queue.submit("second")

    @worker.task
    async def second() -> None: ...

    await queue.submit("first", parent="app", phase=1)
    await queue.submit("second", parent="app", phase=2)
    await soon(worker.run_until_idle())

    assert [job.state for job in await queue.jobs()] == [qo.State.SUCCEEDED] * 3


async def test_a_job_is_put_together_only_for_a_handler_that_looks_at_it(
    queue: qo.Queue, worker: qo.Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_together: list[str] = []
    claim = queue.store.claim

    async def claim_counted(**options: Any) -> Claimed:
        claimed = await claim(**options)
        leases = tuple(structs.replace(each, read_job=partial(counted, each.read_job)) for each in claimed.leases)
        return structs.replace(claimed, leases=leases)

    def counted(read_job: Callable[[], qo.Job]) -> qo.Job:
        job = read_job()
        put_together.append(job.task)
        return job

    monkeypatch.setattr(queue.store, "claim", claim_counted)

    @worker.task(timeout=10)
    async def blind(data: int) -> int:
        return data

    @worker.task(stages=["first", "second"])
    async def looking(data: Any, ctx: qo.Context) -> list[Any]:
        await ctx.stage("first")
        await ctx.stage("second")
        return [ctx.job.id, ctx.job.priority, ctx.attempt]

    await queue.submit("blind", 7, id="b")
    await queue.submit("looking", id="l", priority=20)
    await soon(worker.run_until_idle())

    assert (await queue.get("b")).result == 7
    assert (await queue.get("l")).result == ["l", 20, 1]
    assert put_together == ["looking"]


async def test_an_idle_worker_starts_what_comes(queue: qo.Queue, worker: qo.Worker) -> None:
    @worker.task
    async def hello() -> str:
        return "hi"

    async with running(worker):
        for _ in range(3):
            job = await queue.submit("hello")
            assert (await queue.wait(job.id, timeout=10)).result == "hi"


async def test_a_job_is_running_once_its_handler_runs(queue: qo.Queue, worker: qo.Worker) -> None:
    release = asyncio.Event()

    @worker.task
    async def slow() -> None:
        await release.wait()

    job = await queue.submit("slow")
    async with running(worker):
        await state_is(queue, job.id, qo.State.RUNNING)
        assert (await queue.get(job.id)).worker == "worker-1"
        (info,) = await queue.workers()
        assert (info.name, info.tasks, info.running, info.capacity) == ("worker-1", ("slow",), 1, 100)
        release.set()
        await queue.wait(job.id, timeout=10)


async def test_short_jobs_cost_no_write_to_tell_that_they_run(queue: qo.Queue, worker: qo.Worker) -> None:
    @worker.task
    async def noop() -> None: ...

    sent: list[Advance] = []
    advance = queue.store.advance

    async def counted(advances: Sequence[Advance]) -> list[Held]:
        sent.extend(advances)
        return await advance(advances)

    queue.store.advance = counted  # type: ignore[method-assign]
    await queue.submit_many([qo.New("noop")] * 200)
    await soon(worker.run_until_idle())

    assert len(await queue.jobs(status="succeeded", limit=300)) == 200
    assert len(sent) < 20


async def test_finished_jobs_go_back_and_new_ones_come_in_one_round_trip(queue: qo.Queue, worker: qo.Worker) -> None:
    @worker.task
    async def noop() -> None: ...

    calls: list[str] = []
    finish, claim = queue.store.finish, queue.store.claim

    async def finishing(outcomes: Any, **options: Any) -> Any:
        calls.append("finish")
        answer = await finish(outcomes, **options)
        calls.append("finished")
        return answer

    async def claiming(**options: Any) -> Any:
        calls.append("claim")
        return await claim(**options)

    queue.store.finish, queue.store.claim = finishing, claiming  # type: ignore[method-assign]
    await queue.submit_many([qo.New("noop")] * 1000)
    await soon(worker.run_until_idle())

    # Every finish but the last is followed by a claim before its own answer is there.
    together = [after for before, after in pairwise(calls) if before == "finish"]
    assert together.count("claim") >= len(together) - 1
    assert len(together) <= 30


async def test_several_workers_of_one_process_share_the_line(queue: qo.Queue) -> None:
    workers = [qo.Worker(queue, f"worker-{n}", concurrency=1) for n in range(3)]
    seen: set[str] = set()
    everybody = asyncio.Barrier(3)

    for worker in workers:

        @worker.task("meet")
        async def meet(data: Any, ctx: qo.Context, worker: qo.Worker = worker) -> None:
            seen.add(worker.name)
            await everybody.wait()

    async with running(*workers):
        jobs = [await queue.submit("meet") for _ in range(3)]
        for job in jobs:
            await queue.wait(job.id, timeout=10)

    assert seen == {"worker-0", "worker-1", "worker-2"}


async def test_a_worker_that_handles_only_one_task_leaves_the_others(queue: qo.Queue, worker: qo.Worker) -> None:
    worker.task("mine")(lambda: None)
    other = await queue.submit("other")
    mine = await queue.submit("mine")

    await soon(worker.run_until_idle())

    assert (await queue.get(mine.id)).state is qo.State.SUCCEEDED
    assert (await queue.get(other.id)).state is qo.State.QUEUED
    assert "no worker for task other is running" in (await queue.why(other.id)).sentence


async def test_a_worker_without_tasks_is_refused(worker: qo.Worker) -> None:
    with pytest.raises(qo.InvalidValue, match="has no tasks; register a handler"):
        await worker.run()


async def test_a_worker_runs_once_at_a_time(queue: qo.Queue, worker: qo.Worker) -> None:
    worker.task("job")(lambda: None)
    async with running(worker):
        await until(lambda: _registered(queue))
        with pytest.raises(qo.InvalidValue, match="runs already"):
            await worker.run()


async def _registered(queue: qo.Queue) -> bool:
    return len(await queue.workers()) == 1


async def test_a_worker_says_at_its_start_what_an_acknowledged_job_survives(
    queue: qo.Queue, worker: qo.Worker, caplog: pytest.LogCaptureFixture
) -> None:
    worker.task("job")(lambda: None)
    with caplog.at_level("INFO", logger="qo.worker"):
        await soon(worker.run_until_idle())

    assert queue.store.promise in caplog.messages
    assert any(word in queue.store.promise for word in ("survives", "live as long as", "loses every job"))
