"""A free slot of a limiter in process is kept for the caller whose turn it is, and for nobody else."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from typing import Any

import pytest

import qo
from qo.limits.in_process.slots import SlotsInProcess
from qo.limits.in_process.turns import Turns
from tests.limits.staged_callers import URGENT, Callers, is_inside, one_each, with_a_turn


def test_a_turn_begins_when_a_caller_was_passed_often_enough() -> None:
    callers = Callers(one_each("ab"), after=3)
    in_a, in_b = callers.enter_each("a", "b")
    callers.enter("a", "b")
    callers.leave(in_a)
    first = callers.enter("a")
    callers.leave(in_b)
    second = callers.enter("b")
    kept_before = callers.kept()
    callers.leave(first)

    assert is_inside(second)
    assert (kept_before, callers.kept()) == ("", "a")


def test_a_kept_slot_is_not_for_callers_behind_the_turn() -> None:
    callers, in_b, needs_both = with_a_turn()
    behind = callers.enter("a")
    stopped = is_inside(behind)
    callers.leave(in_b)

    assert not stopped
    assert is_inside(needs_both)
    assert not is_inside(behind)
    callers.leave(needs_both)
    assert is_inside(behind)


def test_a_kept_slot_is_free_for_callers_before_the_turn() -> None:
    callers, in_b, needs_both = with_a_turn()
    urgent = callers.enter("a", priority=URGENT)
    callers.leave(in_b)

    assert is_inside(urgent)
    assert not is_inside(needs_both)
    callers.leave(urgent)
    assert is_inside(needs_both)


def test_an_urgent_caller_behind_an_urgent_turn_waits() -> None:
    callers = Callers(one_each("ab"), after=1)
    in_a, _in_b = callers.enter_each("a", "b")
    callers.enter("a", "b", priority=URGENT)
    callers.leave(in_a)

    assert not is_inside(callers.enter("a", priority=URGENT))


def test_only_one_slot_of_a_group_is_kept() -> None:
    callers, _in_b, _needs_both = with_a_turn(a=3)
    inside = [is_inside(caller) for caller in callers.enter_each("a", "a", "a")]

    assert inside == [True, True, False]


def test_a_group_without_a_limit_is_not_kept() -> None:
    callers = Callers(one_each("ab"), after=1)
    in_a, _in_b = callers.enter_each("a", "b")
    callers.enter("a", "free", "b")
    callers.leave(in_a)

    assert callers.kept() == "a"
    assert is_inside(callers.enter("free"))


def test_sixteen_turns_leave_a_provider_all_but_one_of_its_slots() -> None:
    callers = Callers({"provider": 10, "gpu": 1}, after=1)
    callers.enter("gpu")
    holders = deque(callers.enter_each(*["provider"] * 10))
    for number in range(16):
        callers.enter("provider", f"customer-{number}", "gpu")
    waiting = deque(callers.enter_each(*["provider"] * 100))
    callers.leave(holders.popleft())
    active = set()
    for _ in range(50):
        callers.leave(holders.popleft())
        holders.append(waiting.popleft())
        active.add(callers.active("provider"))

    assert callers.kept() == "provider"
    assert active == {9}


def test_turns_that_overlap_go_in_the_order_of_the_line_and_do_not_block_each_other() -> None:
    callers = Callers(one_each("abc"), after=1)
    holders = callers.enter_each("a", "b", "c")
    needs = [callers.enter(*groups) for groups in ("ab", "bc", "ca")]
    callers.leave(holders[0])  # the first is parked at b
    callers.leave(holders[1])

    assert [is_inside(caller) for caller in needs] == [True, False, False]
    callers.leave(holders[2])
    callers.leave(needs[0])
    assert [is_inside(caller) for caller in needs[1:]] == [True, False]
    callers.leave(needs[1])
    assert is_inside(needs[2])


@pytest.mark.parametrize("seed", range(20))
def test_whatever_turns_there_are_all_enter_when_holders_leave(seed: int) -> None:
    chance = random.Random(seed)
    callers = Callers(one_each("abcde"), after=1, most=chance.choice([1, 2, 16]))
    all_of_them = [callers.enter(*chance.sample("abcde", chance.randint(1, 4))) for _ in range(200)]
    left: set[int] = set()
    while inside := [at for at, caller in enumerate(all_of_them) if is_inside(caller) and at not in left]:
        at = chance.choice(inside)
        callers.leave(all_of_them[at])
        left.add(at)

    assert len(left) == 200


async def test_metrics_count_one_that_a_turn_stops_where_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qo.limits.limiter.SlotsInProcess", lambda: SlotsInProcess(new_turns=lambda: Turns(after=1)))
    limiter = qo.Limiter(groups={"a": 2, "b": 1})
    blocks = [limiter.acquire(groups=[group]) for group in "aab"]
    for block in blocks:
        block.__enter__()
    waits: list[asyncio.Task[Any]] = [asyncio.create_task(limiter.acquire(groups=["a", "b"]).__aenter__())]
    await asyncio.sleep(0)
    blocks.pop(0).__exit__(None, None, None)
    waits.append(asyncio.create_task(limiter.acquire(groups=["a"]).__aenter__()))
    await asyncio.sleep(0)
    metrics = limiter.get_metrics()
    with pytest.raises(qo.Timeout) as refusal:
        limiter.acquire(groups=["a"], timeout=0).__enter__()

    assert metrics["in_flight"] == {"a": 1, "b": 1, "total": 0}
    assert metrics["waiting"] == {"a": 1, "b": 1}
    assert metrics["blocked_by"] == {"a": 2, "b": 0}
    assert metrics["limits"] == {"a": 2, "b": 1}
    assert str(refusal.value) == (
        "No slot in group 'a' now: its limit is 2, 1 hold one, one is kept for a caller whose turn it is and "
        "1 more wait. Wait longer, or raise the limit."
    )
    for wait in waits:
        wait.cancel()
    await asyncio.gather(*waits, return_exceptions=True)
    assert not any(limiter.get_metrics()["waiting"].values())
