"""A job that is passed often enough takes a turn, so that it starts: who takes one, and how it ends."""

from __future__ import annotations

import pytest

from qo.job import State
from qo.store.contract import Store
from qo.values import TaskOptions, Unlimited
from tests.conformance.suite.harness import (
    HOUR,
    NOW,
    acquire,
    active,
    age,
    at,
    claim,
    events_of,
    hand_back,
    ids,
    limit,
    register,
    standing,
    start,
    submit,
    succeed,
)
from tests.conformance.suite.turn_taking import has_turn, kept_for, pass_once, prepare

pytestmark = pytest.mark.small_bounds

MOST_PASSES = 30
"""How many later jobs may start before one that needs several busy groups."""


# --- the stories ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [2, 3, 4])
async def test_a_job_that_needs_several_busy_groups_starts(store: Store, number: int) -> None:
    groups = tuple(f"g{each}" for each in range(number))
    await register(store, "w1", "work", capacity=100)
    running = {}
    for group in groups:
        await limit(store, group, 1)
        await submit(store, f"{group}-first", groups=(group,))
        (running[group],) = await claim(store)
    await submit(store, "all", priority=10, groups=groups)
    later = 0

    while await running_state(store, "all") is State.QUEUED:
        group = groups[later % number]
        later += 1
        assert later <= MOST_PASSES
        await submit(store, f"{group}-{later}", groups=(group,))
        if group in running:
            await succeed(store, running.pop(group))
        for lease in await claim(store, capacity=number):
            running |= dict.fromkeys((name for name in lease.job.groups if name in groups), lease)


async def running_state(store: Store, job_id: str) -> State:
    return (await store.job(job_id)).state


async def test_a_job_starts_though_the_worker_of_another_task_always_claims_first(store: Store) -> None:
    await register(store, "u", "other", capacity=1)
    await register(store, "t", "work", capacity=1)
    await limit(store, "gpu", 1)
    await submit(store, "first", task="other", groups=("gpu",))
    (running,) = await claim(store, tasks=["other"], worker="u")
    await submit(store, "urgent", priority=10, groups=("gpu",))

    for later in range(8):
        await submit(store, f"later-{later}", task="other", groups=("gpu",))
        await succeed(store, running)
        (running,) = await claim(store, tasks=["other"], worker="u")

    await succeed(store, running)
    await submit(store, "last", task="other", groups=("gpu",))
    assert await claim(store, tasks=["other"], worker="u") == []
    assert ids(await claim(store, worker="t")) == ["urgent"]


async def test_a_job_of_a_busy_task_and_a_group_that_another_task_keeps_busy_starts(store: Store) -> None:
    await register(store, "u", "other", capacity=1)
    await register(store, "t", TaskOptions(name="work", limit=1), capacity=1)
    await limit(store, "gpu", 1)
    await submit(store, "other-first", task="other", groups=("gpu",))
    (other,) = await claim(store, tasks=["other"], worker="u")
    await submit(store, "work-first")
    (own,) = await claim(store, worker="t")
    await submit(store, "both", priority=10, groups=("gpu",))

    for later in range(MOST_PASSES):
        await submit(store, f"other-{later}", task="other", groups=("gpu",))
        await submit(store, f"work-{later}")
        await succeed(store, other)
        if not (claimed := await claim(store, tasks=["other"], worker="u")):
            break
        (other,) = claimed
        await succeed(store, own)
        if not (claimed := await claim(store, worker="t")):
            continue
        (own,) = claimed

    assert ids(await claim(store, worker="t")) == ["both"]


async def test_many_turns_keep_one_slot_of_a_group(store: Store) -> None:
    await prepare(store, api=10)
    jobs = [f"turn-{number}" for number in range(16)]
    for number, job in enumerate(jobs):
        await submit(store, job, user=f"u{number}", groups=("api", "gpu"))
    await start(store, "holds-gpu-for-long", groups=("gpu",))
    assert await claim(store, capacity=16) == []
    assert [await has_turn(store, job) for job in jobs] == [True] * 16

    for number in range(12):
        await submit(store, f"api-{number}", groups=("api",))
    await claim(store, capacity=12)

    assert await active(store, "api") == 9
    assert await kept_for(store, "gpu", "api") == ["turn-0", "turn-0"]


# --- who has a turn ---------------------------------------------------------------------------------------------


async def test_a_turn_is_an_event_and_a_figure(store: Store) -> None:
    await prepare(store)
    await pass_once(store, "turn")

    assert ("turn", {"passed": 1}) in await events_of(store, "turn")
    assert [(one.name, one.count) for one in await store.series(prefix="turns")] == [("turns", 1)]


async def test_a_job_that_is_looked_at_and_put_aside_is_passed(store: Store) -> None:
    await prepare(store, turn_after=2)
    await submit(store, "both", groups=("api", "gpu"))
    await start(store, "has-gpu", groups=("gpu",))

    assert await claim(store) == []

    assert [job.passed for job in (await store.line(limit=5)).jobs] == [1]


async def test_without_turns_nobody_is_counted(store: Store) -> None:
    await prepare(store, turn_after=0)
    await pass_once(store, "both")

    assert [(job.passed, job.turn) for job in (await store.line(limit=5)).jobs] == [(0, False)]


