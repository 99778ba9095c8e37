"""The base estimate: average x position / active workers, and how sure it is (SPEC.md section 6)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qo.job import Basis, Estimate
from qo.policy.estimates.base import (
    base_estimate,
    duration_of_task,
    duration_of_tier,
    no_data,
    no_worker,
    not_known,
    starts_now,
)
from qo.settings import EstimateSettings

DEFAULTS = EstimateSettings()


def estimate(
    position: int, *, workers: int = 1, average: float = 600, settings: EstimateSettings = DEFAULTS
) -> Estimate:
    return base_estimate(position=position, active_workers=workers, average_seconds=average, settings=settings)


def test_fifth_in_line_at_two_workers_and_ten_minutes_a_job_is_17_to_32_minutes() -> None:
    assert estimate(5, workers=2, average=600) == Estimate(
        estimate_seconds=1500,
        lower_bound=1050,
        upper_bound=1950,
        message="17 minutes-32 minutes",
        confidence="medium",
        basis=Basis.MEASURED,
    )


@pytest.mark.parametrize(
    ("position", "workers", "average", "seconds"),
    [
        (1, 1, 480, 480),
        (1, 1, 600, 600),
        (1, 1, 900, 900),
        (10, 1, 600, 6000),
        (10, 5, 600, 1200),
        (3, 100, 600, 18),
        (1, 4, 0.5, 0.125),
    ],
)
def test_an_estimate_is_average_times_position_over_workers(
    position: int, workers: int, average: float, seconds: float
) -> None:
    assert estimate(position, workers=workers, average=average).estimate_seconds == pytest.approx(seconds)


@pytest.mark.parametrize("workers", [0, 1])
def test_an_estimate_counts_at_least_one_worker(workers: int) -> None:
    assert estimate(2, workers=workers, average=600).estimate_seconds == 1200


@pytest.mark.parametrize(
    ("position", "confidence"), [(1, "medium"), (5, "medium"), (9, "medium"), (10, "low"), (11, "low"), (1000, "low")]
)
def test_confidence_is_medium_under_position_ten_and_else_low(position: int, confidence: str) -> None:
    assert estimate(position).confidence == confidence


@pytest.mark.parametrize(
    ("seconds", "message"),
    [
        (1, "0 seconds-1 second"),
        (50, "35 seconds-1 minute"),
        (100, "1 minute-2 minutes"),
        (1500, "17 minutes-32 minutes"),
        (3600, "42 minutes-1h 18m"),
        (7200, "1h 24m-2h 36m"),
    ],
)
def test_the_message_is_the_range_of_the_bounds_in_words(seconds: int, message: str) -> None:
    assert estimate(1, average=seconds).message == message


@pytest.mark.parametrize(
    ("seconds", "spread", "message"),
    [
        (80, 0.2, "about 1 minute"),
        (70, 0, "about 1 minute"),
        (45.2, 0, "about 45 seconds"),
        (7230, 0.001, "about 2h 0m"),
        (1.5, 0.3, "about 1 second"),
        (0.5, 0.3, "under 1 second"),
        (0, 0.3, "under 1 second"),
    ],
)
def test_a_range_whose_ends_read_alike_is_said_once(seconds: float, spread: float, message: str) -> None:
    assert estimate(1, average=seconds, settings=EstimateSettings(spread=spread)).message == message


@pytest.mark.parametrize("position", [1, 9, 10, 1000])
def test_a_first_guess_says_so_and_is_never_trusted(position: int) -> None:
    told = base_estimate(
        position=position, active_workers=position, average_seconds=600, settings=DEFAULTS, basis=Basis.FIRST_GUESS
    )

    assert (told.estimate_seconds, told.lower_bound, told.upper_bound) == (600, 420, 780)
    assert (told.message, told.confidence, told.basis) == ("7 minutes-13 minutes (first guess)", "low", "first_guess")


@pytest.mark.parametrize(
    ("told", "message"),
    [
        (no_worker("build"), "not known yet: no worker runs task build"),
        (no_data("build"), "not known yet: no job of task build has ended, and it has no tier"),
        (not_known("group gpu is paused"), "not known yet: group gpu is paused"),
    ],
)
def test_where_nothing_is_known_there_are_no_numbers_but_the_reason(told: Estimate, message: str) -> None:
    assert told == Estimate(
        estimate_seconds=None, lower_bound=None, upper_bound=None, message=message, confidence=None, basis=None
    )


def test_the_estimate_of_a_job_that_can_start_is_now() -> None:
    told = starts_now()

    assert (told.estimate_seconds, told.message, told.basis) == (0, "now", Basis.MEASURED)


@pytest.mark.parametrize(
    ("seconds", "lower", "upper", "message"),
    [
        (5400, 3780, 7020, "1h 3m-1h 57m"),
        (10_800, 7560, 14_040, "2h 6m-3h 54m"),
        (11_400, 7980, 14_820, "2h 13m-4h 7m"),
        (21_000, 14_700, 27_300, "4h 5m-7h 35m"),
    ],
)
def test_a_bound_that_falls_on_a_whole_minute_reads_as_that_minute(
    seconds: int, lower: int, upper: int, message: str
) -> None:
    told = estimate(1, average=seconds)

    assert [told.lower_bound, told.upper_bound] == pytest.approx([lower, upper])
    assert told.message == message


def test_spread_and_confidence_follow_the_settings() -> None:
    told = estimate(3, average=100, settings=EstimateSettings(spread=0.5, medium_confidence_below_position=3))

    assert (told.lower_bound, told.upper_bound, told.confidence) == (150, 450, "low")
    assert told.message == "2 minutes-7 minutes"


@given(
    position=st.integers(1, 10**6),
    workers=st.integers(0, 10**4),
    average=st.floats(0, 10 * 365 * 86_400),
    spread=st.floats(0, 1),
)
def test_the_bounds_lie_around_the_estimate_and_are_never_negative(
    position: int, workers: int, average: float, spread: float
) -> None:
    told = estimate(position, workers=workers, average=average, settings=EstimateSettings(spread=spread))

    assert told.lower_bound is not None
    assert told.upper_bound is not None
    assert told.estimate_seconds is not None
    # Half a millisecond is what a bound may lose when it is rounded.
    assert 0 <= told.lower_bound <= told.estimate_seconds + 0.0005
    assert told.estimate_seconds - 0.0005 <= told.upper_bound


@given(position=st.integers(1, 1000), workers=st.integers(1, 100), average=st.floats(0.001, 10**6))
def test_further_back_is_later_and_more_workers_are_sooner(position: int, workers: int, average: float) -> None:
    here = seconds_at(position, workers=workers, average=average)

    assert here < seconds_at(position + 1, workers=workers, average=average)
    assert seconds_at(position, workers=workers + 1, average=average) < here


def seconds_at(position: int, *, workers: int, average: float) -> float:
    seconds = estimate(position, workers=workers, average=average).estimate_seconds
    assert seconds is not None
    return seconds


def test_tasks_and_tiers_of_the_same_name_have_averages_of_their_own() -> None:
    assert duration_of_task("partner") != duration_of_tier("partner")
    assert duration_of_task("a") != duration_of_task("b")
    assert duration_of_tier("a") != duration_of_tier("b")
