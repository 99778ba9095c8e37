"""Programs that a type checker must refuse: each marked line with the error of mypy, then that of pyright."""

from __future__ import annotations

import qo


@qo.task
async def build(data: str, ctx: qo.Context) -> int:
    return 1


@qo.task("ping")
async def ping() -> None: ...


async def wrong_tasks(queue: qo.Queue) -> None:
    await queue.submit(build, 7)  # error: misc, reportArgumentType
    await queue.submit(build)  # error: arg-type, reportArgumentType
    await queue.submit(ping, 7)  # error: misc, reportArgumentType
    await queue.submit(build, "a", prority="high")  # error: call-overload, reportCallIssue
    _: str = await queue.result("id", build)  # error: arg-type, reportAssignmentType
    await build("a")  # error: call-arg, reportCallIssue
    await queue.result(7)  # error: call-overload, reportArgumentType
    qo.Worker(queue, tasks=[print])  # error: list-item, reportArgumentType
    qo.New(build, 7)  # error: misc, reportArgumentType
    qo.task("x", proces=True)  # error: call-overload, reportCallIssue


async def wrong_calls(queue: qo.Queue) -> None:
    await queue.submit(7)  # error: call-overload, reportArgumentType
    await queue.submit("a", {}, prority="high")  # error: call-overload, reportCallIssue
    await queue.submit("a", delay="5 minutes")  # error: call-overload, reportArgumentType
    await queue.submit("a", start_by="tomorrow")  # error: call-overload, reportArgumentType
    await queue.submit_many(["a"])  # error: list-item, reportArgumentType
    await queue.get()  # error: call-arg, reportCallIssue
    await queue.jobs("waiting")  # error: call-arg, reportCallIssue
    await queue.set_limit("global", "4")  # error: arg-type, reportArgumentType
    await queue.cancel()  # error: call-overload, reportCallIssue
    await queue.set_priority("a", 5, parent="p1")  # error: call-overload, reportCallIssue
    queue.sumbit("a")  # error: attr-defined, reportAttributeAccessIssue
    qo.verify_webhook("secret", {}, "text")  # error: arg-type, reportArgumentType


async def wrong_answers(queue: qo.Queue) -> None:
    job = await queue.get("a")
    _ = job.position + 1  # error: operator, reportOptionalOperand
    job.state = qo.State("done")  # error: misc, reportAttributeAccessIssue
    _ = (await queue.estimate("a")).message  # error: union-attr, reportOptionalMemberAccess
    _ = queue.get("a").task  # error: attr-defined, reportAttributeAccessIssue


def wrong_handlers(queue: qo.Queue) -> None:
    worker = qo.Worker(queue, concurency=4)  # error: call-arg, reportCallIssue

    @worker.task("a", max_concurent=3)  # error: call-overload, reportCallIssue
    async def a(data: object) -> None: ...

    @worker.task("b", timeout="1 h")  # error: call-overload, reportArgumentType
    async def b(data: object) -> None: ...

    qo.Worker("memory://")  # error: arg-type, reportArgumentType


def wrong_limits() -> None:
    limiter = qo.Limiter({"ollama": "4"})  # error: dict-item, reportArgumentType
    limiter.acquire("ollama", 5)  # error: call-arg, reportCallIssue
    _ = limiter.get_metrics()["in_flght"]  # error: typeddict-item, reportGeneralTypeIssues
    with limiter.acquire("ollama") as lease:
        lease.token = "1"  # error: misc, reportAttributeAccessIssue


def wrong_without_await(queue: qo.sync.Queue) -> None:
    queue.submit(7)  # error: call-overload, reportArgumentType
    queue.get("a", "b")  # error: call-arg, reportCallIssue
    queue.jobs(limit="1")  # error: arg-type, reportArgumentType
    queue.cancel()  # error: call-overload, reportCallIssue
    queue.set_priority("a", 5, parent="p1")  # error: call-overload, reportCallIssue
    qo.sync.Worker(qo.connect("memory://"))  # error: arg-type, reportArgumentType
