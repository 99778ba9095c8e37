"""Only the store's clock decides, and it may have been away, or jump. `store/__init__.py` says what counts."""

from __future__ import annotations

import pytest

from qo.job import State
from qo.store.contract import Store
from qo.values import Renewal, TaskOptions
from tests.conformance.suite.harness import (
    DAY,
    HOUR,
    LEASE,
    MIDNIGHT,
    NOW,
    SECOND,
    acquire,
    at,
    catch_up,
    claim,
    finish,
    group_status,
    hand_back,
    ids,
    limit,
    line,
    pass_time,
    register,
    renew,
    standing,
    start,
    state,
    submit,
)

pytestmark = pytest.mark.small_bounds

GAP = LEASE // 2 + 1


async def looks(store: Store, *times: int) -> list[list[str]]:
    """What upkeep at each of these times finds over or due."""
    return [await catch_up(store, now=at) for at in times]


# --- gaps -------------------------------------------------------------------------------------------------------


async def test_reclaim_after_a_gap_takes_the_time_that_the_lease_had_left(store: Store) -> None:
    """Nobody could renew while the store was away: they get the time to do so now."""
    await start(store, "a")
    await catch_up(store, now=NOW + 100 * SECOND)
    back = NOW + 10 * LEASE

    found = await looks(store, back, back + 100 * SECOND, back + 200 * SECOND - 1, back + 200 * SECOND)

    assert found == [[], [], [], ["a"]]


