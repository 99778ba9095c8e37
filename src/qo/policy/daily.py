"""The figures of each day of a history: how many jobs ended and how, how long they waited and ran."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, date

import msgspec

from qo.job import Job, State

MEDIAN, NEARLY_ALL = 0.5, 0.95


class DailyFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs that were submitted on one day (UTC). Seconds are None where no job has started, or none has ended."""

    day: date
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    unfinished: int = 0
    wait_p50: float | None = None
    wait_p95: float | None = None
    run_p50: float | None = None
    run_p95: float | None = None


def daily_figures(jobs: Iterable[Job]) -> list[DailyFigures]:
    """By day, the oldest first. The same figures as the view `history.daily`, over all tiers and tasks."""
    by_day: dict[date, list[Job]] = defaultdict(list)
    for job in jobs:
        by_day[job.submitted_at.astimezone(UTC).date()].append(job)
    return [_figures(day, by_day[day]) for day in sorted(by_day)]


def _figures(day: date, jobs: Sequence[Job]) -> DailyFigures:
    waits = [(job.started_at - job.joined_at).total_seconds() for job in jobs if job.started_at and job.joined_at]
    runs = [(job.finished_at - job.started_at).total_seconds() for job in jobs if job.finished_at and job.started_at]
    counts = {state: sum(job.state is state for job in jobs) for state in State}
    ended = (State.SUCCEEDED, State.FAILED, State.CANCELLED)
    return DailyFigures(
        day=day,
        succeeded=counts[State.SUCCEEDED],
        failed=counts[State.FAILED],
        cancelled=counts[State.CANCELLED],
        unfinished=len(jobs) - sum(counts[state] for state in ended),
        wait_p50=percentile(waits, MEDIAN),
        wait_p95=percentile(waits, NEARLY_ALL),
        run_p50=percentile(runs, MEDIAN),
        run_p95=percentile(runs, NEARLY_ALL),
    )


def percentile(values: Sequence[float], share: float) -> float | None:
    """Between two values in proportion, as PostgreSQL's `percentile_cont`. None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
