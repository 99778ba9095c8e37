"""One deterministic order: (priority, place), smallest first."""

from __future__ import annotations

import random

import pytest

from qo.store.contract import Store
from qo.values import Bounds, TaskOptions, UpkeepRules
from tests.conformance.conftest import ModelUnderTest
from tests.conformance.suite.harness import (
    HOUR,
    LEASE,
    MINUTE,
    NOW,
    at,
    claim,
    fail,
    fresh_id,
    hand_back,
    ids,
    limit,
    line,
    numbered,
    pass_time,
    register,
    retry_later,
    standing,
    submission,
    submit,
    submit_all,
    succeed,
)
from tests.stores import StoreUnderTest

pytestmark = pytest.mark.small_bounds


async def test_jobs_of_one_priority_start_in_the_order_they_joined_not_by_id(store: Store) -> None:
    await submit_all(store, ["c", "a", "b"])

    assert ids(await claim(store, capacity=3)) == ["c", "a", "b"]


async def test_a_smaller_priority_goes_first_however_late_it_joined(store: Store) -> None:
    await submit(store, "background", priority=90)
    await submit(store, "normal", priority=50)
    await submit(store, "urgent", priority=10)
    await submit(store, "zero", priority=0)
    await submit(store, "last", priority=99)

    assert ids(await claim(store, capacity=5)) == ["zero", "urgent", "normal", "background", "last"]


async def test_without_a_priority_a_job_is_normal(store: Store) -> None:
    job = await submit(store, "plain")

    assert job.priority == 50
    assert "priority:50" in job.groups


async def test_the_clock_does_not_decide_who_joined_first(store: Store) -> None:
    await submit(store, "first", now=NOW)
    await submit(store, "second", now=NOW - MINUTE)

    assert await line(store) == ["first", "second"]


async def test_jobs_of_one_submit_join_in_the_order_given(store: Store) -> None:
    await at(store, NOW).submit([submission(job_id) for job_id in ("z", "y", "x")])

    assert await line(store) == ["z", "y", "x"]


async def test_every_job_knows_its_place_when_it_joins_and_now(store: Store) -> None:
    await submit_all(store, ["a", "b", "c"])
    await submit(store, "urgent", priority=10)

    third, urgent = await store.job("c"), await store.job("urgent")

    assert (third.position_original, third.position) == (3, 4)
    assert (urgent.position_original, urgent.position) == (1, 1)


async def test_a_worker_of_several_tasks_takes_them_in_one_order(store: Store) -> None:
    for number, task in enumerate(["x", "y", "x", "z", "y", "x"]):
        await submit(store, f"{task}{number}", task=task)

    assert ids(await claim(store, tasks=["z", "y", "x"], capacity=6)) == ["x0", "y1", "x2", "z3", "y4", "x5"]


async def test_a_claim_returns_fewer_than_asked_and_being_empty_is_no_error(store: Store) -> None:
    await submit(store, "only")

    assert ids(await claim(store, capacity=10)) == ["only"]
    assert await claim(store, capacity=10) == []


async def test_a_worker_is_never_given_a_task_it_does_not_handle(store: Store) -> None:
    await submit_all(store, numbered("y", 20), task="y", priority=10)
    await submit(store, "x", task="x", priority=90)

    assert ids(await claim(store, tasks=["x"], capacity=30)) == ["x"]
    assert await claim(store, tasks=["x"], capacity=30) == []
    assert await line(store) == numbered("y", 20)


async def test_a_job_handed_back_keeps_its_place(store: Store) -> None:
    await submit_all(store, ["a", "b", "c"])
    first, _ = await claim(store, capacity=2)

    await hand_back(store, first)
    await submit(store, "d")

    assert await line(store) == ["a", "c", "d"]


async def test_a_job_whose_lease_ran_out_keeps_its_place(store: Store) -> None:
    await submit_all(store, ["a", "b"])
    await claim(store)
    await submit(store, "c")

    await pass_time(store, since=NOW, until=NOW + LEASE)

    assert await line(store) == ["a", "b", "c"]


async def test_a_job_joins_behind_the_others_after_a_retrys_wait(store: Store) -> None:
    await submit_all(store, ["a", "b"])
    (lease,) = await claim(store)
    await retry_later(store, lease, at=NOW + MINUTE)
    await submit(store, "c")

    await pass_time(store, since=NOW, until=NOW + MINUTE)

    assert await line(store) == ["b", "c", "a"]


async def test_a_job_retried_by_hand_joins_behind_the_others(store: Store) -> None:
    await submit_all(store, ["a", "b"])
    (lease,) = await claim(store)
    await fail(store, lease)
    await submit(store, "c")

    await at(store, NOW).retry("a")

    assert await line(store) == ["b", "c", "a"]


async def test_a_changed_priority_keeps_the_place(store: Store) -> None:
    await submit_all(store, ["a", "b", "c"])

    await at(store, NOW).set_priority(70, job_id="a")
    await at(store, NOW).set_priority(70, job_id="b")
    await at(store, NOW).set_priority(50, job_id="b")

    assert await line(store) == ["b", "c", "a"]
    await at(store, NOW).set_priority(50, job_id="a")
    assert await line(store) == ["a", "b", "c"]


