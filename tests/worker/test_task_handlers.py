"""What can be a handler, and how the data of a job gets into it."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any

import msgspec
import pytest

import qo
from qo.values import Submission
from tests.worker.running import run_one, soon


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

    def model_dump(self, **options: object) -> dict[str, str]:
        return {"name": self.name.upper()}


class ModelError(ValueError):
    def errors(self, **options: bool) -> list[dict[str, Any]]:
        return [{"loc": ("name",), "msg": "Input should be a valid string"}]


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
    assert (await run_one(queue, worker, "greet", Model("bob"))).result == {"name": "BOB"}
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


async def test_a_context_in_the_place_of_the_data_is_refused_when_registering(worker: qo.Worker) -> None:
    async def build(ctx: qo.Context) -> None: ...

    with pytest.raises(qo.InvalidValue, match=r"'build' has its context in the place of its data; .* \(data, ctx\)"):
        worker.task(build)


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


async def test_a_payload_that_is_no_json_fails_its_job_and_not_the_worker(queue: qo.Queue, worker: qo.Worker) -> None:
    """The queue always encodes; a program that writes to the store by other means may not."""
    worker.task("job")(lambda data: data)
    await queue.store.submit([Submission(id="odd", task="job", payload=b"\xff not json")])
    fine = await queue.submit("job", 7)
    await soon(worker.run_until_idle())

    assert (await queue.get(fine.id)).result == 7
    odd = await queue.get("odd")
    assert (odd.state, odd.attempts) == (qo.State.FAILED, 1)


def test_a_task_of_too_many_groups_is_refused_when_it_is_defined(worker: qo.Worker) -> None:
    groups = [f"g{number}" for number in range(65)]

    with pytest.raises(qo.InvalidValue, match="groups of task 'build' has 65 names; at most 64 are allowed"):
        worker.task("build", groups=groups)(lambda data: None)
