"""The reference model and a store under test, driven by the same steps and compared after each one."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Coroutine, Iterator, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from types import NoneType
from typing import Any, Protocol

import msgspec

from qo.errors import QoError
from qo.store.contract import Store
from qo.values import Bounds, Lease, Mean
from tests.conformance.model.model import Model

Rows = dict[Any, Any]
READS_AFTER_A_STEP = 6
COMPARED_BY_TYPE = 8
"""After each so many steps also the type of everything is compared: an enumeration equals its text."""
DIFFERENCES_SHOWN = 25


class StoreUnderTest(Protocol):
    @property
    def name(self) -> str: ...

    def open(self, bounds: Bounds, /) -> Coroutine[Any, Any, Store]: ...

    def snapshot(self, store: Store, /) -> Coroutine[Any, Any, dict[str, Any]]: ...

    def close(self, store: Store, /) -> Coroutine[Any, Any, None]: ...


@dataclass
class Step:
    """One call of a store's operation, as it can be pasted into `test_found.py`."""

    operation: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)

    def code(self) -> str:
        arguments = [as_code(value) for value in self.args]
        arguments += [f"{name}={as_code(value)}" for name, value in self.kwargs.items()]
        return f"step({', '.join([repr(self.operation), *arguments])}),"

    async def on(self, store: Store) -> Any:
        """The answer of a store, whose clock is set to the step's `now` before."""
        kwargs = dict(self.kwargs)
        if "now" in kwargs:
            now: int = kwargs.pop("now")
            store.clock = lambda: now
        return await getattr(store, self.operation)(*self.args, **kwargs)


def step(operation: str, *args: Any, **kwargs: Any) -> Step:
    return Step(operation, args, kwargs)


class Disagreement(AssertionError):
    """The store did not do what the model did."""


