"""Every public call refuses wrong arguments by a sentence of qo's own, never by an error of a library beneath it."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import AsyncIterator, Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec
import pytest

import qo
import qo.sync
from tests.api.wrong_calls import CALLS, NOT_FOR_CALLERS, Call
from tests.worker.running import soon

MADE_ELSEWHERE = {"Queue", "Semaphore", "Context"}
"""by `connect`, `user_semaphore`, `project_semaphore` and a worker"""
ANSWERS = {"Lease", "ThreadContext", "Task", "TaskFunction", "TaskMaker"}
"""Only read, or with the calls of another class that are looked at there; and what `qo.task` makes."""


def is_value(thing: Any) -> bool:
    """Values are made by qo, but for `New`, which is looked at when it is submitted."""
    return inspect.isclass(thing) and issubclass(thing, msgspec.Struct | Enum | tuple | dict)


def public_calls(module: Any, names: list[str]) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name in names:
        thing = getattr(module, name)
        if name in ANSWERS or is_value(thing) or not callable(thing):
            continue
        if not inspect.isclass(thing):
            yield name, thing
            continue
        if issubclass(thing, BaseException):
            if name == "Retry":
                yield name, thing
            continue
        if name not in MADE_ELSEWHERE:
            yield name, thing
        for method, member in inspect.getmembers(thing):
            if not method.startswith("_") and callable(member):
                yield f"{name}.{method}", member


PUBLIC = dict(public_calls(qo, [name for name in qo.__all__ if name != "sync"]))
OF_SYNC = [name for name, thing in vars(qo.sync).items() if getattr(thing, "__module__", "") == "qo.sync"]
BLOCKING = dict(public_calls(qo.sync, OF_SYNC))


def parameters_of(name: str, call: Callable[..., Any]) -> set[str]:
    named = set(inspect.signature(call).parameters) - {"self", "cls", "args", "kwargs"}
    return {parameter for parameter in named if f"{name}.{parameter}" not in NOT_FOR_CALLERS}


def test_every_public_call_and_parameter_has_its_wrong_values() -> None:
    wanted = {name: parameters_of(name, call) for name, call in PUBLIC.items() if name not in NOT_FOR_CALLERS}

    assert {name: set(call.wrong) for name, call in CALLS.items()} == wanted


def test_every_call_of_the_blocking_form_is_one_of_these() -> None:
    assert {name for name in BLOCKING if not name.startswith("_")} <= set(PUBLIC)


ROWS = [(name, parameter) for name, call in CALLS.items() for parameter in call.wrong]


def arguments(call: Call, parameter: str, wrong: Any) -> dict[str, Any]:
    return {**call.good, **call.needs.get(parameter, {}), parameter: wrong}


def check_sentence(refused: BaseException, call: Call, parameter: str, wrong: Any) -> None:
    assert isinstance(refused, qo.QoError), (parameter, wrong, refused)
    sentence = str(refused)
    assert re.search(call.said_as.get(parameter, parameter), sentence), sentence
    assert "_ms" not in sentence  # which is how stores name times
    assert "\n" not in sentence
    assert sentence.endswith(".")


async def make(thing: Any, given: dict[str, Any]) -> None:
    """Call it, and what it answers."""
    answer = thing(**given)
    if inspect.isasyncgen(answer):
        await anext(answer)
    elif inspect.isgenerator(answer):
        next(answer)
    elif inspect.isawaitable(answer):
        await answer
    elif callable(answer):
        answer(lambda: None)  # a decorator


# --- in the event loop ------------------------------------------------------------------------------------------


@pytest.fixture
async def things(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[dict[str, Any]]:
    """What the calls are methods of."""
    monkeypatch.chdir(tmp_path)
    async with await qo.connect(f"sqlite:///{tmp_path}/qo.db") as queue:
        yield {
            "qo": qo,
            "Clock": qo.Clock(),
            "Queue": queue,
            "Worker": qo.Worker(queue),
            "Limiter": qo.Limiter(),
            "Semaphore": qo.user_semaphore(queue, "ada", "partner"),
            "ConcurrencyManager": qo.ConcurrencyManager(queue),
            "WaitTimeEstimator": qo.WaitTimeEstimator(queue),
        }


NEED_A_QUEUE = {"Worker", "Limiter", "user_semaphore", "project_semaphore", "WaitTimeEstimator"}


def found(name: str, parameter: str, things: dict[str, Any], given: dict[str, Any]) -> Any:
    owner, _, method = name.rpartition(".")
    if not owner and name in NEED_A_QUEUE and parameter != "queue":
        given["queue"] = things["Queue"]
    return getattr(things[owner or "qo"], method)


@pytest.mark.parametrize(("name", "parameter"), [row for row in ROWS if not row[0].startswith("Context.")])
async def test_a_wrong_argument_is_refused_by_a_sentence_that_names_it(
    name: str, parameter: str, things: dict[str, Any]
) -> None:
    call = CALLS[name]
    for wrong in call.wrong[parameter]:
        given = arguments(call, parameter, wrong)
        target = found(name, parameter, things, given)
        with pytest.raises(Exception) as refused:  # noqa: PT011 - which one is looked at below
            await soon(make(target, given))
        check_sentence(refused.value, call, parameter, wrong)


# --- blocking ---------------------------------------------------------------------------------------------------


@pytest.fixture
def blocking_things(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    monkeypatch.chdir(tmp_path)
    with qo.sync.connect(f"sqlite:///{tmp_path}/qo.db") as queue:
        yield {
            "qo": qo.sync,
            "Queue": queue,
            "Worker": qo.sync.Worker(queue),
            "Semaphore": qo.sync.user_semaphore(queue, "ada", "partner"),
            "ConcurrencyManager": qo.sync.ConcurrencyManager(queue),
        }


@pytest.mark.parametrize("name", [name for name in BLOCKING if name in CALLS and CALLS[name].wrong])
def test_the_blocking_form_refuses_the_same(name: str, blocking_things: dict[str, Any]) -> None:
    call = CALLS[name]
    for parameter in inspect.signature(BLOCKING[name]).parameters.keys() & call.wrong.keys():
        for wrong in call.wrong[parameter]:
            given = arguments(call, parameter, wrong)
            target = found(name, parameter, blocking_things, given)
            with pytest.raises(Exception) as refused:  # noqa: PT011 - which one is looked at below
                asyncio.run(make(target, given))
            check_sentence(refused.value, call, parameter, wrong)


# --- in a handler -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_context_refuses_wrong_arguments_by_a_sentence_that_names_them(
    kind: str, things: dict[str, Any]
) -> None:
    refusals: list[tuple[str, str, Any, BaseException | None]] = []
    worker: qo.Worker = things["Worker"]
    cases = [(*row, wrong) for row in ROWS for wrong in CALLS[row[0]].wrong[row[1]] if row[0].startswith("Context.")]

    def given(name: str, parameter: str, wrong: Any) -> dict[str, Any]:
        return arguments(CALLS[name], parameter, wrong)

    async def call_all(data: Any, ctx: qo.Context) -> None:
        for name, parameter, wrong in cases:
            try:
                await getattr(ctx, name.rpartition(".")[2])(**given(name, parameter, wrong))
            except Exception as error:
                refusals.append((name, parameter, wrong, error))
            else:
                refusals.append((name, parameter, wrong, None))
        await ctx.stage("code")

    def call_all_in_a_thread(data: Any, ctx: Any) -> None:
        for name, parameter, wrong in cases:
            try:
                getattr(ctx, name.rpartition(".")[2])(**given(name, parameter, wrong))
            except Exception as error:
                refusals.append((name, parameter, wrong, error))
            else:
                refusals.append((name, parameter, wrong, None))
        ctx.stage("code")

    worker.task("odd", stages=["code"])(call_all if kind == "async" else call_all_in_a_thread)
    job = await things["Queue"].submit("odd")
    await soon(worker.run_until_idle())

    assert (await things["Queue"].get(job.id)).status == "ready"
    assert [(name, parameter, wrong) for name, parameter, wrong, _ in refusals] == cases
    for name, parameter, wrong, refused in refusals:
        assert refused is not None, (name, parameter, wrong)
        check_sentence(refused, CALLS[name], parameter, wrong)
