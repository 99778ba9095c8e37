"""Numbered slots: the lowest free one first, so that a number can stand for a real thing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from qo.errors import LeaseAlive, SlotNotFound
from qo.job import State, moment
from qo.store.contract import Store
from qo.values import SlotInfo, Unlimited
from tests.conformance.suite.harness import (
    LEASE,
    NOW,
    active,
    at,
    claim,
    group_status,
    hand_back,
    holders,
    ids,
    kinds_of,
    limit,
    numbered,
    start,
    state,
    submit,
    submit_all,
    succeed,
)

pytestmark = pytest.mark.small_bounds


async def test_the_lowest_free_number_is_taken_first(store: Store) -> None:
    await limit(store, "ports", 5)
    await submit_all(store, "abcdef", groups=("ports",))
    a, b, c, d, _ = await claim(store, capacity=5)

    await succeed(store, d, b)
    (f,) = await claim(store, capacity=1)
    await submit(store, "g", groups=("ports",))
    (g,) = await claim(store, capacity=1)

    assert [lease.slots["ports"] for lease in (a, b, c, d)] == [0, 1, 2, 3]
    assert (f.slots["ports"], g.slots["ports"]) == (1, 3)
    assert await holders(store, "ports") == {0: "a", 1: "f", 2: "c", 3: "g", 4: "e"}


async def test_a_job_is_told_its_number_in_each_limited_group_only(store: Store) -> None:
    await limit(store, "ports", 3)
    await limit(store, "global", 9)
    await submit(store, "a", user="u1", groups=("ports", "unlimited"))

    (lease,) = await claim(store)

    assert lease.slots == {"global": 0, "ports": 0}


async def test_two_jobs_never_have_the_same_number(store: Store) -> None:
    await limit(store, "ports", 4)
    held = []
    for round_number in range(12):
        await submit_all(store, numbered(f"r{round_number}-", 4), groups=("ports",))
        held += await claim(store, capacity=4)
        numbers = [lease.slots["ports"] for lease in held]
        assert sorted(numbers) == [0, 1, 2, 3]
        await succeed(store, held.pop(round_number % 4), held.pop(0))


@pytest.mark.parametrize("group", ["global", "work", "priority:50"])
async def test_holders_adopted_by_a_first_limit_are_numbered_in_the_order_they_started(
    store: Store, group: str
) -> None:
    await submit_all(store, "abcd")
    a, *_ = await claim(store, capacity=2)
    await claim(store, capacity=2)
    await succeed(store, a)

    await limit(store, group, 2)

    assert await holders(store, group) == {0: "b", 1: "c", 2: "d"}


async def test_a_holder_is_recorded_in_its_own_groups_before_there_is_a_limit(store: Store) -> None:
    await start(store, "a", user="u1", groups=("ports",))
    await start(store, "b", user="u1", groups=("ports",))

    assert await holders(store, "ports") == {0: "a", 1: "b"}
    assert await holders(store, "user:u1") == {0: "a", 1: "b"}
    assert await holders(store, "global") == {}


async def test_numbers_above_a_lowered_limit_last_until_they_are_released(store: Store) -> None:
    await limit(store, "ports", 4)
    await submit_all(store, "abcde", groups=("ports",))
    a, b, c, d = await claim(store, capacity=4)

    await limit(store, "ports", 2)
    during = await holders(store, "ports")
    await succeed(store, a, b, c)

    assert during == {0: "a", 1: "b", 2: "c", 3: "d"}
    (e,) = await claim(store)
    assert e.slots["ports"] == 0
    assert await holders(store, "ports") == {0: "e", 3: "d"}
    await succeed(store, d)
    assert await holders(store, "ports") == {0: "e"}


async def test_numbers_last_while_a_limit_goes_away_and_comes_again(store: Store) -> None:
    await limit(store, "global", 3)
    await submit_all(store, "abcd")
    a, b, c = await claim(store, capacity=3)
    await succeed(store, a)

    await at(store, NOW).set_limits([Unlimited(group="global")])
    await claim(store)
    await limit(store, "global", 3)

    assert await holders(store, "global") == {0: "d", 1: "b", 2: "c"}
    assert ids([b, c]) == ["b", "c"]


async def test_a_slots_holder_is_shown_with_worker_expiry_and_token(store: Store) -> None:
    lease = await start(store, "a", groups=("ports",), worker="w7")

    (slot,) = (await group_status(store, "ports")).slots

    assert slot == SlotInfo(slot_id=0, holder="a", worker_id="w7", expires_at=moment(NOW + LEASE), token=lease.token)


async def test_all_slots_of_a_job_are_freed_together(store: Store) -> None:
    for group in ("global", "work", "priority:50", "user:u1", "a", "b"):
        await limit(store, group, 1)
    await submit(store, "first", user="u1", groups=("a", "b"))
    (lease,) = await claim(store)
    held = {group: await active(store, group) for group in lease.slots}

    await hand_back(store, lease)

    assert held == dict.fromkeys(("global", "work", "priority:50", "user:u1", "a", "b"), 1)
    assert {group: await active(store, group) for group in held} == dict.fromkeys(held, 0)


# --- released by hand -------------------------------------------------------------------------------------------


async def test_a_forced_release_revokes_the_whole_lease_and_puts_the_job_back_with_an_attempt_spent(
    store: Store,
) -> None:
    await limit(store, "a", 1)
    await limit(store, "b", 1)
    await submit_all(store, ["first", "second"], groups=("a", "b"))
    (lease,) = await claim(store)

    who = await at(store, NOW).revoke("a", 0, force=True, by="ops")

    job = await store.job("first")
    assert who == "first"
    assert (job.state, job.attempts, job.position, job.token) == (State.QUEUED, 1, 1, None)
    assert (await active(store, "a"), await active(store, "b")) == (0, 0)
    assert (await succeed(store, lease))[0].lost
    assert await kinds_of(store, "first") == ["queued", "starting", "lease_lost", "queued"]


async def test_without_force_a_living_lease_is_not_released(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]]
) -> None:
    await start(store, "first", groups=("a",))
    before = await snapshot()

    with pytest.raises(LeaseAlive, match="'first'"):
        await at(store, NOW + LEASE - 1).revoke("a", 0)

    assert await snapshot() == before


async def test_without_force_a_lease_that_has_run_out_is_released(store: Store) -> None:
    await start(store, "first", groups=("a",))

    who = await at(store, NOW + LEASE).revoke("a", 0)

    assert who == "first"
    assert await state(store, "first") is State.QUEUED


async def test_a_forced_release_of_a_last_attempt_fails_the_job(store: Store) -> None:
    await start(store, "first", groups=("a",), max_attempts=1)

    await at(store, NOW).revoke("a", 0, force=True)

    job = await store.job("first")
    assert job.state is State.FAILED
    assert job.error is not None
    assert "all 1 attempts are used" in job.error.message


async def test_a_forced_release_of_a_job_to_be_cancelled_cancels_it(store: Store) -> None:
    await start(store, "first", groups=("a",))
    await at(store, NOW).cancel(job_id="first")

    await at(store, NOW).revoke("a", 0, force=True)

    assert await state(store, "first") is State.CANCELLED


@pytest.mark.parametrize(("group", "slot_id"), [("a", 1), ("b", 0), ("never-heard-of", 0)])
async def test_a_slot_that_nobody_holds_is_not_found(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]], group: str, slot_id: int
) -> None:
    await start(store, "first", groups=("a",))
    before = await snapshot()

    with pytest.raises(SlotNotFound, match=f"Slot {slot_id} of group '{group}'"):
        await at(store, NOW).revoke(group, slot_id, force=True)

    assert await snapshot() == before
