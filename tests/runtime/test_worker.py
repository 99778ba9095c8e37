"""Registering handlers, running jobs, stopping."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from running import run_one, running, soon, state_is, until

import qo


class Order(msgspec.Struct):
    item: str
    count: int = 1


@dataclasses.dataclass
class Point:
    x: int
    y: int


class Model:
    """What a pydantic model offers, so that qo need not depend on it."""

    def __init__(self, name: str) -> None:
        self.name = name

    @classmethod
    def model_validate_json(cls, payload: bytes) -> Model:
        data = msgspec.json.decode(payload)
        if not isinstance(data.get("name"), str):
            raise ModelError
        return cls(data["name"])

    def model_dump_json(self) -> str:
        return msgspec.json.encode({"name": self.name.upper()}).decode()


class ModelError(ValueError):
    def errors(self, **options: bool) -> list[dict[str, Any]]:
        return [{"loc": ("name",), "msg": "Input should be a valid string"}]


# --- registering ----------------------------------------------------------------------------------------------


async def test_a_handler_is_registered_with_or_without_a_name(queue: qo.Queue, worker: qo.Worker) -> None:
    @worker.task
    async def plain() -> str:
        return "plain"

    @worker.task()
    async def with_parentheses(data: Any) -> str:
        return "parentheses"

    @worker.task("named")
    async def anything(data: Any, ctx: qo.Context) -> str:
        return ctx.job.task

    results = [(await run_one(queue, worker, task)).result for task in ("plain", "with_parentheses", "named")]

    assert results == ["plain", "parentheses", "named"]


async def test_a_plain_function_runs_in_a_thread_and_the_loop_goes_on(queue: qo.Queue, worker: qo.Worker) -> None:
    met = threading.Event()

    @worker.task
    def waits_for_the_loop() -> str:
        return f"met: {met.wait(timeout=10)} in {threading.current_thread().name}"

    @worker.task
    async def lets_go() -> None:
        met.set()

    job = await queue.submit("waits_for_the_loop")
    await queue.submit("lets_go")
    await soon(worker.run_until_idle())

    assert (await queue.get(job.id)).result == f"met: True in {job.id}"


@pytest.mark.parametrize(
    ("annotation", "data", "seen"),
    [
        (Order, {"item": "tea"}, "Order(item='tea', count=1)"),
        (Point, {"x": 1, "y": 2}, "Point(x=1, y=2)"),
        (dict[str, int], {"a": 1}, "{'a': 1}"),
        (int, 7, "7"),
        (Any, [1, "x"], "[1, 'x']"),
    ],
)
async def test_a_typed_payload_is_decoded(
    queue: qo.Queue, worker: qo.Worker, annotation: Any, data: Any, seen: str
) -> None:
    async def handler(data: Any) -> str:
        return repr(data)

    handler.__annotations__["data"] = annotation
    worker.task("typed")(handler)

    assert (await run_one(queue, worker, "typed", data)).result == seen


async def test_a_pydantic_like_model_is_validated_and_returned(queue: qo.Queue, worker: qo.Worker) -> None:
    @worker.task
    async def greet(data: Model) -> Model:
        return data

    assert (await run_one(queue, worker, "greet", {"name": "ada"})).result == {"name": "ADA"}
    wrong = await run_one(queue, worker, "greet", {"name": 7})
    assert wrong.error is not None
    assert wrong.error.message == "The data does not fit task greet: name: Input should be a valid string."


async def test_a_payload_that_does_not_fit_fails_by_field_without_another_attempt(
    queue: qo.Queue, worker: qo.Worker
) -> None:
    called = []

    @worker.task
    async def order(data: Order) -> None:
        called.append(data)

    job = await run_one(queue, worker, "order", {"item": "tea", "count": "many"})

    assert (job.state, job.attempts, called) == (qo.State.FAILED, 1, [])
    assert job.error is not None
    assert job.error.message == ("The data does not fit task order: Expected `int`, got `str` - at `$.count`.")


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        (lambda a, b, c: None, "a handler takes (data, ctx), (data) or nothing"),
        (lambda *, data: None, "a handler takes (data, ctx), (data) or nothing"),
    ],
)
async def test_what_cannot_be_a_handler_is_refused(worker: qo.Worker, handler: Any, says: str) -> None:
    with pytest.raises(qo.InvalidValue) as refusal:
        worker.task("odd")(handler)

    assert says in str(refusal.value)


async def test_a_type_that_json_cannot_become_is_refused_when_registering(worker: qo.Worker) -> None:
    async def handler(data: threading.Thread) -> None: ...

    handler.__annotations__["data"] = list[object, object]  # type: ignore[misc]

    with pytest.raises(qo.InvalidValue, match="use a msgspec Struct"):
        worker.task("odd")(handler)


async def test_a_type_that_cannot_be_found_is_refused_when_registering(worker: qo.Worker) -> None:
    async def handler(data: Any) -> None: ...

    handler.__annotations__["data"] = "Missing"

    with pytest.raises(qo.InvalidValue, match="define that type at the top of its module"):
        worker.task("odd")(handler)


async def test_a_handler_may_use_what_is_defined_after_it(queue: qo.Queue, worker: qo.Worker) -> None:
    @worker.task
    async def early(data: Any) -> str:
        return later

    later = "later"

    assert (await run_one(queue, worker, "early")).result == "later"


async def test_a_name_is_taken_once(worker: qo.Worker) -> None:
    worker.task("build")(lambda: None)

    with pytest.raises(qo.InvalidValue, match="already has a task 'build'"):
        worker.task("build")(lambda: None)


@pytest.mark.parametrize("concurrency", [0, -1, 1.5, True])
async def test_concurrency_is_one_or_more(queue: qo.Queue, concurrency: Any) -> None:
    with pytest.raises(qo.InvalidValue, match="concurrency is"):
        qo.Worker(queue, concurrency=concurrency)


# --- running --------------------------------------------------------------------------------------------------


async def test_no_more_run_at_once_than_the_worker_has_places(queue: qo.Queue) -> None:
    worker = qo.Worker(queue, concurrency=3)
    running_now, most = 0, 0

    @worker.task
    async def count() -> None:
        nonlocal running_now, most
        running_now += 1
        most = max(most, running_now)
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
        assert (info.name, info.tasks, info.running, info.places) == ("worker-1", ("slow",), 1, 100)
        release.set()
        await queue.wait(job.id, timeout=10)


async def test_short_jobs_cost_no_write_to_tell_that_they_run(queue: qo.Queue, worker: qo.Worker) -> None:
    @worker.task
    async def noop() -> None: ...

    advances = []
    advance = queue.store.advance

    async def counted(items: Any, **options: Any) -> Any:
        advances.extend(items)
        return await advance(items, **options)

    queue.store.advance = counted  # type: ignore[method-assign]
    await queue.submit_many([qo.New("noop")] * 200)
    await soon(worker.run_until_idle())

    assert len(await queue.jobs(status="succeeded", limit=300)) == 200
    assert len(advances) < 20


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


# --- stopping -------------------------------------------------------------------------------------------------


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
    begun = asyncio.Event()

    @worker.task
    async def endless() -> None:
        begun.set()
        await asyncio.Event().wait()

    @worker.task
    def endless_thread() -> None:
        threading.Event().wait(20)

    jobs = [await queue.submit("endless"), await queue.submit("endless_thread")]
    run = asyncio.create_task(worker.run())
    await soon(begun.wait())
    worker.stop()
    await soon(run)

    after = [await queue.get(job.id) for job in jobs]
    assert [(job.state, job.attempts, job.position) for job in after] == [
        (qo.State.QUEUED, 0, 1),
        (qo.State.QUEUED, 0, 2),
    ]


async def test_a_handler_that_finishes_while_it_is_told_to_stop_has_succeeded(
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
    newest_event = queue.store.newest_event

    async def held_up() -> int:
        if not starting.is_set():
            starting.set()
            await asyncio.Event().wait()
        return await newest_event()

    queue.store.newest_event = held_up  # type: ignore[method-assign]
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
