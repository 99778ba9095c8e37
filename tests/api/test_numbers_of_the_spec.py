"""Every number of SPEC.md sections 4 (admission) and 6 (wait times), each row with the rule it checks.

What a row measures is what users meet: jobs that start, are deferred or refused, and what they are told.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

import qo
from qo.job import State
from qo.policy.words import scheduled_message, span
from qo.settings import BUILT_IN_TIERS, Settings
from tests.limits.measures import (
    URL,
    active_workers,
    admitted_of_a_hundred_at_99,
    answer_at_a_full_line,
    average_after,
    average_after_a_run_of_no_time,
    base,
    charged_for_a_refused_submit,
    days_ahead,
    deferred_after_midnight_seconds,
    first_guess,
    first_guess_of_a_refusal,
    is_admitted,
    iterations_remaining_after_a_batch,
    iterations_until,
    joined_on_one_day,
    nudge,
    passed,
    refusal_minutes,
    refused_minutes,
    resets_at,
    started_of_a_project,
    started_of_a_user,
    usage_after,
)

TIERS = ("bootstrapper", "partner", "cto_scale")
Measure = Callable[[qo.Queue], Awaitable[Any]]


def for_each_tier(rule: str, measure: Callable[..., Awaitable[Any]], *expected: Any) -> list[Any]:
    """One row a tier, in the order of the table's columns."""
    return [
        pytest.param(partial(measure, tier=tier), number, id=f"{rule}, {tier}")
        for tier, number in zip(TIERS, expected, strict=True)
    ]


def row(rule: str, measure: Callable[..., Any], expected: Any) -> Any:
    return pytest.param(measure, expected, id=rule)


# --- section 4 ------------------------------------------------------------------------------------------------

