"""WaitTimeEstimator: a tier's average and the base estimate on it (SPEC.md section 6)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import qo
from qo.errors import InvalidValue, UnknownTier
from qo.policy.estimates.base import duration_of_tier
from qo.queue.wait_times import WaitTimeEstimator


@pytest.mark.parametrize(("tier", "guess"), [("bootstrapper", 480), ("partner", 600), ("cto_scale", 900)])
async def test_before_any_run_a_tiers_first_guess_counts(queue: qo.Queue, tier: str, guess: float) -> None:
    estimate = await WaitTimeEstimator(queue).estimate_with_confidence(tier, 5, 2)

    assert estimate.estimate_seconds == guess * 5 / 2
    assert (estimate.basis, estimate.confidence) == ("first_guess", "low")
    assert estimate.message.endswith(" (first guess)")


async def test_the_estimate_of_the_fifth_job_at_two_workers_is_a_range_in_words(queue: qo.Queue) -> None:
    estimator = WaitTimeEstimator(queue)
    await estimator.record_completion("partner", 600)

    estimate = await estimator.estimate_with_confidence("partner", 5, 2)

    assert (estimate.lower_bound, estimate.upper_bound) == (1050, 1950)
    assert (estimate.message, estimate.confidence) == ("17 minutes-32 minutes", "medium")
    assert estimate.basis == "measured"


async def test_a_completion_moves_the_average_by_three_tenths(queue: qo.Queue) -> None:
    estimator = WaitTimeEstimator(queue)

    await estimator.record_completion("partner", 300)
    await estimator.record_completion("partner", 100)

    expected = 0.7 * (0.7 * 600 + 0.3 * 300) + 0.3 * 100
    assert (await estimator.estimate_with_confidence("partner", 1, 1)).estimate_seconds == pytest.approx(expected)
    assert (await estimator.estimate_with_confidence("cto_scale", 1, 1)).estimate_seconds == 900


async def test_no_completion_is_lost_when_many_are_recorded_at_once(queue: qo.Queue) -> None:
    estimator = WaitTimeEstimator(queue)

    await asyncio.gather(*(estimator.record_completion("partner", 60) for _ in range(50)))

    average = (await queue.store.observed([duration_of_tier("partner")])).averages[duration_of_tier("partner")]
    assert (average.count, round(average.value, 3)) == (50, 60.0)


async def test_runs_of_a_worker_move_the_same_average(queue: qo.Queue, worker: qo.Worker) -> None:
    @worker.task
    async def build() -> None: ...

    await queue.submit("build", user="ada", tier="partner")
    await worker.run_until_idle()

    estimate = await WaitTimeEstimator(queue).estimate_with_confidence("partner", 1, 1)
    assert estimate.estimate_seconds == pytest.approx(0.7 * 600, abs=1)


async def test_without_workers_the_estimate_counts_one(queue: qo.Queue) -> None:
    assert (await WaitTimeEstimator(queue).estimate_with_confidence("partner", 2, 0)).estimate_seconds == 1200


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), "60", None, True])
async def test_a_duration_that_is_none_is_refused_by_name(queue: qo.Queue, seconds: Any) -> None:
    with pytest.raises(InvalidValue, match="duration_seconds is"):
        await WaitTimeEstimator(queue).record_completion("partner", seconds)


@pytest.mark.parametrize(("position", "workers", "named"), [(0, 1, "position is 0"), (1, -1, "active_workers is -1")])
async def test_a_position_or_number_of_workers_that_cannot_be_is_refused_by_name(
    queue: qo.Queue, position: int, workers: int, named: str
) -> None:
    with pytest.raises(InvalidValue, match=named):
        await WaitTimeEstimator(queue).estimate_with_confidence("partner", position, workers)


async def test_an_unknown_tier_is_refused_and_those_there_are_are_named(queue: qo.Queue) -> None:
    estimator = WaitTimeEstimator(queue)

    with pytest.raises(UnknownTier, match="bootstrapper, cto_scale, partner"):
        await estimator.record_completion("gold", 60)
    with pytest.raises(UnknownTier, match="gold"):
        await estimator.estimate_with_confidence("gold", 1, 1)
