"""Of a group that is needed by a job or caller with a turn, one free slot is kept for it: when, and from whom."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from qo.store.contract import Store
from qo.values import Source
from tests.conformance.suite.harness import (
    NOW,
    SECOND,
    acquire,
    active,
    at,
    claim,
    hand_back,
    ids,
    kinds_of,
    limit,
    register,
    start,
    submit,
    succeed,
)
from tests.conformance.suite.turn_taking import kept_for, pass_once, prepare

pytestmark = pytest.mark.small_bounds


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