ADMISSION: list[Any] = [
    *for_each_tier("4: running at once per user", started_of_a_user, 2, 3, 10),
    *for_each_tier("4: running at once per project", started_of_a_project, 2, 3, 5),
    *for_each_tier("4: jobs a day", joined_on_one_day, 5, 50, 200),
    *for_each_tier("4: boost (places)", passed, 0, 2, 5),
    *for_each_tier("4: iterations before confirmation", partial(iterations_until, wanted=State.CONFIRMING), 2, 3, 5),
    *for_each_tier("4: iterations at most, 3 batches", partial(iterations_until, wanted=State.FAILED), 6, 9, 15),
    *for_each_tier("4: first guess of a job's duration in seconds", first_guess, 480, 600, 900),
    row("4: first guess without a tier in seconds", partial(first_guess_of_a_refusal, tier=None), 600),
    row("4: qo works without any tier: no boost", partial(passed, tier=None), 0),
    row("4: over the quota, midnight UTC plus 0 s of jitter", partial(deferred_after_midnight_seconds, draw=0), 0),
    row("4: midnight UTC of every day", partial(deferred_after_midnight_seconds, draw=0, noon_of_day=123), 0),
    row("4: jitter is drawn evenly", partial(deferred_after_midnight_seconds, draw=0.25), 900),
    row("4: jitter of 3600 s at most", partial(deferred_after_midnight_seconds, draw=1), 3600),
    row("4: the fifth of 5 a day joins today", partial(days_ahead, number=5), 0),
    row("4: the sixth of 5 a day is for tomorrow", partial(days_ahead, number=6), 1),
    row("4: what is scheduled uses up that day: the tenth, tomorrow", partial(days_ahead, number=10), 1),
    row("4: the next reset that has room: the eleventh, a day later", partial(days_ahead, number=11), 2),
    row("4: at 99 in line a submit with a tier is admitted", partial(is_admitted, in_line=99, tier="partner"), True),
    row("4: at 100 in line a submit with a tier is refused", partial(is_admitted, in_line=100, tier="partner"), False),
    row("4: at 100 in line one without a tier is admitted", partial(is_admitted, in_line=100, tier=None), True),
    row(
        "4: cap_applies_to all: refused without a tier too",
        partial(is_admitted, in_line=100, tier=None, cap_applies_to="all"),
        False,
    ),
    row(
        "4: cap_applies_to all: admitted at 99",
        partial(is_admitted, in_line=99, tier=None, cap_applies_to="all"),
        True,
    ),
    row("4: try again: 1 x 480 s / 1 place", partial(refused_minutes, in_line=100, tier="bootstrapper"), 15),
    row("4: try again: 1 x 600 s / 1 place", partial(refused_minutes, in_line=100, tier="partner"), 15),
    row("4: try again: 1 x 900 s / 1 place is 15 exactly", partial(refused_minutes, in_line=100, tier="cto_scale"), 15),
    row("4: try again: 2 x 900 s / 1 place", partial(refused_minutes, in_line=101, tier="cto_scale"), 30),
    row("4: try again: 2 x 600 s / 1 place, rounded up", partial(refused_minutes, in_line=101, tier="partner"), 30),
    row("4: try again: 3 x 600 s / 1 place is 30 exactly", partial(refused_minutes, in_line=102, tier="partner"), 30),
    row("4: try again: 6 x 600 s / 1 place", partial(refused_minutes, in_line=105, tier="partner"), 60),
    row("4: try again: 6 x 600 s / 4", partial(refused_minutes, in_line=105, tier="partner", capacity=4), 15),
    row("4: a hundred simultaneous submits at 99 of 100 admit exactly one", admitted_of_a_hundred_at_99, 1),
    row("4: first a repeated id", partial(answer_at_a_full_line, id="ada-3"), "ada-3"),
    row("4: then the unique key", partial(answer_at_a_full_line, unique="key-2"), "ada-2"),
    row("4: then the quota: deferred, not refused", answer_at_a_full_line, "scheduled"),
    row("4: then the cap", partial(answer_at_a_full_line, user="bob"), "refused"),
    row("4: a refused submit is not charged", charged_for_a_refused_submit, 0),
    *for_each_tier("4: iterations_remaining, hard cap less used", iterations_remaining_after_a_batch, 4, 6, 10),
    row("4: usage after one job of partner", partial(usage_after, jobs=1, tier="partner"), (1, 49, 0, 9)),
    row("4: usage at the quota of bootstrapper", partial(usage_after, jobs=5, tier="bootstrapper"), (5, 0, 0, 6)),
    row("4: usage over it: none remain", partial(usage_after, jobs=6, tier="bootstrapper"), (5, 0, 0, 6)),
    row("4: usage of cto_scale", partial(usage_after, jobs=2, tier="cto_scale"), (2, 198, 0, 15)),
    row("4: usage without a tier: counted, none limited", partial(usage_after, jobs=3, tier=None), (3, None, 0, None)),
    row("4: daily_limit_resets_at midnight UTC", resets_at, "00:00:00 UTC"),
]

# --- section 6 ------------------------------------------------------------------------------------------------


WAITING: list[Any] = [
    *for_each_tier("6: averages start from the tier's first guess", average_after, 480, 600, 900),
    *(
        row(
            f"6: weight 0.3 for the newest: a run of {seconds} s after {tier}'s guess",
            lambda queue, tier=tier, seconds=seconds: average_after(queue, seconds, tier=tier),
            pytest.approx(expected),
        )
        for tier, seconds, expected in (
            ("bootstrapper", 0, 336),
            ("partner", 300, 510),
            ("partner", 1600, 900),
            ("cto_scale", 100, 660),
        )
    ),
    row(
        "6: and 0.3 for the one after it",
        lambda queue: average_after(queue, 300, 100, tier="partner"),
        pytest.approx(0.7 * 510 + 0.3 * 100),
    ),
    row(
        "6: an average per task, from 600 s, moved on completion",
        partial(average_after_a_run_of_no_time, tier=None, of_another_task=False),
        420,
    ),
    row(
        "6: an average per tier for a task that never ran",
        partial(average_after_a_run_of_no_time, tier="cto_scale", of_another_task=True),
        630,
    ),
    row("6: active workers are at least 1", active_workers, 1),
    row("6: active workers are the live workers' places", lambda queue: active_workers(queue, 2, 3), 5),
    row("6: at most global's limit", lambda queue: active_workers(queue, 2, 3, limit=4), 4),
    row("6: a larger limit of global adds none", lambda queue: active_workers(queue, 2, 3, limit=9), 5),
    *(
        row(f"6: nudge below the highest boost, {tier}", partial(nudge, tier=tier), expected)
        for tier, expected in (
            ("bootstrapper", ("Upgrade to jump ahead", URL)),
            ("partner", ("Upgrade to jump ahead", URL)),
            ("cto_scale", None),
            (None, None),
        )
    ),
    row("6: a nudge only where an upgrade_url is configured", partial(nudge, tier="partner", url=None), None),
]