@pytest.mark.bounded_by(turns=1)
async def test_a_turn_that_keeps_nothing_gives_its_row_to_the_next(store: Store) -> None:
    await prepare(store, "work", "other")
    await succeed(store, await pass_once(store, "resting", groups=("gpu", "api", "slow"), priority=10))
    await at(store, NOW).set_paused("slow", True)

    await pass_once(store, "next", task="other")

    assert not await has_turn(store, "resting")
    assert await has_turn(store, "next")


@pytest.mark.bounded_by(turns=1)
async def test_a_turn_ends_for_another_one_though_both_are_passed_in_the_same_walk(store: Store) -> None:
    await prepare(store, "work", "other")
    await succeed(store, await pass_once(store, "resting", task="nobody"))
    assert await has_turn(store, "resting")

    await pass_once(store, "next", task="other", priority=10)

    assert await has_turn(store, "next")
    assert not await has_turn(store, "resting")


@pytest.mark.bounded_by(turns=1)
async def test_a_turn_that_keeps_slots_keeps_its_row_until_it_ends(store: Store) -> None:
    await prepare(store, "work", "other")
    await succeed(store, await pass_once(store, "has-it", priority=10))
    held = await start(store, "urgent", groups=("gpu",), priority=0)
    await submit(store, "waits", task="other", groups=("gpu",))
    await succeed(store, held)
    held = await start(store, "urgent-2", groups=("gpu",), priority=0)
    await submit(store, "later", priority=95, groups=("gpu",), task="third")
    assert not await has_turn(store, "waits")

    await at(store, NOW).cancel(job_id="has-it")
    await succeed(store, held)
    await start(store, "passes", groups=("gpu",), priority=95)

    assert await has_turn(store, "waits")


@pytest.mark.bounded_by(turn_groups=3)
async def test_a_job_of_more_groups_than_turns_may_have_in_all_takes_none(store: Store) -> None:
    await prepare(store)
    await pass_once(store, "turn", groups=("gpu", "api"))

    assert not await has_turn(store, "turn")  # its task, its priority, gpu and api are four


async def test_a_job_left_to_its_worker_stays_the_first_of_its_lane_when_a_turn_blocks_the_next_one(
    store: Store,
) -> None:
    await prepare(store)
    await start(store, "busy", groups=("api",))
    await succeed(store, await pass_once(store, "turn"))
    await submit(store, "early", groups=("gpu",))
    await submit(store, "late", groups=("gpu",))
    await at(store, NOW).move("early", before="turn")

    await acquire(store, "caller", "gpu", wait_ms=HOUR)

    assert ids(await claim(store, capacity=5)) == ["early"]
    assert await kept_for(store, "gpu") == ["turn"]


# --- how a turn ends --------------------------------------------------------------------------------------------


async def test_a_cancelled_job_keeps_nothing(store: Store) -> None:
    await prepare(store)
    await pass_once(store, "turn")
    await submit(store, "behind", groups=("api",))
    assert await claim(store) == []

    await at(store, NOW).cancel(job_id="turn")

    assert ids(await claim(store)) == ["behind"]


async def test_a_moved_job_has_to_be_passed_anew(store: Store) -> None:
    await prepare(store)
    await pass_once(store, "turn")
    await submit(store, "behind", groups=("api",))

    await at(store, NOW).move("turn", after="behind")

    assert await kept_for(store, "gpu", "api") == [None, None]
    assert not await has_turn(store, "turn")


async def test_a_job_of_another_priority_has_to_be_passed_anew(store: Store) -> None:
    await prepare(store)
    await pass_once(store, "turn")

    await at(store, NOW).set_priority(20, job_id="turn")

    assert await kept_for(store, "gpu", "api") == [None, None]


async def test_a_job_that_ages_keeps_its_turn(store: Store) -> None:
    await prepare(store)
    await pass_once(store, "turn")

    assert await age(store, now=NOW + HOUR) == ["turn"]

    at(store, NOW + HOUR)
    assert await kept_for(store, "gpu", "api") == ["turn", "turn"]


async def test_a_started_job_has_to_be_passed_anew_when_it_comes_back(store: Store) -> None:
    await prepare(store)
    await succeed(store, await pass_once(store, "turn"))
    (lease,) = await claim(store)

    await hand_back(store, lease)

    assert [(job.id, job.passed, job.turn) for job in (await store.line(limit=5)).jobs] == [("turn", 0, False)]


async def test_nothing_is_kept_of_a_group_whose_limit_was_removed(store: Store) -> None:
    await prepare(store)
    await pass_once(store, "turn")
    await submit(store, "behind", groups=("api",))
    assert await claim(store) == []

    await at(store, NOW).set_limits([Unlimited(group="api")])

    assert await kept_for(store, "gpu", "api") == ["turn", None]
    assert ids(await claim(store)) == ["behind"]


async def test_a_turn_keeps_slots_of_the_groups_that_its_job_has_now(store: Store) -> None:
    await prepare(store)
    await limit(store, "tier:fast", 2)
    await limit(store, "more", 2)
    await pass_once(store, "turn", user="u1")

    await at(store, NOW).set_tier("u1", standing("fast"))
    await register(store, "w1", TaskOptions(name="work", groups=("more",)), turn_after=1)

    assert await kept_for(store, "tier:fast", "more") == ["turn", "turn"]