async def test_half_a_lease_without_a_look_is_no_gap(store: Store) -> None:
    await start(store, "a")

    assert await looks(store, NOW + LEASE // 2, NOW + LEASE) == [[], ["a"]]


async def test_more_than_half_a_lease_without_a_look_is_a_gap_and_counts_for_nothing(store: Store) -> None:
    await start(store, "a")

    assert await looks(store, NOW + GAP, NOW + GAP + 100 * SECOND) == [[], []]
    assert await looks(store, NOW + GAP + 250 * SECOND - 1) == [[]]
    assert await pass_time(store, since=NOW + GAP + 250 * SECOND, until=NOW + GAP + LEASE) == ["a"]


async def test_a_worker_that_renews_after_a_gap_keeps_its_job(store: Store) -> None:
    lease = await start(store, "a")
    back = NOW + 10 * LEASE

    await catch_up(store, now=back)
    held = await renew(store, lease, now=back + 10 * SECOND)
    await pass_time(store, since=back + 10 * SECOND, until=back + LEASE)

    assert held == [True]
    assert await state(store, "a") is State.STARTING


async def test_a_store_that_is_away_twice_costs_no_live_worker_its_lease(store: Store) -> None:
    """Leases of 300 s, away for 240 s, back for 20 s, away for 340 s."""
    lease = await start(store, "a")
    await renew(store, lease, now=NOW + 10 * SECOND)
    back = NOW + 250 * SECOND
    await renew(store, lease, now=back)
    back_again = back + (20 + 340) * SECOND

    found = await catch_up(store, now=back_again)
    held = await renew(store, lease, now=back_again + SECOND)

    assert (found, held) == ([], [True])


async def test_a_lease_that_began_between_two_outages_outlives_the_second(store: Store) -> None:
    """It was not due for a renewal yet, and nothing else was renewed in between."""
    await start(store, "dead")
    back = NOW + 2 * LEASE
    await catch_up(store, now=back)
    young = await start(store, "young", now=back + SECOND)
    back_again = back + 3 * LEASE

    found = await catch_up(store, now=back_again)
    held = await renew(store, young, now=back_again + SECOND)

    assert (found, held) == (["dead"], [True])


async def test_reclaim_happens_although_everybody_looks_less_often_than_leases_last(store: Store) -> None:
    await start(store, "job", task="work")

    claimed = [ids(await claim(store, now=NOW + number * 5 * LEASE)) for number in range(1, 4)]

    assert claimed[:2] == [[], ["job"]]


async def test_reclaim_happens_although_others_claim_and_finish_at_each_of_their_rare_looks(store: Store) -> None:
    """A script that runs once an hour: none of its leases lives until the next time, and none is renewed."""
    await start(store, "dead")
    recovered = []
    for number in range(1, 4):
        at = NOW + number * HOUR
        recovered += await catch_up(store, now=at)
        await finish(store, await start(store, f"job-{number}", now=at), State.SUCCEEDED, now=at + SECOND)

    assert recovered == ["dead"]


async def test_long_leases_that_are_renewed_seldom_do_not_stop_time_for_the_dead(store: Store) -> None:
    """Semaphores only, renewed every twenty minutes: every renewal ends a gap."""
    dead = await acquire(store, "dead", "user:u1", lease_ms=HOUR)
    living = await acquire(store, "living", "user:u1", lease_ms=HOUR)
    assert dead.token is not None
    assert living.token is not None
    for number in range(1, 7):
        now = NOW + number * 20 * 60 * SECOND
        (held,) = (await at(store, now).renew([Renewal(holder="living", token=living.token, lease_ms=HOUR)])).held
        await catch_up(store, now=now)
        assert not held.lost

    assert (await group_status(store, "user:u1")).active == 1


async def test_what_a_gap_is_follows_from_the_lease_of_the_worker_registered_last(store: Store) -> None:
    await register(store, "w1", TaskOptions(name="work"), lease_ms=20 * SECOND)
    await start(store, "a")
    short = NOW + 11 * SECOND

    found = await looks(store, short, short + 9 * SECOND, short + 10 * SECOND + LEASE)

    assert found == [[], [], ["a"]]  # the first gap counts for nothing, the second shows that nobody renews


async def test_a_short_lease_of_a_caller_ends_in_time_whatever_the_jobs_leases_are(store: Store) -> None:
    """A semaphore of one second, asked for again two seconds later."""
    await limit(store, "user:u1", 1)
    await acquire(store, "first", "user:u1", lease_ms=SECOND, wait_ms=0)

    second = await acquire(store, "second", "user:u1", lease_ms=SECOND, wait_ms=0, now=NOW + 2 * SECOND)

    assert second.token is not None


async def test_renewals_note_the_time_so_a_busy_store_has_no_gaps(store: Store) -> None:
    await start(store, "dead")
    alive = await start(store, "alive")
    for later in range(100 * SECOND, LEASE, 100 * SECOND):
        await renew(store, alive, now=NOW + later)

    recovered = await catch_up(store, now=NOW + LEASE)

    assert recovered == ["dead"]


async def test_an_idle_worker_that_renews_its_registration_notes_the_time(store: Store) -> None:
    await start(store, "dead")
    for later in range(10 * SECOND, LEASE, 10 * SECOND):
        await at(store, NOW + later).renew([], worker="idle")

    assert await catch_up(store, now=NOW + LEASE) == ["dead"]


async def test_the_first_step_of_a_new_store_is_no_gap(store: Store) -> None:
    await submit(store, "a", run_at_ms=NOW)

    assert ids(await claim(store, now=NOW)) == ["a"]
    assert await looks(store, NOW + 100 * SECOND, NOW + 200 * SECOND, NOW + LEASE) == [[], [], ["a"]]


@pytest.mark.parametrize("wait", [{"run_at_ms": NOW + HOUR}, {"delay_ms": HOUR}])
async def test_due_jobs_join_after_a_gap_without_delay(store: Store, wait: dict[str, int]) -> None:
    """Also those with a span: nobody may have been there, and a day is a day."""
    await catch_up(store, now=NOW)
    await submit(store, "a", **wait)

    assert await catch_up(store, now=NOW + 5 * HOUR) == ["a"]


# --- falls ------------------------------------------------------------------------------------------------------


async def test_a_clock_that_fell_back_by_more_than_a_lease_takes_all_ends_with_it(store: Store) -> None:
    await start(store, "a")
    earlier = NOW - HOUR

    await catch_up(store, now=earlier)
    before_its_end = await pass_time(store, since=earlier, until=earlier + LEASE - 1)
    at_its_end = await catch_up(store, now=earlier + LEASE)

    assert (before_its_end, at_its_end) == ([], ["a"])


async def test_the_end_of_a_lease_is_told_by_the_clock_as_it_stands(store: Store) -> None:
    await limit(store, "gpu", 1)
    lease = await start(store, "a", groups=("gpu",))
    earlier = NOW - HOUR

    await catch_up(store, now=earlier)

    (slot,) = (await group_status(store, "gpu")).slots
    assert slot.expires_at.timestamp() * 1000 == earlier + LEASE
    (again,) = await store.leases()
    assert again.expires_at_ms == earlier + LEASE == lease.expires_at_ms - HOUR


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
    await hand_back(store, lease, closed={"bucket": 30 * SECOND})
    earlier = NOW - HOUR

    await catch_up(store, now=earlier)
    told = (await group_status(store, "bucket")).closed_until
    closed = await claim(store, now=earlier + 29 * SECOND)
    opened = await claim(store, now=earlier + 30 * SECOND)
    alive = (await group_status(store, "gpu")).waiting
    await catch_up(store, now=earlier + 60 * SECOND)

    assert told is not None
    assert told.timestamp() * 1000 == earlier + 30 * SECOND
    assert (closed, ids(opened), alive) == ([], ["a"], 1)
    assert (await group_status(store, "gpu")).waiting == 0


async def test_a_clock_that_fell_back_takes_spans_with_it_but_no_times(store: Store) -> None:
    await submit(store, "delay", delay_ms=60 * SECOND)
    await submit(store, "time", run_at_ms=NOW + 60 * SECOND)
    lease = await start(store, "retry")
    await finish(store, lease, State.SCHEDULED, retry_after_ms=60 * SECOND)
    earlier = NOW - HOUR

    found = await looks(store, earlier, earlier + 60 * SECOND - 1, earlier + 60 * SECOND)

    assert found == [[], [], ["delay", "retry"]]
    assert await pass_time(store, since=earlier, until=NOW + 60 * SECOND) == ["time"]


async def test_a_phase_with_a_delay_waits_for_its_span_across_a_clock_that_fell_back(store: Store) -> None:
    one = await start(store, "one", parent="app", phase=1)
    await submit(store, "two", parent="app", phase=2, delay_ms=60 * SECOND)
    earlier = NOW - HOUR

    await finish(store, one, State.SUCCEEDED, now=NOW)
    found = await looks(store, NOW, earlier, earlier + 60 * SECOND - 1, earlier + 60 * SECOND)

    assert found == [[], [], [], ["two"]]


async def test_a_phase_released_after_its_delay_joins_at_once(store: Store) -> None:
    one = await start(store, "one", parent="app", phase=1)
    await submit(store, "two", parent="app", phase=2, delay_ms=60 * SECOND)

    await finish(store, one, State.SUCCEEDED, now=NOW + 60 * SECOND)

    assert await line(store) == ["two"]


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

    states = {job.id: job.state for job in (await store.jobs()).jobs}
    assert states == dict.fromkeys(("runs", "queued", "later"), State.QUEUED)


# --- spans ------------------------------------------------------------------------------------------------------


async def test_a_delay_begins_with_the_step_that_stores_it(store: Store) -> None:
    job = await submit(store, "a", delay_ms=60 * SECOND, now=NOW + 7)

    assert job.state is State.SCHEDULED
    assert job.run_at is not None
    assert round(job.run_at.timestamp() * 1000) == NOW + 7 + 60 * SECOND
    assert await looks(store, NOW + 6 + 60 * SECOND, NOW + 7 + 60 * SECOND) == [[], ["a"]]


async def test_no_delay_joins_the_line_at_once(store: Store) -> None:
    assert (await submit(store, "a", delay_ms=0)).state is State.QUEUED


async def test_a_retry_waits_from_the_step_that_stores_it(store: Store) -> None:
    lease = await start(store, "a")

    await finish(store, lease, State.SCHEDULED, retry_after_ms=SECOND, now=NOW + 7)

    assert await looks(store, NOW + 6 + SECOND, NOW + 7 + SECOND) == [[], ["a"]]


async def test_times_and_spans_that_are_due_together_join_in_one_order(store: Store) -> None:
    await submit(store, "third", run_at_ms=NOW + 3 * SECOND)
    await submit(store, "second", delay_ms=2 * SECOND)
    await submit(store, "first", run_at_ms=NOW + SECOND)
    await submit(store, "fourth", delay_ms=3 * SECOND)

    await catch_up(store, now=NOW + HOUR)

    assert await line(store) == ["first", "second", "third", "fourth"]


async def test_a_delay_over_quota_becomes_the_time_of_a_later_day(store: Store) -> None:
    await submit(store, "a", user="u1", standing=standing(daily_quota=1))
    job = await submit(store, "b", user="u1", delay_ms=HOUR, quota_jitter_ms=5)

    assert job.deferred
    assert job.run_at is not None
    assert round(job.run_at.timestamp() * 1000) == MIDNIGHT + DAY + 5
    assert await pass_time(store, since=MIDNIGHT + DAY, until=MIDNIGHT + DAY + 5) == ["b"]