@pytest.mark.parametrize(("measure", "expected"), [*ADMISSION, *WAITING])
async def test_through_the_front_door(queue: qo.Queue, measure: Measure, expected: Any) -> None:
    assert await measure(queue) == expected


# --- numbers that need no store -------------------------------------------------------------------------------

MONDAY_NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)
ON_TUESDAY, ON_WEDNESDAY = MONDAY_NOON.replace(day=17, hour=0), MONDAY_NOON.replace(day=18, hour=0)
EXAMPLE = partial(base, position=5, workers=2, average=600)

PLAIN: list[Any] = [
    row("4: the built-in tiers are these three", lambda: tuple(BUILT_IN_TIERS), TIERS),
    row("4: the cap is 100", lambda: Settings().queue.cap, 100),
    row("4: said of the next day", lambda: scheduled_message(ON_TUESDAY, now=MONDAY_NOON), "Scheduled for tomorrow"),
    row(
        "4: said of a later day, with weekday and date",
        lambda: scheduled_message(ON_WEDNESDAY, now=MONDAY_NOON),
        "Scheduled for Wednesday, 18 November",
    ),
    row(
        "4: try again: a second over a step is the next", partial(refusal_minutes, over=0, average=901, capacity=1), 30
    ),
    row("4: try again: 100 x 600 s / 1", partial(refusal_minutes, over=99, average=600, capacity=1), 1005),
    row("4: try again: 100 x 600 s / 100", partial(refusal_minutes, over=99, average=600, capacity=100), 15),
    row("4: try again is never 0", partial(refusal_minutes, over=0, average=0, capacity=1), 15),
    row("6: average x position / active workers", partial(EXAMPLE, "estimate_seconds"), 1500),
    row("6: lower_bound, -30 %", partial(EXAMPLE, "lower_bound"), 1050),
    row("6: upper_bound, +30 %", partial(EXAMPLE, "upper_bound"), 1950),
    row("6: message, a range in words", partial(EXAMPLE, "message"), "17 minutes-32 minutes"),
    row("6: confidence of position 5", partial(EXAMPLE, "confidence"), "medium"),
    row("6: medium under position 10", partial(base, "confidence", position=9), "medium"),
    row("6: low from position 10 on", partial(base, "confidence", position=10), "low"),
    row("6: no worker counts as one", partial(base, "estimate_seconds", position=2, workers=0), 1200),
    row("6: learnt bounds are for 80 % of jobs", lambda: Settings().estimate.learnt_coverage, 0.8),
    *(
        row(f"6: {seconds} s in words, rounded down", partial(span, seconds), words)
        for seconds, words in (
            (45, "45 seconds"),
            (45.9, "45 seconds"),
            (60, "1 minute"),
            (119.9, "1 minute"),
            (1050, "17 minutes"),
            (1950, "32 minutes"),
            (3599, "59 minutes"),
            (3600, "1h 0m"),
            (7500, "2h 5m"),
            (7559, "2h 5m"),
        )
    ),
]


@pytest.mark.parametrize(("measure", "expected"), PLAIN)
def test_as_plain_policy(measure: Callable[[], Any], expected: Any) -> None:
    assert measure() == expected
