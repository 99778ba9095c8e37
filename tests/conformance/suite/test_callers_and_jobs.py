"""Callers and jobs compete for the same slots in one order."""

from __future__ import annotations

import pytest

from qo.job import State
from qo.store.contract import Store
from qo.values import Unlimited
from tests.conformance.suite.harness import (
    LEASE,
    NOW,
    acquire,
    at,
    claim,
    group_status,
    hand_back,
    held,
    ids,
    kinds_of,
    limit,
    pass_time,
    register,
    series,
    start,
    submit,
    submit_all,
    succeed,
)

pytestmark = pytest.mark.small_bounds


async def test_jobs_and_callers_count_together_in_a_group(store: Store) -> None:
    await limit(store, "user:u1", 2)
    await acquire(store, "h", "user:u1")
    await submit_all(store, "ab", user="u1")

    claimed = await claim(store, capacity=5)

    assert ids(claimed) == ["a"]
    assert await held(store, "user:u1") == {"user:u1": ["h", "a"]}


async def test_a_freed_slot_goes_to_a_job_before_a_caller_behind_it_when_a_worker_can_take_it(store: Store) -> None:
    await limit(store, "gpu", 1)
    lease = await start(store, "first", groups=("gpu",))
    await register(store, "w1", "work")
    await submit(store, "job", groups=("gpu",))
    await acquire(store, "caller", "gpu")

    await succeed(store, lease)

    assert await held(store, "gpu") == {"gpu": []}
    assert ids(await claim(store)) == ["job"]
    assert (await group_status(store, "gpu")).waiting == 1


async def test_a_freed_slot_does_not_wait_for_a_job_that_no_worker_can_take(store: Store) -> None:
    await limit(store, "gpu", 1)
    lease = await start(store, "first", groups=("gpu",))
    await submit(store, "job", groups=("gpu",))
    await acquire(store, "caller", "gpu")

    await succeed(store, lease)

    assert await held(store, "gpu") == {"gpu": ["caller"]}


async def test_a_freed_slot_does_not_wait_for_a_worker_without_a_free_place(store: Store) -> None:
    await limit(store, "gpu", 1)
    lease = await start(store, "first", groups=("gpu",), worker="other")
    await register(store, "w1", "work", capacity=1)
    await submit(store, "busy")
    await claim(store, worker="w1")
    await submit(store, "job", groups=("gpu",))
    await acquire(store, "caller", "gpu")

    await succeed(store, lease)

    assert await held(store, "gpu") == {"gpu": ["caller"]}


async def test_a_freed_slot_does_not_wait_for_a_worker_that_is_gone(store: Store) -> None:
    await limit(store, "gpu", 1)
    lease = await start(store, "first", groups=("gpu",), worker="other")
    await register(store, "w1", "work", lifetime_ms=1000)
    await submit(store, "job", groups=("gpu",))
    await acquire(store, "caller", "gpu")

    await succeed(store, lease, now=NOW + 1000)

    assert await held(store, "gpu") == {"gpu": ["caller"]}


async def test_a_caller_ahead_of_a_job_is_handed_the_slot(store: Store) -> None:
    await limit(store, "gpu", 1)
    lease = await start(store, "first", groups=("gpu",))
    await register(store, "w1", "work")
    await acquire(store, "caller", "gpu")
    await submit(store, "job", groups=("gpu",))

    await succeed(store, lease)

    assert await held(store, "gpu") == {"gpu": ["caller"]}
    assert await claim(store) == []


async def test_a_slot_spoken_for_by_a_job_leaves_the_other_ones_to_callers(store: Store) -> None:
    await limit(store, "gpu", 2)
    first, second = await start(store, "1", groups=("gpu",)), await start(store, "2", groups=("gpu",))
    await register(store, "w1", "work")
    await submit(store, "job", groups=("gpu",))
    await acquire(store, "caller", "gpu")

    await succeed(store, first, second)

    assert await held(store, "gpu") == {"gpu": ["caller"]}
    assert ids(await claim(store)) == ["job"]


async def test_a_caller_waits_behind_a_paused_group_and_gets_it_when_it_is_resumed(store: Store) -> None:
    await at(store, NOW).set_paused("gpu", True)
    grant = await acquire(store, "a", "gpu")

    await at(store, NOW).set_paused("gpu", False)

    assert grant.waiting
    assert await held(store, "gpu") == {"gpu": ["a"]}


@pytest.mark.parametrize("freed_by", ["raise", "remove", "hand_back", "revoke", "cancel", "expiry"])
async def test_whatever_makes_room_hands_it_over_in_the_same_step(store: Store, freed_by: str) -> None:
    await limit(store, "gpu", 1)
    lease = await start(store, "first", groups=("gpu",))
    await acquire(store, "caller", "gpu", wait_ms=2 * LEASE)

    if freed_by == "raise":
        await limit(store, "gpu", 2)
    elif freed_by == "remove":
        await at(store, NOW).set_limits([Unlimited(group="gpu")])
    elif freed_by == "hand_back":
        await hand_back(store, lease)
    elif freed_by == "revoke":
        await at(store, NOW).revoke("gpu", 0, force=True)
    elif freed_by == "cancel":
        await at(store, NOW).cancel(job_id="first")
        await hand_back(store, lease)
    else:
        await pass_time(store, since=NOW, until=NOW + LEASE)

    assert "caller" in (await held(store, "gpu"))["gpu"]
    assert "granted" in await kinds_of(store, "caller")


async def test_a_cancelled_job_in_front_lets_the_caller_behind_it_go(store: Store) -> None:
    await limit(store, "gpu", 1)
    await register(store, "w1", "work")
    await submit(store, "job", groups=("gpu",))
    waiting = await acquire(store, "caller", "gpu")

    await at(store, NOW).cancel(job_id="job")

    assert waiting.waiting
    assert await held(store, "gpu") == {"gpu": ["caller"]}


async def test_callers_do_not_stand_in_the_jobs_line(store: Store) -> None:
    await limit(store, "gpu", 0)
    await acquire(store, "caller", "gpu")
    job = await submit(store, "job")

    assert (job.position, (await store.line(limit=0)).queued) == (1, 1)
    assert (await group_status(store, "gpu")).waiting == 1


async def test_a_caller_put_aside_is_a_rejection_and_its_wait_is_counted_when_it_is_granted(store: Store) -> None:
    await limit(store, "provider:x", 1)
    first = await acquire(store, "a", "provider:x")
    await acquire(store, "b", "provider:x")
    await at(store, NOW + 3000).release([("a", first.token)])

    figures = await series(store)

    assert figures["rejected:provider"] == (1, 0)
    assert figures["acquired:provider:0"] == (1, 0)
    assert figures["acquired:provider:4"] == (1, 3000)


async def test_a_holder_may_have_the_name_of_a_job(store: Store) -> None:
    await limit(store, "gpu", 2)
    await start(store, "same", groups=("gpu",))

    grant = await acquire(store, "same", "gpu")

    assert grant.slots == {"gpu": 1}
    assert (await store.job("same")).state is State.STARTING
