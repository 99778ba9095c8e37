"""Figures of the last minutes, made from figures by name and minute."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from qo.job import Attempt, Job, JobHistory, Promise, Reached, State
from qo.policy.analytics import MINUTE_MS, MOST_GROUPS, Analytics, analyse
from qo.policy.promises import starts_of
from qo.values import SeriesPoint

NOW_MINUTE = 29_000_000
THEN = datetime(2026, 1, 1, tzinfo=UTC)


def point(name: str, minutes_ago: int, count: int, total_ms: int = 0) -> SeriesPoint:
    return SeriesPoint(name=name, minute=NOW_MINUTE - minutes_ago, count=count, total_ms=total_ms)


def analysed(*points: SeriesPoint, minutes: int = 3, waiting: int = 0, group: str | None = None) -> Analytics:
    return analyse(
        waiting=waiting,
        workers=(),
        series=points,
        minutes=minutes,
        now_ms=NOW_MINUTE * MINUTE_MS + 30_000,
        group=group,
    )


def test_every_minute_has_a_number_and_the_present_one_is_the_last() -> None:
    series = analysed(point("submitted", 3, 5), point("submitted", 0, 2), point("ended:failed", 1, 1)).series

    assert series.since.timestamp() == (NOW_MINUTE - 3) * 60
    assert series.submitted == [5, 0, 0, 2]
    assert series.failed == [0, 0, 1, 0]
    assert series.started == series.succeeded == [0, 0, 0, 0]


def test_starts_and_waits_are_told_apart_by_priority() -> None:
    figures = analysed(point("wait:10", 2, 2, 3000), point("wait:50", 2, 1, 500), point("wait:10", 0, 2, 1000))

    assert figures.series.started == [0, 3, 0, 2]
    assert figures.series.waits[10].started == [0, 2, 0, 2]
    assert figures.series.waits[10].waited_seconds == [0, 3, 0, 1]
    assert figures.average_wait_seconds == {10: 1.0, 50: 0.5}


def test_the_depth_of_a_minute_without_a_change_is_that_of_the_minute_before() -> None:
    assert analysed(point("depth", 2, 7), waiting=9).series.depth == [None, 7, 7, 9]


def test_without_any_change_the_depth_is_what_it_is_now() -> None:
    assert analysed(waiting=4).series.depth == [4, 4, 4, 4]


def test_promises_are_counted() -> None:
    promise = analysed(point("promise:kept", 3, 8), point("promise:kept", 1, 1), point("promise:missed", 0, 2)).promise

    assert (promise.kept, promise.missed) == (9, 2)


def test_groups_are_listed_by_pressure_with_their_median_wait() -> None:
    groups = analysed(
        point("acquired:gpu:0", 2, 3),
        point("acquired:gpu:8", 1, 4),
        point("acquired:gpu:64", 1, 2),
        point("acquired:user:1", 1, 50),
        point("rejected:gpu", 1, 6),
        group="gpu",
    ).groups

    assert [group.group for group in groups] == ["gpu", "user"]
    assert (groups[0].acquired, groups[0].rejected, groups[0].median_wait_seconds) == (9, 6, 8)
    assert groups[0].acquired_by_minute == [0, 3, 6, 0]
    assert groups[0].rejected_by_minute == [0, 0, 6, 0]
    assert groups[1].acquired_by_minute == groups[1].rejected_by_minute == []  # only of the group that was asked for


def test_a_group_with_colons_keeps_its_name() -> None:
    assert [group.group for group in analysed(point("acquired:customer:1:4", 1, 1)).groups] == ["customer:1"]


@pytest.mark.parametrize(("group", "listed"), [("quiet", "quiet"), ("provider:a", "provider")])
def test_a_wanted_group_is_listed_under_the_name_of_its_figures(group: str, listed: str) -> None:
    busy = [point(f"acquired:g{number}:1", 1, 5) for number in range(MOST_GROUPS + 5)]

    groups = analysed(*busy, group=group).groups

    assert len(groups) == MOST_GROUPS + 1
    assert groups[-1].group == listed
    assert (groups[-1].acquired, groups[-1].rejected_by_minute) == (0, [0, 0, 0, 0])


def job(**history: Any) -> Job:
    return Job(
        id="a",
        task="build",
        state=State.SUCCEEDED,
        status="succeeded",
        priority=50,
        groups=(),
        submitted_at=THEN,
        attempts=1,
        history=JobHistory(**history),
    )


def attempt(number: int, after_seconds: float) -> Attempt:
    at = THEN + timedelta(seconds=after_seconds)
    return Attempt(number=number, worker="w", slots={}, started_at=at, ended_at=at, outcome="succeeded")


PROMISE = Promise(made_at=THEN, lower_bound=10, upper_bound=20)


@pytest.mark.parametrize(("after_seconds", "kept"), [(9.9, False), (10, True), (20, True), (20.1, False)])
def test_a_start_inside_the_promised_range_has_kept_it(after_seconds: float, kept: bool) -> None:
    (start,) = starts_of([job(promise=PROMISE, attempts=(attempt(1, after_seconds), attempt(2, 500)))])

    assert (start.kept, start.waited_seconds) == (kept, after_seconds)


def test_the_first_start_counts_also_while_the_job_runs() -> None:
    reached = (Reached("queued", THEN), Reached("starting", THEN + timedelta(seconds=12)))

    (start,) = starts_of([job(promise=PROMISE, states=reached)])

    assert start.waited_seconds == 12


@pytest.mark.parametrize(
    "history",
    [
        {"attempts": (attempt(1, 5),)},
        {"promise": PROMISE},
        {"promise": PROMISE, "attempts": (attempt(4, 900),)},
    ],
    ids=["no promise", "no start", "first start forgotten"],
)
def test_what_is_not_known_is_left_out(history: dict[str, Any]) -> None:
    assert starts_of([job(**history)]) == []
