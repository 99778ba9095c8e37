"""Whatever happens in whatever order: those inside are those whom a search through all who wait would let in."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import qo
from qo.limits.in_process.line import LeaseInProcess, new_thread_waiter
from qo.limits.in_process.slots import SlotsInProcess
from qo.limits.in_process.turns import Turns
from tests.limits.limiter_model import Caller, Model

NAMES = ("a", "b", "c")
GROUPS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("enter"), GROUPS, st.sampled_from([50, 50, 50, 10])),
        st.tuples(st.just("leave"), st.integers(0, 5)),
        st.tuples(st.just("give up"), st.integers(0, 5)),
        st.tuples(st.just("limit"), st.sampled_from(NAMES), st.sampled_from([0, 1, 1, 2, 3, None])),
    ),
    max_size=60,
)


@given(STEPS, st.sampled_from([0, 1, 2, 8]))
def test_those_inside_are_those_whom_a_search_would_let_in(steps: list[tuple[Any, ...]], turn_after: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        slots = SlotsInProcess(new_turns=lambda: Turns(after=turn_after))
        patch.setattr("qo.limits.limiter.SlotsInProcess", lambda: slots)
        asyncio.run(compare(steps, Model(turn_after, {"a": 1, "b": 2})))


async def compare(steps: list[tuple[Any, ...]], model: Model) -> None:
    limiter = qo.Limiter(groups={"a": 1, "b": 2})
    tasks: dict[int, asyncio.Task[None]] = {}
    leaving: dict[int, asyncio.Event] = {}
    inside: dict[int, dict[str, int]] = {}

    async def enter(caller: Caller) -> None:
        async with limiter.acquire(groups=caller.groups, priority=caller.priority) as lease:
            assert isinstance(lease, LeaseInProcess)
            inside[caller.number] = {group: lease.numbers[at] for at, group in enumerate(caller.groups)}
            assert lease.slots.items() <= inside[caller.number].items()
            await leaving[caller.number].wait()
            del inside[caller.number]

    for number, (what, *how) in enumerate(steps):
        match what:
            case "enter":
                groups, priority = how
                caller = Caller(tuple(groups), priority, number)
                model.enter(caller)
                leaving[number] = asyncio.Event()
                tasks[number] = asyncio.create_task(enter(caller))
            case "leave" if who := model.inside():
                caller = who[how[0] % len(who)]
                model.remove(caller)
                leaving[caller.number].set()
            case "give up" if who := model.waiting():
                caller = who[how[0] % len(who)]
                model.remove(caller)
                tasks[caller.number].cancel()
            case "limit":
                model.set_limit(*how)
                limiter.set_group_limit(*how)
        for _ in range(4):  # the event, the block's end, the hand-over
            await asyncio.sleep(0)

        assert inside == {caller.number: caller.slots for caller in model.inside()}
        assert not [caller for caller in model.waiting() if model.first_full(caller) is None]
        assert sum(limiter.get_metrics()["waiting"].values()) == len(model.waiting())

    for task in tasks.values():
        task.cancel()
    await asyncio.gather(*tasks.values(), return_exceptions=True)
    assert not any(limiter.get_metrics()["in_flight"].values())
    assert not any(limiter.get_metrics()["waiting"].values())


@pytest.mark.parametrize("seeds", [5, pytest.param(200, marks=pytest.mark.nightly)])
@pytest.mark.parametrize(("most_turns", "most_groups"), [(16, 64), (2, 64), (16, 3)])
@pytest.mark.parametrize("turn_after", [1, 2, 8])
def test_long_histories_with_turns_are_those_of_a_search(
    turn_after: int, most_turns: int, most_groups: int, seeds: int
) -> None:
    seen: Counter[str] = Counter()
    for seed in range(seeds):
        limits: dict[str, int | None] = {"a": 1, "b": 1, "c": 1, "d": 2}
        model = Model(turn_after, limits, most_turns=most_turns, most_groups=most_groups)
        compare_histories(random.Random(seed), model, steps=400)
        seen.update(began=model.began, gave_way=model.gave_way, stopped=model.stopped)

    assert seen["began"] > 5
    assert seen["stopped"] > 5
    assert seen["gave_way"] or most_turns > 2, "no turn gave its row to another"


def compare_histories(chance: random.Random, model: Model, *, steps: int) -> None:
    """Callers that enter in one thread, one after another, so that no step comes between another's parts."""
    bounds = {"after": model.turn_after, "most": model.most_turns, "most_groups": model.most_groups}
    slots = SlotsInProcess(new_turns=lambda: Turns(**bounds))
    for group, limit in model.limits.items():
        slots.set_limit(group, limit)
    leases: dict[Caller, LeaseInProcess] = {}
    for number in range(steps):
        inside, waiting = model.inside(), model.waiting()
        match chance.choices(["enter", "leave", "give up", "limit"], [9 if len(waiting) < 14 else 2, 6, 0.2, 0.1])[0]:
            case "enter":
                groups = tuple(chance.sample("abcd", chance.choice([1, 1, 1, 1, 2, 3, 4])))
                caller = Caller(groups, chance.choice([50, 50, 50, 50, 50, 70, 20]), number)
                model.enter(caller)
                leases[caller] = slots.enter_or_join(groups, None, caller.priority, new_thread_waiter)
            case "leave" if inside:
                caller = chance.choice(inside)
                model.remove(caller)
                slots.leave(leases.pop(caller))
            case "give up" if waiting:
                caller = chance.choice(waiting)
                model.remove(caller)
                slots.give_up(leases.pop(caller))  # type: ignore[arg-type]  # it is a waiter
            case "limit":
                group, limit = chance.choice("abcd"), chance.choice([0, 1, 1, 1, 2, None])
                model.set_limit(group, limit)
                slots.set_limit(group, limit)

        assert {caller: lease.numbers for caller, lease in leases.items() if lease.numbers} == {
            caller: list(caller.slots.values()) for caller in model.inside() if caller.slots is not None
        }
        figures = {each.group: each for each in slots.figures().groups}
        for group, limit in model.limits.items():
            shown = figures.get(group)
            parked = [lane for lane, place in model.parked.items() if place.group == group]
            assert (shown.waiting if shown else 0) == sum(caller.lane in parked for caller in model.waiting())
            is_kept = limit is not None and model.held(group) < limit and model.kept_for(group, model.turns) is not None
            assert (shown is not None and shown.kept) == is_kept
