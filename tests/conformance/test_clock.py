"""Only the store's clock decides, and it may have been away, or jump."""

from __future__ import annotations

import pytest
from harness import (
    HOUR,
    LEASE,
    NOW,
    SECOND,
    acquire,
    catch_up,
    claim,
    hand_back,
    ids,
    limit,
    pass_time,
    renew,
    start,
    state,
    submit,
)

from qo.job import State
from qo.store.base import Store

pytestmark = pytest.mark.small_bounds

TWO_THIRDS = LEASE * 2 // 3


async def test_reclaim_after_a_gap_comes_half_a_lease_later_once(store: Store) -> None:
    """Nobody could renew while the store was away: they get the time to do so now."""
    await start(store, "a")
    back = NOW + 10 * LEASE

    at_once = await catch_up(store, now=back)
    just_before = await catch_up(store, now=back + LEASE // 2 - 1)
    then = await catch_up(store, now=back + LEASE // 2)

    assert (at_once, just_before, then) == ([], [], ["a"])


async def test_a_gap_of_two_thirds_of_a_lease_is_not_yet_one(store: Store) -> None:
    await start(store, "a")

    await catch_up(store, now=NOW + TWO_THIRDS)
    recovered = await catch_up(store, now=NOW + LEASE)

    assert recovered == ["a"]


async def test_a_gap_of_more_than_two_thirds_of_a_lease_is_one(store: Store) -> None:
    await start(store, "a")

    await catch_up(store, now=NOW + TWO_THIRDS + 1)
    delayed = await catch_up(store, now=NOW + LEASE)
    recovered = await catch_up(store, now=NOW + TWO_THIRDS + 1 + LEASE // 2)

    assert (delayed, recovered) == ([], ["a"])


async def test_a_worker_that_renews_after_a_gap_keeps_its_job(store: Store) -> None:
    lease = await start(store, "a")
    back = NOW + 10 * LEASE

    await catch_up(store, now=back)
    held = await renew(store, lease, now=back + 10 * SECOND)
    await pass_time(store, since=back + 10 * SECOND, until=back + LEASE)

    assert held == [True]
    assert await state(store, "a") is State.STARTING


async def test_renewals_note_the_time_so_a_busy_store_has_no_gaps(store: Store) -> None:
    await start(store, "dead")
    alive = await start(store, "alive")
    for at in range(100 * SECOND, LEASE, 100 * SECOND):
        await renew(store, alive, now=NOW + at)

    recovered = await catch_up(store, now=NOW + LEASE)

    assert recovered == ["dead"]


async def test_the_first_step_of_a_new_store_is_no_gap(store: Store) -> None:
    await submit(store, "a", run_at_ms=NOW)

    assert ids(await claim(store, now=NOW)) == ["a"]
    await catch_up(store, now=NOW + 100 * SECOND)
    await catch_up(store, now=NOW + 200 * SECOND)
    assert await catch_up(store, now=NOW + LEASE) == ["a"]


async def test_due_jobs_join_after_a_gap_without_delay(store: Store) -> None:
    await catch_up(store, now=NOW)
    await submit(store, "a", run_at_ms=NOW + HOUR)

    assert await catch_up(store, now=NOW + 5 * HOUR) == ["a"]


async def test_a_clock_that_fell_back_by_more_than_a_lease_takes_all_ends_with_it(store: Store) -> None:
    await start(store, "a")
    earlier = NOW - HOUR

    await catch_up(store, now=earlier)
    before_its_end = await pass_time(store, since=earlier, until=earlier + LEASE - 1)
    at_its_end = await catch_up(store, now=earlier + LEASE)

    assert (before_its_end, at_its_end) == ([], ["a"])


async def test_a_clock_that_fell_back_by_less_leaves_ends_where_they_are(store: Store) -> None:
    await start(store, "a")
    earlier = NOW - LEASE

    recovered = await pass_time(store, since=earlier, until=NOW + LEASE - 1)
    then = await catch_up(store, now=NOW + LEASE)

    assert (recovered, then) == ([], ["a"])


async def test_a_clock_that_fell_back_takes_waiting_callers_and_closed_groups_with_it(store: Store) -> None:
    await limit(store, "gpu", 0)
    await acquire(store, "caller", "gpu", wait_ms=60 * SECOND)
    lease = await start(store, "a", task="work", groups=("bucket",))
    await hand_back(store, lease, closed={"bucket": NOW + 30 * SECOND})
    earlier = NOW - HOUR

    await catch_up(store, now=earlier)
    closed = await claim(store, now=earlier + 29 * SECOND)
    opened = await claim(store, now=earlier + 30 * SECOND)
    alive = (await store.group("gpu")).waiting
    await catch_up(store, now=earlier + 60 * SECOND)

    assert (closed, ids(opened), alive) == ([], ["a"], 1)
    assert (await store.group("gpu")).waiting == 0


async def test_tokens_grow_across_a_clock_that_fell_back(store: Store) -> None:
    first = await start(store, "a")

    second = await start(store, "b", now=NOW - HOUR)

    assert int(second.token) == int(first.token) + 1


@pytest.mark.parametrize("at", [NOW - HOUR, NOW + 365 * 24 * HOUR])
async def test_a_jump_of_the_clock_loses_no_job(store: Store, at: int) -> None:
    await start(store, "runs")
    await submit(store, "queued")
    await submit(store, "later", run_at_ms=NOW + HOUR)

    await catch_up(store, now=at)
    await pass_time(store, since=at, until=at + 2 * HOUR)

    states = {job.id: job.state for job in await store.jobs()}
    assert states == dict.fromkeys(("runs", "queued", "later"), State.QUEUED)


async def test_reclaim_happens_although_everybody_looks_less_often_than_leases_last(store: Store) -> None:
    await start(store, "job", task="work")
    looks = [NOW + number * 5 * LEASE for number in range(1, 4)]

    claimed = [ids(await claim(store, now=look)) for look in looks]

    assert claimed[:2] == [[], ["job"]]
