"""Ranges learnt from how earlier estimates turned out: the stated share of jobs starts inside."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qo.job import Estimate
from qo.policy.estimates.ranges import (
    NEWEST,
    Multipliers,
    edges,
    learn,
    multiplier,
    next_aim,
    quantile,
    ranged_estimate,
)
from qo.settings import EstimateSettings

DEFAULTS = EstimateSettings()


def drawn(count: int, *, seed: int = 1, bias: float = 1.0, spread: float = 0.4) -> list[float]:
    draw = random.Random(seed)
    return [bias * draw.lognormvariate(0, spread) for _ in range(count)]


def learnt_from(
    own: Sequence[float], of_all: Sequence[float] = (), settings: EstimateSettings = DEFAULTS
) -> Multipliers:
    return learn(own, of_all, settings.learnt_coverage, settings)


def share_inside(values: list[float], *, settings: EstimateSettings = DEFAULTS, after: int) -> float:
    """Of the values behind the first ones, how many lay in the range that was learnt from those before them."""
    inside = 0
    aimed_at = settings.learnt_coverage
    for index in range(after, len(values)):
        learnt = learn(values[:index], (), aimed_at, settings)
        was_inside = learnt.low <= values[index] <= learnt.high
        aimed_at = next_aim(aimed_at, was_inside=was_inside, settings=settings)
        inside += was_inside
    return inside / (len(values) - after)


def told(seconds: float, multipliers: Multipliers, *, margin: float = 10, position: int = 1) -> Estimate:
    return ranged_estimate(seconds, multipliers, margin_seconds=margin, position=position, settings=DEFAULTS)


# --- what was learnt ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9])
def test_the_stated_share_of_jobs_starts_inside(coverage: float) -> None:
    settings = EstimateSettings(learnt_coverage=coverage)

    assert share_inside(drawn(2000), settings=settings, after=100) == pytest.approx(coverage, abs=0.03)


def test_what_estimates_get_wrong_on_average_is_corrected() -> None:
    learnt = learnt_from(drawn(500, bias=2.5))

    assert learnt.middle == pytest.approx(2.5, rel=0.1)


def test_steady_work_gets_a_narrower_range_than_erratic_work() -> None:
    steady, erratic = learnt_from(drawn(300, spread=0.1)), learnt_from(drawn(300, spread=1.0))

    assert steady.high - steady.low < 0.4 < erratic.high - erratic.low


def test_with_nothing_known_the_range_is_wider_than_the_base_estimates() -> None:
    learnt = learnt_from(())

    assert learnt.low < 1 - DEFAULTS.spread
    assert learnt.middle == pytest.approx(1, abs=0.01)
    assert learnt.high > 1 + DEFAULTS.spread


def test_a_task_with_nothing_of_its_own_borrows_from_all_tasks() -> None:
    learnt = learnt_from((), drawn(500, bias=3, spread=0.1))

    assert learnt.middle == pytest.approx(3, rel=0.1)
    assert learnt.high < 4


def test_its_own_count_more_and_more() -> None:
    of_all = drawn(500, bias=3, spread=0.1)
    middles = [learnt_from([1.0] * count, of_all).middle for count in (0, 30, 100)]

    assert middles[0] > 2.5
    assert middles[1:] == [1, 1]


def test_after_a_change_of_traffic_the_share_inside_comes_back() -> None:
    values = [*drawn(1000), *drawn(2000, seed=3, bias=2, spread=0.8)]

    assert share_inside(values, after=1000) == pytest.approx(0.8, abs=0.03)


def test_what_is_long_past_does_not_count() -> None:
    newest = drawn(NEWEST)

    assert learnt_from([100.0] * 50 + newest) == learnt_from(newest)


def test_the_aim_is_higher_after_a_job_outside_and_lower_by_less_after_a_job_inside() -> None:
    after_outside = next_aim(0.8, was_inside=False, settings=DEFAULTS)
    after_inside = next_aim(0.8, was_inside=True, settings=DEFAULTS)

    assert after_outside - 0.8 == pytest.approx(4 * (0.8 - after_inside))
    assert after_inside < 0.8 < after_outside


@given(outcomes=st.lists(st.booleans(), max_size=500), coverage=st.floats(0.01, 1))
def test_what_is_aimed_at_stays_a_share(outcomes: list[bool], coverage: float) -> None:
    settings = EstimateSettings(learnt_coverage=coverage)
    aimed_at = coverage
    for was_inside in outcomes:
        aimed_at = next_aim(aimed_at, was_inside=was_inside, settings=settings)
        assert 0 < aimed_at <= 1


@given(
    own=st.lists(st.floats(1e-6, 1e6), max_size=60),
    of_all=st.lists(st.floats(1e-6, 1e6), max_size=60),
    coverage=st.floats(0.01, 1),
    spread=st.floats(0, 1),
)
def test_the_middle_lies_between_the_edges_whatever_was_seen(
    own: list[float], of_all: list[float], coverage: float, spread: float
) -> None:
    learnt = learnt_from(own, of_all, EstimateSettings(learnt_coverage=coverage, spread=spread))

    assert 0 < learnt.low <= learnt.middle <= learnt.high < math.inf


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=50).map(sorted), st.floats(0, 1))
def test_a_quantile_lies_within_the_sample(sample: list[float], share: float) -> None:
    assert sample[0] <= quantile(sample, share) <= sample[-1] * (1 + 1e-12)


def test_a_small_sample_gets_wider_edges_for_being_small() -> None:
    sample = [float(number) for number in range(1, 10)]

    assert edges(sample, 0.8) == (1, 9)  # of one more value, a tenth is expected below 1 and a tenth above 9


# --- what is told ---------------------------------------------------------------------------------------------


def test_an_estimate_lies_in_its_range_and_says_it_in_words() -> None:
    estimate = told(590, Multipliers(low=0.5, middle=1.1, high=2))

    assert (estimate.lower_bound, estimate.estimate_seconds, estimate.upper_bound) == (290, 650, 1190)
    assert estimate.message == "4 minutes-19 minutes"


def test_a_wait_is_never_negative() -> None:
    estimate = told(0, Multipliers(low=0.5, middle=0.9, high=1.5))

    assert (estimate.lower_bound, estimate.estimate_seconds, estimate.upper_bound) == (0, 0, 5)


@pytest.mark.parametrize(("position", "confidence"), [(1, "medium"), (9, "medium"), (10, "low")])
def test_confidence_is_that_of_the_base_estimate(position: int, confidence: str) -> None:
    assert told(60, Multipliers(low=1, middle=1, high=1), position=position).confidence == confidence


def test_a_promise_that_came_true_is_multiplied_by_one() -> None:
    assert multiplier(promised_seconds=100, actual_seconds=100, margin_seconds=10) == 1


def test_a_second_more_than_none_promised_is_no_disaster() -> None:
    assert multiplier(promised_seconds=0, actual_seconds=1, margin_seconds=10) == pytest.approx(1.1)


@given(promised=st.floats(0, 1e6), actual=st.floats(0, 1e6), margin=st.floats(0.1, 1e4))
def test_a_promise_multiplied_by_what_was_learnt_of_it_is_right(promised: float, actual: float, margin: float) -> None:
    right = multiplier(promised_seconds=promised, actual_seconds=actual, margin_seconds=margin)

    estimate = told(promised, Multipliers(low=right, middle=right, high=right), margin=margin)

    assert estimate.estimate_seconds == pytest.approx(actual, abs=0.01, rel=1e-6)