async def test_a_changed_priority_changes_the_group_that_counts(store: Store) -> None:
    await at(store, NOW).set_paused("priority:70", True)
    await submit(store, "a", priority=70)

    before = await claim(store)
    await at(store, NOW).set_priority(50, job_id="a")

    assert before == []
    assert ids(await claim(store)) == ["a"]


async def test_jobs_that_come_due_together_join_by_time_parent_phase_and_submission(store: Store) -> None:
    due = NOW + HOUR
    await submit(store, "zz", run_at_ms=due - 1)
    await submit(store, "shop", run_at_ms=due, parent="shop")
    await submit(store, "p10", run_at_ms=due, parent="10")
    await submit(store, "p9", run_at_ms=due, parent="9")
    await submit(store, "p9-1", run_at_ms=due, parent="9", phase=1)
    await submit(store, "b", run_at_ms=due)
    await submit(store, "a", run_at_ms=due)

    await pass_time(store, since=NOW, until=due)

    assert await line(store) == ["zz", "b", "a", "p9", "p9-1", "p10", "shop"]


async def test_what_a_bounded_claim_takes_is_the_exact_prefix(store: Store) -> None:
    await limit(store, "user:many", 1)
    await submit_all(store, numbered("many", 9), user="many")
    await submit_all(store, numbered("other", 9))

    taken = []
    for _ in range(100):
        claimed = await at(store, NOW).claim(
            worker="w", tasks=["work"], capacity=30, lease_ms=LEASE, claim_id=fresh_id("c")
        )
        taken += ids(claimed.leases)
        assert taken == ["many00001", *numbered("other", 9)][: len(taken)]
        if not claimed.more:
            break

    assert len(taken) == 10


def first_eligible(waiting: list[tuple[str, str, tuple[str, ...]]], limits: dict[str, int], capacity: int) -> list[str]:
    """The rule of qo by looking at everybody: `waiting` are (id, task, groups) in the order of the line."""
    used = dict.fromkeys(limits, 0)
    started: list[str] = []
    for job_id, _, groups in waiting:
        limited = [group for group in groups if group in limits]
        if len(started) < capacity and all(used[group] < limits[group] for group in limited):
            started.append(job_id)
            for group in limited:
                used[group] += 1
    return started


@pytest.mark.parametrize("seed", range(12))
async def test_order_the_claimed_job_is_the_first_eligible_one(store: Store, seed: int) -> None:
    choose = random.Random(seed)
    names = ["g1", "g2", "g3", "user:u1", "user:u2", "x", "y", "global", "priority:50"]
    limits = {name: choose.randint(0, 4) for name in choose.sample(names, 5)}
    for name, slots in limits.items():
        await limit(store, name, slots)
    for number in range(40):
        await submit(
            store,
            f"j{number}",
            task=choose.choice(["x", "y", "z"]),
            priority=choose.choice([20, 50, 50, 50, 70]),
            user=choose.choice([None, "u1", "u2"]),
            groups=tuple(choose.sample(["g1", "g2", "g3"], choose.randint(0, 2))),
        )
    tasks = choose.sample(["x", "y", "z"], 2)
    waiting = [(job.id, job.task, job.groups) for job in (await store.jobs(status="queued")).jobs if job.task in tasks]

    claimed = ids(await claim(store, tasks=tasks, capacity=15))

    assert claimed == first_eligible(waiting, limits, 15)


async def scripted_trace(store: Store) -> list[object]:
    """A fixed history of many kinds of steps, and everything that could be seen of it."""
    choose = random.Random(42)
    trace: list[object] = []
    await register(store, "w1", TaskOptions(name="work", groups=("gpu",), limit=6), capacity=4)
    await limit(store, "gpu", 3)
    held = []
    for number in range(120):
        now = NOW + number * MINUTE
        match choose.randrange(6):
            case 0 | 1:
                partner = standing(boost=choose.choice([0, 2, 5]), user_limit=2, daily_quota=7)
                user = choose.choice(["u1", "u2"])
                await submit(store, f"j{number}", priority=choose.choice([20, 50, 70]), user=user, now=now,
                             standing=partner)  # fmt: skip
            case 2:
                held += await claim(store, capacity=3, now=now)
            case 3 if held:
                await succeed(store, held.pop(choose.randrange(len(held))), now=now)
            case 4:
                await limit(store, "gpu", choose.randint(0, 3), now=now)
            case _:
                await at(store, now).upkeep(UpkeepRules(aging_period_ms=HOUR))
        trace.append((await line(store), ids(held)))
    trace += (await store.events(0)).events
    return trace


async def test_the_same_commands_give_the_same_trace_on_every_run(
    under_test: ModelUnderTest | StoreUnderTest, bounds: Bounds, store: Store
) -> None:
    again = await under_test.open(bounds)
    try:
        assert await scripted_trace(store) == await scripted_trace(again)
    finally:
        await under_test.close(again)
