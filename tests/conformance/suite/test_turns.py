"""A job or caller that is passed often enough takes a turn: free slots of its busy groups are kept for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from qo.job import State
from qo.store.contract import Store
from qo.values import Lease, Source, TaskOptions, Unlimited
from tests.conformance.suite.harness import (
    HOUR,
    NOW,
    SECOND,
    acquire,
    active,
    age,
    at,
    claim,
    events_of,
    group_status,
    hand_back,
    ids,
    kinds_of,
    limit,
    register,
    standing,
    start,
    submit,
    succeed,
)

pytestmark = pytest.mark.small_bounds

MOST_PASSES = 30
"""How many later jobs may start before one that needs several busy groups."""


async def pass_once(store: Store, job_id: str, *, task: str = "work", **fields: Any) -> Lease:
    """Submit a job that finds `gpu` taken, and let a job behind it take that slot. Returns the job that has it now."""
    before = await start(store, f"before-{job_id}", groups=("gpu",))
    await submit(store, job_id, task=task, **{"groups": ("gpu", "api"), **fields})
    await succeed(store, before)
    return await start(store, f"passes-{job_id}", groups=("gpu",))


async def prepare(store: Store, *tasks: str, turn_after: int = 1, api: int = 1) -> None:
    """Workers for these tasks, whose jobs take a turn when they are passed once."""
    await register(store, "w1", *(tasks or ("work",)), capacity=100, turn_after=turn_after, lifetime_ms=24 * HOUR)
    await limit(store, "gpu", 1)
    await limit(store, "api", api)


async def kept_for(store: Store, *groups: str) -> list[str | None]:
    return [(await group_status(store, group)).kept for group in groups]


async def has_turn(store: Store, job_id: str) -> bool:
    return next(job.turn for job in (await store.line(limit=1000)).jobs if job.id == job_id)


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


# --- what is kept -----------------------------------------------------------------------------------------------


async def test_a_free_slot_is_kept_for_the_job_whose_turn_it_is(store: Store) -> None:
    await prepare(store)
    holder = await pass_once(store, "turn")
    await submit(store, "behind", groups=("api",))

    assert await kept_for(store, "gpu", "api") == ["turn", "turn"]
    assert await claim(store, capacity=5) == []
    await succeed(store, holder)
    assert ids(await claim(store, capacity=5)) == ["turn"]


async def test_a_job_before_the_turn_takes_the_slot(store: Store) -> None:
    await prepare(store)
    await pass_once(store, "turn")
    await submit(store, "urgent", priority=10, groups=("api",))

    assert ids(await claim(store, capacity=5)) == ["urgent"]


async def test_slots_beside_the_kept_one_go_to_others(store: Store) -> None:
    await prepare(store, api=3)
    await pass_once(store, "turn")
    for number in range(3):
        await submit(store, f"behind-{number}", groups=("api",))

    assert ids(await claim(store, capacity=5)) == ["behind-0", "behind-1"]


async def test_a_job_of_a_user_at_their_limit_keeps_no_far_slot(store: Store) -> None:
    await prepare(store)
    own = await start(store, "own", user="u1")
    await pass_once(store, "turn", user="u1")
    await limit(store, "user:u1", 1)
    await submit(store, "behind", groups=("api",))

    assert await kept_for(store, "user:u1", "api") == ["turn", None]
    assert ids(await claim(store, capacity=5)) == ["behind"]
    await succeed(store, own)
    assert await kept_for(store, "user:u1", "gpu") == ["turn", "turn"]


async def test_nothing_is_kept_while_a_group_is_paused(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]]
) -> None:
    await prepare(store)
    await pass_once(store, "turn", groups=("gpu", "api", "slow"))
    await submit(store, "behind", groups=("api",))
    assert await claim(store, capacity=5) == []
    before = await snapshot()

    await at(store, NOW).set_paused("slow", True)
    assert "turn" not in await kept_for(store, "gpu", "api")
    assert (await snapshot())["open"] == before["open"]
    await at(store, NOW).set_paused("slow", False)
    assert await kept_for(store, "gpu", "api") == ["turn", "turn"]
    assert (await snapshot())["open"] == before["open"]

    await at(store, NOW).set_paused("slow", True)
    assert ids(await claim(store, capacity=5)) == ["behind"]


async def test_nothing_is_kept_while_a_group_has_a_limit_of_0(store: Store) -> None:
    await prepare(store)
    await pass_once(store, "turn", groups=("gpu", "api", "slow"))

    await limit(store, "slow", 0)
    assert await kept_for(store, "gpu", "api") == [None, None]
    await limit(store, "slow", 1)
    assert await kept_for(store, "gpu", "api") == ["turn", "turn"]


async def test_nothing_is_kept_while_a_group_is_closed(store: Store) -> None:
    await prepare(store)
    closes = await start(store, "closes", task="work", groups=("slow",))
    await pass_once(store, "turn", groups=("gpu", "api", "slow"))

    await hand_back(store, closes, closed={"slow": 10 * SECOND})

    assert await kept_for(store, "gpu", "api") == [None, None]
    await at(store, NOW + 10 * SECOND).catch_up()
    assert await kept_for(store, "gpu", "api") == ["turn", "turn"]


async def test_nothing_is_kept_for_a_job_that_no_live_worker_handles(store: Store) -> None:
    await prepare(store)
    await pass_once(store, "turn", task="nobody")
    await submit(store, "behind", groups=("api",))

    assert await kept_for(store, "gpu", "api") == [None, None]
    assert ids(await claim(store, capacity=5)) == ["behind"]
    await register(store, "w2", "nobody", turn_after=1)
    assert await kept_for(store, "gpu", "api") == ["turn", "turn"]


async def test_of_two_turns_in_overlapping_groups_the_first_in_line_goes_first(store: Store) -> None:
    await prepare(store, "work", "other")
    held = await pass_once(store, "first", groups=("gpu", "api"))
    await succeed(store, held)
    held = await start(store, "urgent", groups=("gpu",), priority=0)
    await submit(store, "second", task="other", groups=("api", "gpu"))
    await claim(store, tasks=["other"])
    assert await claim(store, tasks=["work", "other"], capacity=5) == []

    await succeed(store, held)
    (first,) = await claim(store, tasks=["other", "work"], capacity=5)
    assert first.job.id == "first"
    await succeed(store, first)
    assert ids(await claim(store, tasks=["other", "work"], capacity=5)) == ["second"]


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


# --- callers ----------------------------------------------------------------------------------------------------


async def test_a_caller_takes_a_turn_and_gets_its_slots(store: Store) -> None:
    await prepare(store)
    held = await start(store, "has-gpu", groups=("gpu",))
    await acquire(store, "caller", "gpu", "api")
    await succeed(store, held)  # api and gpu are free, so the caller has both
    assert await active(store, "api") == 1
    await at(store, NOW).release([("caller", None)])

    held = await start(store, "has-gpu-again", groups=("gpu",))
    await acquire(store, "caller", "gpu", "api")
    held_api = await start(store, "has-api", groups=("api",))
    await succeed(store, held)  # it is looked at and put aside, because api is taken now
    assert "turn" in await kinds_of(store, "caller")
    await submit(store, "behind", groups=("gpu",))
    assert await claim(store) == []
    await succeed(store, held_api)
    assert await active(store, "gpu") == await active(store, "api") == 1
    assert (await acquire(store, "caller", "gpu", "api")).token is not None


async def test_a_caller_that_is_gone_keeps_nothing(store: Store) -> None:
    await prepare(store)
    held = await start(store, "has-gpu", groups=("gpu",))
    await acquire(store, "caller", "gpu", "api", wait_ms=15 * SECOND)
    await start(store, "has-api", groups=("api",))
    await succeed(store, held)
    assert await kept_for(store, "gpu") == ["caller"]
    await submit(store, "behind", groups=("gpu",))

    later = NOW + 15 * SECOND
    assert ids(await claim(store, now=later)) == ["behind"]


async def test_a_new_caller_does_not_take_a_kept_slot(store: Store) -> None:
    await prepare(store)
    await pass_once(store, "turn")

    assert (await acquire(store, "caller", "api")).token is None
    assert (await acquire(store, "urgent-caller", "api", priority=10)).token is not None


async def test_a_limit_that_is_raised_lets_others_by(store: Store) -> None:
    await prepare(store)
    await pass_once(store, "turn")
    await acquire(store, "caller", "api")

    await limit(store, "api", 2, source=Source.OPERATOR)

    assert (await acquire(store, "caller", "api")).token is not None


# --- what is told -----------------------------------------------------------------------------------------------


async def test_a_job_behind_a_turn_is_told_for_whom_the_slot_is_kept(store: Store) -> None:
    await prepare(store)
    await pass_once(store, "turn")
    await submit(store, "behind", groups=("api",))
    at(store, NOW)

    behind, turn = await store.blockers("behind"), await store.blockers("turn")

    assert [(group.group, group.has_room, group.kept) for group in behind.groups] == [("api", True, "turn")]
    assert behind.kept_for == {"turn": ("gpu",)}
    assert behind.turn == ()
    assert set(turn.turn) == {"gpu", "api"}
    assert [group.group for group in turn.groups] == ["gpu"]
