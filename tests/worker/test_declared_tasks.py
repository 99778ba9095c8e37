"""Functions under `@qo.task`: bound to no worker and no queue, submitted as themselves, with typed results."""

from __future__ import annotations

import dataclasses
import inspect
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

import qo
import qo.sync
from tests.worker.running import run_one, soon


class Order(msgspec.Struct):
    item: str
    count: int = 1


@dataclasses.dataclass
class Invoice:
    item: str
    price: float
    due: datetime


DUE = datetime(2030, 1, 1, tzinfo=UTC)


@qo.task("invoice", max_attempts=1)
async def make_invoice(data: Order, ctx: qo.Context) -> Invoice:
    if data.count == 0:
        raise qo.Fail("Nothing was ordered.")
    if data.count < 0:
        raise RuntimeError("the till is broken")
    return Invoice(data.item, 2.5 * data.count, DUE)


@qo.task
def length(data: str) -> int:
    return len(data)


@qo.task
async def nothing() -> str | None:
    return None


async def test_a_function_is_submitted_as_itself_and_its_result_has_its_type(queue: qo.Queue) -> None:
    worker = qo.Worker(queue, tasks=[make_invoice, length, nothing])
    bought = await queue.submit(make_invoice, Order("tea", 3), user="ada")
    counted = await queue.submit(length, "letters")
    empty = await queue.submit(nothing)
    await soon(worker.run_until_idle())

    assert (bought.task, bought.user, counted.task) == ("invoice", "ada", "length")
    assert await queue.result(bought) == Invoice("tea", 7.5, DUE)
    assert await queue.result(bought.id) == Invoice("tea", 7.5, DUE)
    assert (await queue.get(bought.id)).result == {"item": "tea", "price": 7.5, "due": "2030-01-01T00:00:00Z"}
    assert await queue.result(counted) == 7
    assert await queue.result(empty) is None


async def test_a_list_of_jobs_may_name_functions(queue: qo.Queue) -> None:
    new = qo.New(make_invoice, Order("tea"), user="ada")
    first, second = await queue.submit_many([new, qo.New(length, "letters")])

    assert new.task == "invoice"
    assert isinstance(first, qo.Job)
    assert isinstance(second, qo.Job)
    assert (first.task, second.task) == ("invoice", "length")


async def test_result_waits_for_the_end_of_the_job(queue: qo.Queue) -> None:
    job = await queue.submit(length, "letters")

    with pytest.raises(qo.Timeout, match=f"Job '{job.id}' has not ended within 0.01 seconds"):
        await queue.result(job, timeout=0.01)


async def test_the_result_of_a_job_by_name_has_json_values_unless_a_task_is_given() -> None:
    async with await qo.connect("memory://") as queue:
        worker = qo.Worker(queue)

        @worker.task("invoice")
        async def by_name(data: dict[str, Any]) -> dict[str, Any]:
            return {"item": "tea", "price": 1.0, "due": DUE.isoformat()}

        job = await queue.submit("invoice", {})
        await soon(worker.run_until_idle())

        assert await queue.result(job) == {"item": "tea", "price": 1.0, "due": "2030-01-01T00:00:00+00:00"}
        assert await queue.result(job.id, make_invoice) == Invoice("tea", 1.0, DUE)
        with pytest.raises(qo.InvalidValue, match="does not fit what task length returns: Expected `int`"):
            await queue.result(job.id, length)
        with pytest.raises(qo.InvalidValue, match=r"task is 'invoice'; give the function under @qo.task"):
            await queue.result(job.id, "invoice")  # type: ignore[call-overload]


