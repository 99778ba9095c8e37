"""A caller that needs several busy groups is passed a bounded number of times: then free slots are kept for it."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import deque

import pytest

import qo
from qo.limits.in_process.slots import SlotsInProcess
from qo.limits.in_process.turns import Turns
from tests.limits.staged_callers import OFF, Callers, is_inside, one_each, with_a_turn
from tests.worker.running import AT_MOST_SECONDS, soon

# --- nobody starves ------------------------------------------------------------------------------------------------


def passed_by(groups: str, *, chance: random.Random, at_most: int = 1000, **turns: int) -> int:
    """How many later callers, of one group each, enter before a caller that needs all of these groups of one slot.

    Each group always has others that wait for it.
    """
    callers = Callers(one_each(groups), **turns)
    holders = dict(zip(groups, callers.enter_each(*groups), strict=True))
    needs_all = callers.enter(*groups)
    waiting = {group: deque(callers.enter_each(group, group)) for group in groups}
    passed = 0
    while not is_inside(needs_all) and passed < at_most:
        group = chance.choice([*holders])
        waiting[group].append(callers.enter(group))
        callers.leave(holders.pop(group))
        if is_inside(waiting[group][0]):
            holders[group] = waiting[group].popleft()
            passed += 1
    return passed


@pytest.mark.parametrize(("groups", "median", "most"), [("ab", 17, 30), ("abc", 25, 50), ("abcd", 33, 80)])
def test_a_caller_of_several_busy_groups_is_passed_a_bounded_number_of_times(
    groups: str, median: int, most: int
) -> None:
    """Holders leave in any order, so often not in the group that the caller is parked at."""
    passed = sorted(passed_by(groups, chance=random.Random(seed)) for seed in range(201))

    assert passed[100] <= median
    assert passed[200] <= most


def test_without_turns_it_never_enters() -> None:
    assert passed_by("ab", chance=random.Random(1), after=OFF) == 1000


@pytest.mark.parametrize("groups", ["ab", "abc", "abcd"])
def test_a_thread_that_needs_groups_that_other_threads_keep_busy_enters_again_and_again(groups: str) -> None:
    limiter = qo.Limiter(groups=one_each(groups))
    has_ended = threading.Event()

    def keep_busy(group: str) -> None:
        while not has_ended.is_set():
            with limiter.acquire(groups=[group]):
                pass

    threads = [threading.Thread(target=keep_busy, args=(group,), daemon=True) for group in groups * 3]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            with limiter.acquire(groups=list(groups), timeout=AT_MOST_SECONDS):
                assert {limiter.get_metrics()["in_flight"][group] for group in groups} == {1}
    finally:
        has_ended.set()
    for thread in threads:
        thread.join(AT_MOST_SECONDS)

    assert not any(limiter.get_metrics()["in_flight"].values())


async def test_a_task_that_needs_groups_that_other_tasks_keep_busy_enters() -> None:
    limiter = qo.Limiter({"ollama": 1}, groups={"gpu": 1})
    entered = 0

    async def keep_busy(groups: list[str]) -> None:
        nonlocal entered
        while True:
            async with limiter.acquire(groups=groups):
                entered += 1
                await asyncio.sleep(0)

    tasks = [asyncio.create_task(keep_busy(groups)) for groups in (["gpu"], ["provider:ollama"]) * 3]
    await asyncio.sleep(0)
    async with limiter.acquire(groups=["gpu", "provider:ollama"], timeout=AT_MOST_SECONDS):
        assert entered <= 30
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


# --- when it ends --------------------------------------------------------------------------------------------------


def test_the_count_begins_anew_after_a_turn() -> None:
    callers, in_b, needs_both = with_a_turn()
    callers.leave(in_b)
    callers.leave(needs_both)
    in_a, _in_b = callers.enter_each("a", "b")
    callers.enter("a", "b")
    kept = callers.kept()
    callers.leave(in_a)

    assert (kept, callers.kept()) == ("", "a")


def test_the_next_in_line_for_the_same_groups_does_not_inherit_a_turn() -> None:
    callers, _in_b, needs_both = with_a_turn()
    callers.enter("a", "b")
    callers.give_up(needs_both)

    assert callers.kept() == ""
    assert is_inside(callers.enter("a"))


def test_when_one_with_a_turn_gives_up_those_that_it_stopped_go_in() -> None:
    callers, _in_b, needs_both = with_a_turn(a=2)
    stopped = callers.enter_each("a", "a")
    before = [is_inside(caller) for caller in stopped]
    callers.give_up(needs_both)

    assert before == [True, False]
    assert all(is_inside(caller) for caller in stopped)
    assert callers.kept() == ""


def test_when_the_first_of_two_turns_gives_up_the_slot_is_kept_for_the_second() -> None:
    callers = Callers(one_each("abc"), after=1)
    in_a, in_b, _in_c = callers.enter_each("a", "b", "c")
    first, second = callers.enter("a", "b"), callers.enter("a", "c")
    callers.leave(in_a)
    behind = callers.enter("a")
    callers.leave(in_b)
    callers.give_up(first)

    assert callers.kept() == "a"
    assert not is_inside(behind)
    assert is_inside(callers.enter("b"))
    callers.give_up(second)
    assert is_inside(behind)


def test_when_the_first_of_two_turns_gives_up_those_between_them_go_in() -> None:
    callers = Callers(one_each("abc"), after=1)
    in_a, _in_b, _in_c = callers.enter_each("a", "b", "c")
    first, _second = callers.enter("a", "b"), callers.enter("a", "c", priority=70)
    callers.leave(in_a)
    between, behind = callers.enter("a"), callers.enter("a", priority=90)
    before = is_inside(between)
    callers.give_up(first)

    assert not before
    assert is_inside(between)
    assert not is_inside(behind)


@pytest.mark.parametrize("how", ["by a timeout", "by a cancellation"])
async def test_a_task_that_ends_its_wait_ends_its_turn(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qo.limits.limiter.SlotsInProcess", lambda: SlotsInProcess(new_turns=lambda: Turns(after=1)))
    limiter = qo.Limiter(groups=one_each("ab"))
    in_a, in_b = limiter.acquire(groups=["a"]), limiter.acquire(groups=["b"])
    in_a.__enter__()
    in_b.__enter__()
    timeout = 0.01 if how == "by a timeout" else None
    needs_both = asyncio.create_task(limiter.acquire(groups=["a", "b"], timeout=timeout).__aenter__())
    await asyncio.sleep(0)
    in_a.__exit__(None, None, None)
    stopped = asyncio.create_task(limiter.acquire(groups=["a"]).__aenter__())
    await asyncio.sleep(0)
    was_stopped = not stopped.done()
    if timeout is None:
        needs_both.cancel()

    assert was_stopped
    await soon(stopped)
    with pytest.raises(asyncio.CancelledError if timeout is None else qo.Timeout):
        await needs_both
    assert limiter.get_metrics()["in_flight"] == {"a": 1, "b": 1, "total": 0}
    assert not any(limiter.get_metrics()["waiting"].values())


def test_a_removed_limit_keeps_nothing_from_that_step_on() -> None:
    callers, _in_b, needs_both = with_a_turn(a=1)
    behind = callers.enter("a")
    callers.slots.set_limit("a", None)

    assert is_inside(behind)
    assert not is_inside(needs_both)
    assert callers.kept() == ""


def test_when_the_last_limit_is_removed_one_with_a_turn_goes_in() -> None:
    callers, _in_b, needs_both = with_a_turn()
    behind = callers.enter("a")
    callers.slots.set_limit("b", None)

    assert is_inside(needs_both)
    assert not is_inside(behind)


def test_a_raised_limit_lets_those_behind_take_what_is_not_kept() -> None:
    callers, _in_b, needs_both = with_a_turn()
    behind = callers.enter_each("a", "a")
    callers.slots.set_limit("a", 2)

    assert [is_inside(caller) for caller in behind] == [True, False]
    assert not is_inside(needs_both)
    assert callers.kept() == "a"


def test_a_lowered_limit_keeps_one_of_what_is_left() -> None:
    callers, _in_b, _needs_both = with_a_turn(a=3)
    callers.slots.set_limit("a", 1)

    assert callers.kept() == "a"
    assert not is_inside(callers.enter("a"))


def test_nothing_is_kept_while_one_of_the_groups_lets_nobody_in() -> None:
    callers, in_b, needs_both = with_a_turn()
    behind = callers.enter("a")
    callers.slots.set_limit("b", 0)
    let_in = is_inside(behind)
    callers.slots.set_limit("b", 1)
    callers.leave(behind)
    kept = callers.kept()
    callers.leave(in_b)

    assert let_in
    assert kept == "a"
    assert is_inside(needs_both)


def test_a_limit_that_is_set_later_is_kept_too() -> None:
    callers = Callers(one_each("ab"), after=1)
    in_a, _in_b = callers.enter_each("a", "b")
    callers.enter("a", "later", "b")
    callers.leave(in_a)
    callers.slots.set_limit("later", 1)

    assert callers.kept() == "a later"
    assert not is_inside(callers.enter("later"))


# --- how many there are --------------------------------------------------------------------------------------------


def test_the_seventeenth_takes_its_turn_when_it_is_passed_after_one_has_ended() -> None:
    groups = [f"{kind}{number}" for number in range(17) for kind in "ab"]
    callers = Callers(dict.fromkeys(groups, 1), after=1)
    holders = dict(zip(groups, callers.enter_each(*groups), strict=True))
    needs = [callers.enter(f"a{number}", f"b{number}") for number in range(17)]
    for number in range(17):
        callers.leave(holders.pop(f"a{number}"))
    kept_by_sixteen = callers.kept().split()
    callers.give_up(needs[0])
    still_free = callers.enter("a16")
    callers.leave(holders.pop("b16"))

    assert kept_by_sixteen == [f"a{number}" for number in range(16)]
    assert is_inside(still_free)
    assert "b16" in callers.kept().split()


def test_a_turn_that_keeps_nothing_gives_its_row_to_one_that_would_keep_something() -> None:
    callers = Callers(one_each("abcd"), after=1, most=2)
    in_a, _in_b, in_c, _in_d = callers.enter_each("a", "b", "c", "d")
    first, second = callers.enter("a", "b"), callers.enter("a", "b", priority=70)
    callers.leave(in_a)
    needs_others = callers.enter("c", "d")
    callers.leave(in_c)
    kept = callers.kept()
    callers.give_up(first)

    assert kept == "a c"
    assert callers.kept() == "c", "the second still had a row"
    assert not is_inside(second)
    assert not is_inside(needs_others)


def test_a_turn_that_would_keep_nothing_takes_no_row_from_another() -> None:
    callers = Callers(one_each("ab"), after=1, most=2)
    in_a, _in_b = callers.enter_each("a", "b")
    first, second, third = (callers.enter("a", "b", priority=priority) for priority in (50, 60, 70))
    callers.leave(in_a)
    callers.give_up(first)
    kept_for_the_second = callers.kept()
    callers.give_up(second)

    assert kept_for_the_second == "a"
    assert callers.kept() == ""
    assert not is_inside(third)


def test_turns_need_at_most_so_many_groups_in_all() -> None:
    callers = Callers(one_each("abcd"), after=1, most_groups=3)
    in_a, _in_b, in_c, _in_d = callers.enter_each("a", "b", "c", "d")
    first = callers.enter("a", "b")
    callers.enter("c", "d")
    callers.leave(in_a, in_c)
    kept = callers.kept()
    callers.give_up(first)
    in_c = callers.enter("c")
    callers.leave(in_c)

    assert kept == "a"
    assert is_inside(in_c)
