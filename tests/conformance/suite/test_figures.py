"""Figures: what was submitted, waited, ran, was taken and refused; averages and errors of estimates."""

from __future__ import annotations

import pytest

from qo.job import State
from qo.store.contract import Store
from qo.values import Average, Mean, SeriesPoint, UpkeepRules
from tests.conformance.suite.harness import (
    BROKEN,
    HOUR,
    MINUTE,
    NOW,
    SECOND,
    acquire,
    at,
    claim,
    fail,
    finish,
    hand_back,
    limit,
    outcome,
    retry_later,
    series,
    standing,
    start,
    submit,
    submit_all,
    succeed,
    try_submit,
)

MOVING = Average(name="task:work", first=600.0, weight=0.3)


# --- series -----------------------------------------------------------------------------------------------------


async def test_figures_are_kept_by_name_and_minute(store: Store) -> None:
    await submit_all(store, "ab", now=NOW)
    await submit(store, "c", now=NOW + 59 * SECOND)
    await submit(store, "d", now=NOW + MINUTE)

    assert await store.series(prefix="submitted") == (
        SeriesPoint(name="submitted", minute=NOW // MINUTE, count=3, total_ms=0),
        SeriesPoint(name="submitted", minute=NOW // MINUTE + 1, count=1, total_ms=0),
    )


async def test_figures_are_read_by_name_and_from_a_minute_on(store: Store) -> None:
    await submit(store, "a")
    await claim(store)
    await submit(store, "b", now=NOW + MINUTE)

    since = await store.series(since_minute=NOW // MINUTE + 1)

    assert {point.name for point in await store.series()} == {"submitted", "wait:50", "depth"}
    assert [(point.name, point.count) for point in since] == [("depth", 1), ("submitted", 1)]
    assert await store.series(prefix="wait:7") == ()


async def test_a_known_or_refused_submit_is_not_counted(store: Store) -> None:
    await submit(store, "a")
    await submit(store, "a")
    await try_submit(store, "b", cap=1)

    assert await series(store, "submitted") == {"submitted": (1, 0)}


async def test_the_wait_of_each_start_is_counted_under_the_jobs_own_priority(store: Store) -> None:
    await submit_all(store, "ab")
    await submit(store, "low", priority=70)
    await at(store, NOW + HOUR).upkeep(UpkeepRules(aging_period_ms=HOUR))

    await claim(store, capacity=2, now=NOW + 2000)
    await claim(store, now=NOW + 5000)

    assert await series(store, "wait:") == {"wait:50": (2, 4000), "wait:70": (1, 5000)}


@pytest.mark.parametrize("state", [State.SUCCEEDED, State.FAILED, State.CANCELLED, State.SCHEDULED])
async def test_the_end_of_a_run_is_counted_with_how_long_it_ran(store: Store, state: State) -> None:
    lease = await start(store, "a")

    await finish(store, lease, state, error=BROKEN, retry_after_ms=HOUR, now=NOW + 1500)

    assert await series(store, "ended:") == {f"ended:{state.value}": (1, 1500)}


async def test_a_job_cancelled_while_it_waits_ran_no_time(store: Store) -> None:
    await submit(store, "a")

    await at(store, NOW + 1500).cancel(job_id="a")

    assert await series(store, "ended:") == {"ended:cancelled": (1, 0)}


async def test_a_job_handed_back_has_not_ended(store: Store) -> None:
    await hand_back(store, await start(store, "a"))

    assert await series(store, "ended:") == {}


async def test_a_lane_counts_once_each_time_it_is_put_aside(store: Store) -> None:
    await limit(store, "user:u1", 1)
    await limit(store, "gpu", 0)
    lease = await start(store, "holder", user="u1")
    await submit_all(store, "ab", user="u1", groups=("gpu",))
    at_submit = await series(store, "rejected:")
    await claim(store, capacity=5)
    when_parked_already = await series(store, "rejected:")
    await succeed(store, lease)
    await claim(store, capacity=5)
    await claim(store, capacity=5)

    assert at_submit == when_parked_already == {"rejected:user": (1, 0)}
    assert await series(store, "rejected:") == {"rejected:user": (1, 0), "rejected:gpu": (1, 0)}


async def test_groups_of_a_reserved_kind_are_summed(store: Store) -> None:
    for number in range(5):
        await limit(store, f"user:u{number}", 1)
        await start(store, f"j{number}", user=f"u{number}")

    assert await series(store, "acquired:") == {"acquired:user:0": (5, 0)}


async def test_only_limited_groups_count_as_acquired(store: Store) -> None:
    await limit(store, "gpu", 2)
    await limit(store, "global", 9)
    await start(store, "a", user="u1", groups=("gpu", "free"))

    assert await series(store, "acquired:") == {"acquired:gpu:0": (1, 0), "acquired:global:0": (1, 0)}


@pytest.mark.parametrize(
    ("waited_ms", "bucket"),
    [
        (0, 0),
        (1, 1),
        (1000, 1),
        (1001, 2),
        (2000, 2),
        (2001, 4),
        (5000, 8),
        (64_000, 64),
        (64_001, 128),
        (65_536_000, 65536),
        (99_999_999, 65536),
    ],
)
async def test_the_wait_for_a_slot_is_counted_by_seconds_rounded_up_to_a_power_of_two(
    store: Store, waited_ms: int, bucket: int
) -> None:
    await limit(store, "gpu", 1)
    await submit(store, "a", groups=("gpu",))

    await claim(store, now=NOW + waited_ms)

    assert await series(store, "acquired:") == {f"acquired:gpu:{bucket}": (1, waited_ms)}


async def test_callers_count_like_jobs(store: Store) -> None:
    await limit(store, "providers", 1)
    await acquire(store, "a", "provider:free", "providers")
    await acquire(store, "b", "provider:free", "providers")

    assert await series(store) == {"acquired:providers:0": (1, 0), "rejected:providers": (1, 0)}


async def test_a_retry_is_counted_as_such_and_the_last_one_as_failed(store: Store) -> None:
    await submit(store, "a", max_attempts=2)
    (lease,) = await claim(store)
    await retry_later(store, lease, at=NOW + 1)
    (lease,) = await claim(store, now=NOW + 1)
    await retry_later(store, lease, at=NOW + 2, now=NOW + 1)

    assert await series(store, "ended:") == {"ended:scheduled": (1, 0), "ended:failed": (1, 0)}


# --- averages ---------------------------------------------------------------------------------------------------


async def test_an_average_starts_from_its_first_value_and_moves_by_its_weight(store: Store) -> None:
    await store.observe([(MOVING, 100.0)])
    await store.observe([(MOVING, 200.0)])

    mean = (await store.observed(["task:work"])).averages["task:work"]
    value = 600 + 0.3 * (100 - 600)
    square = 600**2 + 0.3 * (100**2 - 600**2)
    assert mean.count == 2
    assert mean.value == pytest.approx(value + 0.3 * (200 - value))
    assert mean.square == pytest.approx(square + 0.3 * (200**2 - square))


async def test_a_run_that_succeeded_moves_its_averages_by_its_seconds(store: Store) -> None:
    tier = Average(name="tier:partner", first=10.0, weight=1.0)
    lease = await start(store, "a", user="u1", standing=standing())

    await at(store, NOW + 90_500).finish([outcome(lease, State.SUCCEEDED, averages=(MOVING, tier))])

    means = (await store.observed(["task:work", "tier:partner"])).averages
    assert means["tier:partner"] == Mean(value=90.5, square=90.5**2, count=1)
    assert means["task:work"].value == pytest.approx(600 + 0.3 * (90.5 - 600))


@pytest.mark.parametrize("state", [State.FAILED, State.CANCELLED, State.QUEUED, State.SCHEDULED, State.CONFIRMING])
async def test_a_run_that_did_not_succeed_moves_no_average(store: Store, state: State) -> None:
    lease = await start(store, "a")

    await finish(store, lease, state, averages=(MOVING,), retry_after_ms=HOUR, error=BROKEN)

    assert (await store.observed(["task:work"])).averages == {}


async def test_a_repeated_finish_moves_an_average_once(store: Store) -> None:
    lease = await start(store, "a")
    done = outcome(lease, State.SUCCEEDED, averages=(MOVING,))

    await at(store, NOW).finish([done])
    await at(store, NOW).finish([done])

    assert (await store.observed(["task:work"])).averages["task:work"].count == 1


async def test_only_averages_that_exist_are_answered(store: Store) -> None:
    await store.observe([(MOVING, 1.0)])

    assert list((await store.observed(["tier:none", "task:work"])).averages) == ["task:work"]
    assert (await store.observed([])).averages == {}


async def test_averages_do_not_move_each_other(store: Store) -> None:
    other = Average(name="task:mail", first=0.0, weight=1.0)

    await store.observe([(MOVING, 600.0), (other, 5.0), (other, 7.0)])

    means = (await store.observed(["task:work", "task:mail"])).averages
    assert means["task:mail"] == Mean(value=7.0, square=49.0, count=2)
    assert means["task:work"].value == pytest.approx(600.0)


# --- errors of estimates ----------------------------------------------------------------------------------------


async def test_the_newest_errors_of_a_tasks_estimates_are_kept_oldest_first(store: Store) -> None:
    await store.observe(errors={"work": [1.0, 2.0, 3.0]}, keep_errors=4)
    await store.observe(errors={"work": [4.0, 5.0]}, keep_errors=4)
    await store.observe(errors={"mail": [9.0]})

    assert (await store.observed(tasks=["work"])).errors["work"] == (2.0, 3.0, 4.0, 5.0)
    assert (await store.observed(tasks=["mail"])).errors["mail"] == (9.0,)
    assert (await store.observed(tasks=["none"])).errors["none"] == ()


async def test_more_errors_at_once_than_are_kept_leave_the_newest(store: Store) -> None:
    await store.observe(errors={"work": [float(number) for number in range(10)]}, keep_errors=3)

    assert (await store.observed(tasks=["work"])).errors["work"] == (7.0, 8.0, 9.0)


async def test_a_job_that_failed_is_counted_where_it_ended(store: Store) -> None:
    await fail(store, await start(store, "a"), now=NOW + MINUTE)

    (point,) = await store.series(prefix="ended:failed")
    assert (point.minute, point.total_ms) == (NOW // MINUTE + 1, MINUTE)