async def test_the_result_of_a_job_that_failed_is_an_error_that_says_why(queue: qo.Queue) -> None:
    worker = qo.Worker(queue, tasks=[make_invoice])
    refused = await queue.submit(make_invoice, Order("tea", 0))
    broken = await queue.submit(make_invoice, Order("tea", -1))
    await soon(worker.run_until_idle())

    with pytest.raises(qo.JobFailed) as failed:
        await queue.result(refused)
    with pytest.raises(qo.NoResult) as without:
        await queue.result(broken)

    error = failed.value
    assert str(error) == (
        f"Job '{refused.id}' of task invoice failed at attempt 1: Nothing was ordered. The worker's log has the whole "
        f"error under {error.debug_id}. queue.retry(job_id) lets it run again."
    )
    assert (error.job_id, error.task, error.attempts) == (refused.id, "invoice", 1)
    assert (error.message, error.detail) == ("Nothing was ordered.", "Fail: Nothing was ordered.")
    assert isinstance(without.value, qo.JobFailed)
    assert without.value.detail == "RuntimeError: the till is broken"


async def test_the_result_of_a_cancelled_job_is_an_error(queue: qo.Queue) -> None:
    job = await queue.submit(length, "letters")
    await queue.cancel(job.id, message="not needed")

    with pytest.raises(qo.JobCancelled, match="was cancelled") as cancelled:
        await queue.result(job)

    assert (cancelled.value.job_id, cancelled.value.task, cancelled.value.message) == (job.id, "length", "not needed")


async def test_a_function_under_task_can_be_called_as_the_function_it_is() -> None:
    assert length("four") == 4
    assert await nothing() is None
    assert (length.name, make_invoice.name) == ("length", "invoice")
    assert repr(length) == "<qo.Task length>"
    assert inspect.unwrap(length).__name__ == "length"  # for help() and for tools that read signatures


async def test_options_of_the_task_hold_on_every_worker(queue: qo.Queue) -> None:
    @qo.task("limited", max_concurrent=3, groups=["gpu"], stages=("one",), timeout=5, max_attempts=7)
    async def limited(data: Any, ctx: qo.Context) -> None:
        await ctx.stage("one")

    job = await run_one(queue, qo.Worker(queue, tasks=[limited]), "limited")

    assert (job.status, job.max_attempts) == ("ready", 7)
    assert "gpu" in job.groups
    assert (await queue.limit("limited")).limit == 3


async def test_a_cron_entry_may_name_the_function(queue: qo.Queue) -> None:
    worker = qo.Worker(queue, tasks=[length])
    worker.cron("0 3 * * *", length, "letters")

    with pytest.raises(qo.InvalidValue, match="already has a cron entry 'length'"):
        worker.cron("0 3 * * *", "length")


@pytest.mark.parametrize(
    ("tasks", "sentence"),
    [
        (length, "tasks is .*; give a list of functions under @qo.task"),
        ([print], r"tasks\[0\] is .*; give a function under @qo.task"),
        ([length, length], "already has a task 'length'"),
    ],
)
async def test_a_worker_refuses_what_is_no_task(queue: qo.Queue, tasks: Any, sentence: str) -> None:
    with pytest.raises(qo.InvalidValue, match=sentence):
        qo.Worker(queue, tasks=tasks)


async def test_a_worker_does_not_register_a_task_a_second_way(queue: qo.Queue, worker: qo.Worker) -> None:
    with pytest.raises(qo.InvalidValue, match=r"length is under @qo.task already"):
        worker.task(length)


def test_a_result_type_that_json_cannot_have_is_refused_where_it_is_declared() -> None:
    async def opens() -> object:
        raise AssertionError

    opens.__annotations__["return"] = dict[str, int] | Order
    with pytest.raises(qo.InvalidValue, match=r"declares its result as .*Order.*, which JSON cannot be turned into"):
        qo.task(opens)


def test_the_blocking_form_has_the_same() -> None:
    with qo.sync.connect("memory://") as queue:
        worker = qo.sync.Worker(queue, tasks=[make_invoice, length])
        job = queue.submit(make_invoice, Order("tea"))
        failing = queue.submit(make_invoice, Order("tea", 0))
        opened: list[str] = []

        @worker.lifespan
        async def shared() -> Any:
            opened.append("opened")
            yield
            opened.append("closed")

        worker.run_until_idle()

        assert queue.result(job, timeout=10) == Invoice("tea", 2.5, DUE)
        with pytest.raises(qo.JobFailed, match="Nothing was ordered"):
            queue.result(failing)
        assert opened == ["opened", "closed"]
