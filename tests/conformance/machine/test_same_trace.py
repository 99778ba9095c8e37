"""The same 500 random command logs give the same trace on SQLite and on Redis.

A log is drawn from the state machine's own actions, with nothing but its number as the seed, while the model alone
answers; reads are put in between. Then it is replayed on both stores, which know nothing of each other: every answer,
the words of refusals too, and the whole state at the end must be the same.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.control import BuildContext
from hypothesis.internal.conjecture.data import ConjectureData
from hypothesis.stateful import RuleBasedStateMachine

from qo.errors import QoError
from qo.store.contract import Store
from qo.values import Bounds
from tests import exploration
from tests.conformance.machine import histories
from tests.conformance.machine.machine import StoreMachine
from tests.conformance.machine.side_by_side import (
    DIFFERENCES_SHOWN,
    SideBySide,
    Step,
    StoreUnderTest,
    call,
    differences_between,
)
from tests.conformance.machine.strategies import START
from tests.conformance.model.model import Model
from tests.stores import STORES

LOGS = 500
LOGS_IN_A_BLOCK = 50
ACTIONS = 20
READS_AFTER_A_STEP = 2
BOUNDS = tuple(histories.BOUNDS)
AT_ONCE = 2
SHARE_OF_NEW_LOGS = 10  # of so many steps that the state machine compares with the model, one more is compared here
BLOCKS_OF_NEW_LOGS = 2
SHARE_OF_REDIS = 10  # of so many logs the first two are replayed on Redis, the others on Valkey

# In every fifty logs, or they are no longer about much.
ALWAYS_THERE = {
    "submit", "claim", "finish", "set_limits", "acquire", "catch_up", "move", "register", "cancel", "set_priority",
    "upkeep", "renew", "set_paused", "set_tier", "release", "advance", "observe", "note_promises", "revoke",
    "put_record",
}  # fmt: skip

SQLITE, VALKEY, REDIS = (
    next(store for store in STORES if store.name == name) for name in ("sqlite-memory", "valkey", "redis")
)


@pytest.mark.parametrize("first", range(0, LOGS, LOGS_IN_A_BLOCK))
async def test_the_same_random_command_logs_give_the_same_trace_on_sqlite_and_on_redis(first: int) -> None:
    seen: set[str] = set()
    for number in range(first, first + LOGS_IN_A_BLOCK, AT_ONCE):
        # So that steps in one namespace come between the steps in another.
        logs = await asyncio.gather(*(replay_on_both(number + turn) for turn in range(AT_ONCE)))
        seen |= {step.operation for log in logs for step in log}
    assert seen >= ALWAYS_THERE


@pytest.mark.histories
@pytest.mark.parametrize("block", range(BLOCKS_OF_NEW_LOGS))
async def test_new_command_logs_give_the_same_trace_too(
    block: int, request: pytest.FixtureRequest, record_property: Callable[[str, str], None]
) -> None:
    wanted, steps, logs = exploration.STEPS // SHARE_OF_NEW_LOGS // BLOCKS_OF_NEW_LOGS, 0, 0
    began = time.monotonic()
    with exploration.failures_kept(f"traces-{block}", request.node.nodeid):
        while steps < wanted:
            steps += len(await replay_on_both(exploration.number_from("log", block, logs)))
            logs += 1
    record_property(
        exploration.SUMMARY, f"traces-{block}: {steps:,} steps, {logs:,} logs, {time.monotonic() - began:.0f} s"
    )


async def replay_on_both(number: int) -> list[Step]:
    bounds, other = BOUNDS[number % len(BOUNDS)], REDIS if number % SHARE_OF_REDIS < AT_ONCE else VALKEY
    log = random_log(number, bounds)
    traces = await asyncio.gather(trace(SQLITE, log, bounds), trace(other, log, bounds))
    check_same(f"log {number}", log, bounds, (SQLITE.name, other.name), *traces)
    return log


async def test_a_log_depends_on_nothing_but_its_number() -> None:
    first, again, other = random_log(7, Bounds()), random_log(7, Bounds()), random_log(8, Bounds())

    assert codes(first) == codes(again) != codes(other)
    assert min(len(first), len(other)) > ACTIONS


async def test_a_difference_is_told_with_the_steps_that_led_to_it() -> None:
    log = random_log(7, Bounds())
    here, there = await trace(SQLITE, log, Bounds()), await trace(SQLITE, log, Bounds())
    there.answers[4] = "something else"

    with pytest.raises(AssertionError, match="something else") as told:
        check_same("log 7", log, Bounds(), ("one", "two"), here, there)

    assert all(code in str(told.value) for code in codes(log[:5]))
    assert codes(log)[5] not in str(told.value)


async def test_a_different_state_at_the_end_is_told_too() -> None:
    log = random_log(7, Bounds())
    here, there = await trace(SQLITE, log, Bounds()), await trace(SQLITE, log, Bounds())
    there.snapshot["clock"]["next_sequence"] += 1

    with pytest.raises(AssertionError, match="next_sequence"):
        check_same("log 7", log, Bounds(), ("one", "two"), here, there)


# --- making a log up ----------------------------------------------------------------------------------------------


def random_log(number: int, bounds: Bounds) -> list[Step]:
    """One long draw could come to Hypothesis's limit for an example, so every action has one of its own."""
    chance, writer = random.Random(number), LogWriter(bounds)
    for action in [writer.begin, *[writer.go_on] * ACTIONS]:
        drawn = ConjectureData(random=chance)
        with BuildContext(drawn, wrapped_test=random_log):
            action(st.DataObject(drawn))
    return writer.both.log


