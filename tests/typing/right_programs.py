"""Programs that use the public API. Nothing runs them: the type checkers read them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, assert_type

import qo


class Payload:
    name: str


class Invoice:
    price: float


@qo.task("build", max_concurrent=10)
async def build(data: Payload, ctx: qo.Context) -> Invoice:
    return Invoice()


@qo.task
async def without_context(data: Payload) -> int:
    return 1


@qo.task
async def without_data() -> str:
    return "done"


@qo.task(process=True, timeout=60)
def in_a_process(data: list[int], ctx: qo.ThreadContext) -> int:
    ctx.progress(1, 3, "begun")
    return sum(data)


@qo.task
def plain(data: str) -> float:
    return 1.0


TASKS: list[qo.Task[Any, Any]] = [build, without_context, without_data, in_a_process, plain]


async def tasks_without_strings(queue: qo.Queue) -> None:
    assert_type(await queue.submit(build, Payload(), user="ada", priority="high"), qo.Job[Invoice])
    assert_type(await queue.result(await queue.submit(build, Payload())), Invoice)
    assert_type(await queue.result(await queue.submit(without_context, Payload()), timeout=5), int)
    assert_type(await queue.result(await queue.submit(without_data)), str)
    assert_type(await queue.result(await queue.submit(in_a_process, [1, 2])), int)
    assert_type(await queue.result(await queue.submit(plain, "a")), float)
    assert_type(await queue.result("id", build), Invoice)
    assert_type(await queue.result("id"), Any)
    await queue.submit_many([qo.New(build, Payload(), user="ada"), qo.New(without_data), qo.New("by_name", 7, id="x")])
    assert_type(await queue.result(await queue.submit("by_name", {})), Any)
    # A function stays one, so that a test can call it.
    assert_type(await build(Payload(), context()), Invoice)
    assert_type(await without_data(), str)
    assert_type(in_a_process([1], thread_context()), int)
    assert_type(build.name, str)
    worker = qo.Worker(queue, "builder", tasks=TASKS)
    worker.cron("0 3 * * *", build, {"name": "a"})

    @worker.lifespan
    async def shared() -> AsyncIterator[dict[str, str]]:
        yield {"pool": "of connections"}

    @worker.around
    async def report(ctx: qo.Context) -> AsyncIterator[None]:
        assert_type(ctx.job, qo.Job)
        yield


async def any_task(queue: qo.Queue, task: qo.Task[Payload, Invoice]) -> Invoice:
    try:
        return await queue.result(await queue.submit(task, Payload()))
    except qo.JobFailed as failed:
        assert_type(failed.debug_id, str | None)
        raise
    except qo.JobCancelled as cancelled:
        assert_type(cancelled.message, str | None)
        raise


async def submitting_and_reading() -> None:
    async with await qo.connect("memory://") as queue:
        assert_type(queue, qo.Queue)
        job = await queue.submit("build", {"name": "a"}, user="ada", priority="urgent", delay=timedelta(minutes=1))
        assert_type(job, qo.Job)
        await queue.submit("build", start_by=30)
        await queue.submit("build", start_by=datetime(2030, 1, 1, tzinfo=UTC))
        assert_type(job.id, str)
        assert_type(job.state, qo.State)
        assert_type(job.position, int | None)
        assert_type(job.estimate, qo.Estimate | None)
        assert_type(job.usage, qo.Usage | None)
        assert_type(await queue.submit_many([qo.New("build")]), list[qo.Job | qo.SubmitRefused])
        assert_type(await queue.get(job.id), qo.Job)
        assert_type(await queue.jobs(status="waiting", limit=5), list[qo.Job])
        assert_type(await queue.wait(job.id, timeout=1.5), qo.Job)
        assert_type(await queue.parent("p1"), qo.ParentStatus)
        assert_type(await queue.workers(), list[qo.WorkerInfo])
        assert_type(await queue.usage("ada"), qo.Usage)
        assert_type(await queue.estimate(job.id), qo.Estimate | None)
        assert_type(await queue.analytics(minutes=5), qo.Analytics)
        assert_type(await queue.audit(), list[qo.AuditEntry])
        why = await queue.why(job.id)
        assert_type(why, qo.Why)
        assert_type(why.sentence, str)
        assert_type(why.holders, tuple[qo.Holder, ...])
        async for event in queue.watch(job.id, after=7):
            assert_type(event, qo.Event)
            assert_type(event.kind, str)


async def changing(queue: qo.Queue) -> None:
    assert_type(await queue.cancel("a"), qo.Job)
    assert_type(await queue.cancel(parent="p1"), list[qo.Job])
    assert_type(await queue.set_priority("a", 5), qo.Job)
    assert_type(await queue.set_priority(priority="low", parent="p1"), list[qo.Job])
    assert_type(await queue.move("a", before="b"), qo.Job)
    assert_type(await queue.retry("a"), qo.Job)
    assert_type(await queue.confirm("a", by="ada"), qo.Job)
    assert_type(await queue.limit("global"), qo.ConcurrencyStatus)
    assert_type(await queue.limits(), list[qo.ConcurrencyStatus])
    assert_type(await queue.release_slot("global", 0, force=True), str)
    await queue.set_limit("provider:ollama", 4)
    await queue.remove_limit("provider:ollama")
    await queue.pause("global")
    await queue.resume("global")
    await queue.set_tier("ada", "partner")


async def connecting() -> None:
    assert_type(await qo.connect(), qo.Queue)
    assert_type(await qo.connect(Path("jobs.db"), namespace="a", settings={"queue": {"cap": 5}}), qo.Queue)
    assert_type(await qo.connect("redis://localhost", timeout=0.5), qo.Queue)
    clock = qo.Clock(datetime(2026, 3, 1, tzinfo=UTC))
    assert_type(await qo.connect("memory://", clock=clock), qo.Queue)
    clock.advance(days=1, hours=0.5)
    clock.advance_to(clock.now() + timedelta(minutes=1))


async def handling(queue: qo.Queue) -> None:
    worker = qo.Worker(queue, "builder", concurrency=4)

    @worker.task
    async def under_its_own_name(data: dict[str, Any], ctx: qo.Context) -> str:
        assert_type(ctx.job, qo.Job)
        assert_type(ctx.slots, Mapping[str, int])
        assert_type(ctx.attempt, int)
        await ctx.stage("one")
        await ctx.progress(1, 3)
        await ctx.save({"at": 1})
        assert_type(await ctx.extend_lease(timedelta(minutes=1)), datetime)
        async for number in ctx.iterations():
            assert_type(number, int)
        return "done"

    @worker.task("named", max_concurrent=3, groups=["gpu"], timeout=timedelta(hours=1))
    async def named(data: Payload) -> None:
        assert_type(data.name, str)

    @worker.task()
    def in_a_thread(data: Payload, ctx: qo.ThreadContext) -> int:
        ctx.stage("one")
        ctx.progress(1, 3, "one of three")
        assert_type(ctx.extend_lease(3.5), datetime)
        for number in ctx.iterations():
            assert_type(number, int)
        return 1

    # A handler keeps its own type, so that a test can call it.
    assert_type(await under_its_own_name({}, context()), str)
    assert_type(await named(Payload()), None)
    assert_type(in_a_thread(Payload(), thread_context()), int)
    worker.cron("*/5 * * * *", "named", {"name": "a"})
    await worker.run()
    await worker.run_until_idle()
    worker.stop()


def context() -> qo.Context:
    raise NotImplementedError


def thread_context() -> qo.ThreadContext:
    raise NotImplementedError


async def limiting(queue: qo.Queue) -> None:
    limiter = qo.Limiter({"ollama": 4}, total=12, groups={"gpu": 1}, queue=queue, strict=True)
    assert_type(qo.Limiter.from_env(), qo.Limiter)
    assert_type(limiter.acquire("ollama", timeout=1), qo.Block)
    with limiter.acquire("ollama") as lease:
        assert_type(lease, qo.Lease)
        assert_type(lease.token, str)
        assert_type(lease.slots, Mapping[str, int])
        assert_type(lease.lost, bool)
    async with limiter.acquire(groups=["gpu"], priority="high") as lease_of_a_task:
        assert_type(lease_of_a_task, qo.Lease)
    async with AsyncExitStack() as stack:
        assert_type(await stack.enter_async_context(limiter.acquire("ollama")), qo.Lease)
    assert_type(limiter.get_metrics(), qo.LimiterMetrics)
    assert_type(limiter.get_metrics()["in_flight"], dict[str, int])
    assert_type(limiter.samples(), list[qo.Sample])
    limiter.set_limit("ollama", None)
    limiter.close()


async def slots_by_hand(queue: qo.Queue) -> None:
    async with await qo.ConcurrencyManager.open("s3://bucket/prefix") as manager:
        assert_type(manager, qo.ConcurrencyManager)
        assert_type(await manager.try_acquire("gpu", 2, "me", lease=timedelta(minutes=5)), int | None)
        assert_type(await manager.release("gpu", 0, "me"), bool)
        assert_type(await manager.get_status("gpu"), qo.ConcurrencyStatus)
    semaphore = qo.user_semaphore(queue, "ada", "partner")
    assert_type(semaphore, qo.Semaphore)
    assert_type(await semaphore.acquire("me", timeout=1), bool)
    assert_type(await semaphore.count(), int)
    estimator = qo.WaitTimeEstimator(queue)
    assert_type(await estimator.estimate_with_confidence("partner", 3, 2), qo.Estimate)


def without_await() -> None:
    with qo.sync.connect("memory://", settings={"queue": {"cap": 5}}, clock=qo.Clock()) as queue:
        assert_type(queue, qo.sync.Queue)
        job = queue.submit("build", {"name": "a"}, user="ada")
        assert_type(job, qo.Job)
        assert_type(queue.submit_many([qo.New("build")]), list[qo.Job | qo.SubmitRefused])
        assert_type(queue.get(job.id), qo.Job)
        assert_type(queue.jobs(limit=1), list[qo.Job])
        assert_type(queue.wait(job.id, timeout=1), qo.Job)
        assert_type(queue.why(job.id), qo.Why)
        assert_type(queue.limits(), list[qo.ConcurrencyStatus])
        assert_type(queue.cancel("a"), qo.Job)
        assert_type(queue.cancel(parent="p1"), list[qo.Job])
        assert_type(queue.set_priority("a", 5), qo.Job)
        assert_type(queue.set_priority(priority="low", parent="p1"), list[qo.Job])
        for event in queue.watch(job.id):
            assert_type(event, qo.Event)
        assert_type(qo.Limiter({"ollama": 1}, queue=queue), qo.Limiter)

        assert_type(queue.submit(build, Payload(), user="ada"), qo.Job[Invoice])
        assert_type(queue.result(queue.submit(build, Payload()), timeout=5), Invoice)
        assert_type(queue.result("id", build), Invoice)
        worker = qo.sync.Worker(queue, tasks=[build, plain])

        @worker.task
        def built(data: dict[str, Any]) -> str:
            return "done"

        @worker.task("other", max_concurrent=1)
        def other(data: dict[str, Any]) -> str:
            return "done"

        assert_type(built({}), str)
        assert_type(other({}), str)
        assert_type(worker.run_until_idle(), None)
        semaphore = qo.sync.user_semaphore(queue, "ada", "partner")
        assert_type(semaphore.acquire("me", 1.0), bool)
    with qo.sync.ConcurrencyManager.open("memory://") as manager:
        assert_type(manager.try_acquire("gpu", 2, "me"), int | None)


limiter_of_a_module = qo.Limiter({"ollama": 4}, total=12, queue=qo.sync.connect())


def receiving_a_webhook(headers: Mapping[str, str], body: bytes) -> None:
    assert_type(qo.verify_webhook("secret", headers, body, now=datetime.now(UTC)), bool)


def refusals(error: qo.QueueFull, handler: Callable[[], None]) -> None:
    try:
        handler()
    except (qo.QueueFull, qo.PhaseTaken) as refused:
        assert_type(refused, qo.QueueFull | qo.PhaseTaken)
    assert_type(error.retry_after, timedelta)