class SideBySide:
    def __init__(self, under_test: StoreUnderTest, bounds: Bounds) -> None:
        self.under_test = under_test
        self.model = Model(bounds)
        self.steps: list[Step] = []
        self.compared: dict[str, tuple[Rows, Rows]] = {}
        """By section of the snapshots, what both sides had after the last step."""
        self.runner = asyncio.Runner()
        self.store = self.runner.run(under_test.open(bounds))

    def close(self) -> None:
        try:
            self.runner.run(self.under_test.close(self.store))
        finally:
            self.runner.close()

    def do(self, operation: str, *args: Any, **kwargs: Any) -> Any:
        """Take a step on both sides and compare what they answer and what they have become.

        Answers what the model answered; an error that both agree on is answered too, not raised.
        """
        self.steps.append(Step(operation, args, kwargs))
        try:
            expected = call(self.model, operation, args, kwargs)
        except AssertionError as broken:
            raise Disagreement(f"The model broke its own rules: {broken}\n{self.history()}") from broken
        reads = self.reads(kwargs.get("now", 0))
        try:
            # Not `runner.run`, which also sets up the handling of Ctrl-C, each time.
            on_the_store = self.on_the_store(self.steps[-1], reads)
            answer, snapshot, read = self.runner.get_loop().run_until_complete(on_the_store)
        except Exception as error:
            error.add_note(self.history())
            raise
        self.compare(f"the answer of {operation}", expected, answer)
        for section, rows in self.model.snapshot().items():
            self.compare(section, *self.changed(section, rows, snapshot.get(section)))
        for asked, store_says in zip(reads, read, strict=True):
            model_says = call(self.model, asked.operation, asked.args, asked.kwargs)
            self.compare(f"read {asked.code()}", model_says, store_says)
        return expected

    def look_for_work(self, *, worker: str, tasks: Sequence[str], suspects: int | None, now: int) -> None:
        """A store may answer that a claim might find something where it would not, but not the other way round."""
        asked = step("wait_for_work", worker=worker, tasks=tasks, suspects=suspects, timeout_seconds=0, now=now)
        found = self.runner.get_loop().run_until_complete(asked.on(self.store))
        if self.model.might_claim(worker, tasks, suspects, now=now) and not found.more:
            raise Disagreement(
                f"{self.under_test.name} has work and says there is none: {asked.code()}\n{self.history()}"
            )

    async def on_the_store(self, step: Step, reads: Sequence[Step]) -> tuple[Any, dict[str, Any], list[Any]]:
        answer = await call_async(self.store, step)
        # Together, because a server answers them in one go. They change nothing.
        snapshot, *read = await asyncio.gather(
            self.under_test.snapshot(self.store), *(call_async(self.store, asked) for asked in reads)
        )
        return answer, snapshot, read

    def changed(self, section: str, expected: Any, actual: Any) -> tuple[Any, Any]:
        """The rows that are not, on both sides, what they were when they were last compared. Most are: without them a
        step takes a fifth less time."""
        expected, actual = rows_by_key(expected), rows_by_key(actual)
        if expected is None or actual is None:
            return expected, actual
        model_had, store_had = self.compared.get(section, ({}, {}))
        self.compared[section] = expected, actual
        same = {
            key
            for key in model_had.keys() & store_had.keys() & expected.keys() & actual.keys()
            if model_had[key] == expected[key] and store_had[key] == actual[key]
        }
        return without(same, expected), without(same, actual)

    def compare(self, what: str, expected: Any, actual: Any) -> None:
        if len(self.steps) % COMPARED_BY_TYPE and equal_and_written_alike(expected, actual):
            return
        differences = list(differences_between(expected, actual, what))
        if differences:
            shown = differences[:DIFFERENCES_SHOWN]
            shown += ["…"] * (len(differences) > len(shown))
            raise Disagreement("\n".join([f"model and {self.under_test.name} differ:", *shown, self.history()]))

    def history(self) -> str:
        steps = "\n".join(f"    {step.code()}" for step in self.steps)
        return f"after these steps, with {as_code(self.model.bounds)}:\n{steps}"

    def reads(self, now: int) -> list[Step]:
        """Some of everything that can be read now: not all, or a long history would be mostly reading."""
        state = self.model.state
        groups = sorted({group for job in state.jobs.values() for group in self.model.groups_of_job(job)})
        everything = [
            step("positions", list(state.jobs)),
            step("positions", [*list(state.jobs)[::2], "nobody"]),
            step("line", limit=0),
            step("line", limit=1),
            step("line", limit=100),
            step("jobs"),
            step("jobs", limit=3, newest_first=True),
            step("leases"),
            step("groups", now=now),
            step("workers", now=now),
            step("series"),
            step("series", prefix="ended:"),
            step("events", None),
            step("audit"),
            step("audit", limit=3, after=max(1, state.last_audit - 3)),
            step("counts"),
            step("jobs", ids=["nobody", *list(state.jobs)[:3]]),
            step("jobs", ended=True, newest_first=True),
            *(step("line", limit=2, around=job_id) for job_id in list(state.jobs)[:3]),
            *(step("jobs", tier=job.tier, priority=job.priority) for job in list(state.jobs.values())[:3]),
            step("events", 0, limit=7),
            step("events", max(0, state.last_event - 3)),
            step("events", max(0, state.last_event - 9), kinds=["queued", "lease_lost"], limit=2),
            step("events", max(0, state.last_event - 9), subjects=list(state.jobs)[:2]),
            step("job", "nobody"),
            step("parent", "nobody"),
            *(step("job", job_id) for job_id in state.jobs),
            *(step("payload", job_id) for job_id in state.jobs),
            *(step("blockers", job_id, now=now) for job_id in state.jobs),
            *(step("jobs", status=job.state) for job in state.jobs.values()),
            *(step("jobs", status=job.stage) for job in state.jobs.values() if job.stage is not None),
            *(step("jobs", user=job.user, task=job.task) for job in state.jobs.values()),
            *(step("jobs", parent=job.parent, limit=2) for job in state.jobs.values()),
            *(step("audit", subject=job_id, limit=2) for job_id in state.jobs),
            *(step("groups", [group, "nobody"], now=now) for group in [*groups, *state.groups]),
            *(step("leases", worker=worker) for worker in state.workers),
            *(step("usage", user, now=now) for user in sorted({job.user or "?" for job in state.jobs.values()})),
            *(step("parent", parent) for parent in state.parents),
            step("observed", [*state.averages, "nothing"], tasks=[*state.estimate_errors, "nothing"]),
        ]
        # Which ones depends on nothing but the history, so that a replayed history reads the same.
        chosen = random.Random(len(self.steps))
        return chosen.sample(everything, min(READS_AFTER_A_STEP, len(everything)))