class ModelAlone(SideBySide):
    """Answers from the model, and writes down what was asked."""

    def __init__(self, bounds: Bounds) -> None:
        self.model = Model(bounds)
        self.steps: list[Step] = []
        self.log: list[Step] = []

    def do(self, operation: str, *args: Any, **kwargs: Any) -> Any:
        self.steps.append(Step(operation, args, kwargs))
        answer = call(self.model, operation, args, kwargs)
        self.log += [self.steps[-1], *self.reads(kwargs.get("now", 0))[:READS_AFTER_A_STEP]]
        return answer

    def look_for_work(self, **asked: Any) -> None:
        """Not in the log: stores may differ in whether a claim might find something."""


class LogWriter(StoreMachine):
    """The state machine with its actions and what they pick from, without a store."""

    both: ModelAlone

    def __init__(self, bounds: Bounds) -> None:
        RuleBasedStateMachine.__init__(self)
        self.both = ModelAlone(bounds)
        self.now = START
        self.submitted = self.claims = 0
        self.seen_tokens = []

    def do(self, operation: str, *args: Any, **kwargs: Any) -> Any:
        """Without the statistics that the state machine keeps: they take as long as the model."""
        answer = self.both.do(operation, *args, **kwargs, now=self.now)
        live = [(lease.holder, str(lease.token)) for lease in self.state.leases.values()]
        self.seen_tokens += [lease for lease in live if lease not in self.seen_tokens]
        self.note_places()
        return answer


def codes(log: Iterable[Step]) -> list[str]:
    return [step.code() for step in log]


# --- replaying and comparing --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Refused:
    error: type[QoError]
    words: str


@dataclass
class Trace:
    answers: list[Any]
    snapshot: dict[str, Any]


async def trace(under_test: StoreUnderTest, log: Sequence[Step], bounds: Bounds) -> Trace:
    store = await under_test.open(bounds)
    try:
        answers = [await answer_to(step, store) for step in log]
        return Trace(answers, await under_test.snapshot(store))
    finally:
        await under_test.close(store)


async def answer_to(step: Step, store: Store) -> Any:
    try:
        return await step.on(store)
    except QoError as error:
        return Refused(type(error), str(error))


def check_same(
    name: str, log: Sequence[Step], bounds: Bounds, stores: tuple[str, str], here: Trace, there: Trace
) -> None:
    for number, (step, one, other) in enumerate(zip(log, here.answers, there.answers, strict=True), start=1):
        differences = list(differences_between(one, other, f"the answer of {step.operation}"))
        assert not differences, report(name, log[:number], bounds, stores, differences)
    differences = list(differences_between(here.snapshot, there.snapshot, "at the end"))
    assert not differences, report(name, log, bounds, stores, differences)


def report(name: str, log: Sequence[Step], bounds: Bounds, stores: tuple[str, str], differences: Sequence[str]) -> str:
    """`test_found.py` takes the steps as they are, and tells which of the two does not do what the model does."""
    return "\n".join(
        [
            f"{name}: {stores[0]} (here called model) and {stores[1]} (here called store) differ:",
            *differences[:DIFFERENCES_SHOWN],
            f"after these steps, with bounds ({bounds.examine}, {bounds.portion}):",
            *(f"    {code}" for code in codes(log)),
        ]
    )