def rows_by_key(section: Any) -> Any:
    return dict(enumerate(section)) if isinstance(section, list) else section


def without(keys: Set[Any], rows: Rows) -> Rows:
    return {key: row for key, row in rows.items() if key not in keys}


@dataclass(frozen=True)
class Raised:
    error: type[Exception]


def call(model: Model, operation: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        return getattr(model, operation)(*args, **kwargs)
    except QoError as error:
        return Raised(type(error))


async def call_async(store: Store, step: Step) -> Any:
    try:
        return await step.on(store)
    except QoError as error:
        return Raised(type(error))


# --- telling two values apart, readably -------------------------------------------------------------------------


def equal_and_written_alike(expected: Any, actual: Any) -> bool:
    """Written as bytes, True is not 1 and 1 is not 1.0."""
    return bool(expected == actual) and encode(expected) == encode(actual)


encode = msgspec.msgpack.Encoder(enc_hook=repr).encode
PLAIN = (NoneType, bool, int, float, str, bytes, datetime)


def same_plain_value(expected: Any, actual: Any) -> bool:
    """Most of what is compared is small and equal. Told at once, a step takes a third less time."""
    return type(expected) is type(actual) and type(expected) in PLAIN and expected == actual


def differences_between(expected: Any, actual: Any, path: str) -> Iterator[str]:
    if isinstance(expected, Mean) and isinstance(actual, Mean):
        # Two ways of adding up the same numbers may differ in the last digit.
        near = math.isclose(expected.value, actual.value) and math.isclose(expected.square, actual.square)
        if near and expected.count == actual.count:
            return
    if type(expected) is type(actual) and isinstance(expected, msgspec.Struct):
        expected, actual = content_of(expected), content_of(actual)
    if isinstance(expected, dict) and isinstance(actual, dict):
        keys = expected if expected.keys() == actual.keys() else sorted({**expected, **actual}, key=repr)
        for key in keys:
            if key not in actual:
                yield f"  {path}.{key}: only the model has it: {expected[key]!r}"
            elif key not in expected:
                yield f"  {path}.{key}: only the store has it: {actual[key]!r}"
            elif not same_plain_value(expected[key], actual[key]):
                yield from differences_between(expected[key], actual[key], f"{path}.{key}")
    elif isinstance(expected, list | tuple) and type(expected) is type(actual):
        for index in range(max(len(expected), len(actual))):
            if index >= len(actual):
                yield f"  {path}[{index}]: only the model has it: {expected[index]!r}"
            elif index >= len(expected):
                yield f"  {path}[{index}]: only the store has it: {actual[index]!r}"
            elif not same_plain_value(expected[index], actual[index]):
                yield from differences_between(expected[index], actual[index], f"{path}[{index}]")
    elif expected != actual or type(expected) is not type(actual):
        yield f"  {path}: model {expected!r}, store {actual!r}"


def content_of(value: msgspec.Struct) -> dict[str, Any]:
    return value.content() if isinstance(value, Lease) else msgspec.structs.asdict(value)


def as_code(value: Any) -> str:
    """A value as it is written in a program, without fields that have their default."""
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.fields(value)
        given = [(one.name, getattr(value, one.name)) for one in fields]
        told = [(name, given_value) for (name, given_value), one in zip(given, fields, strict=True)
                if given_value != default_of(one)]  # fmt: skip
        return f"{type(value).__name__}({', '.join(f'{name}={as_code(one)}' for name, one in told)})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{as_code(key)}: {as_code(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(as_code, value)) + "]"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(as_code, value)) + ("," if len(value) == 1 else "") + ")"
    return repr(value)


def default_of(one: msgspec.structs.FieldInfo) -> Any:
    if one.default_factory is not msgspec.NODEFAULT:
        return one.default_factory()
    return one.default
