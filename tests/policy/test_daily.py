"""The figures of a day."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qo.job import Job, State
from qo.policy.daily import DailyFigures, daily_figures, percentile

MORNING = datetime(2026, 3, 1, 9, tzinfo=UTC)


def job(job_id: str, state: State, *, at: datetime = MORNING, waited: float | None = None, ran: float = 0) -> Job:
    started = None if waited is None else at + timedelta(seconds=waited)
    return Job(
        id=job_id,
        task="work",
        state=state,
        status=str(state),
        priority=50,
        groups=(),
        submitted_at=at,
        attempts=1,
        joined_at=at,
        started_at=started,
        finished_at=None if started is None else started + timedelta(seconds=ran),
    )


def test_jobs_are_counted_by_the_day_of_their_submit_and_their_end() -> None:
    jobs = [
        job("a", State.SUCCEEDED, waited=1, ran=10),
        job("b", State.FAILED, waited=3, ran=20),
        job("c", State.QUEUED),
        job("d", State.CANCELLED, at=MORNING + timedelta(days=1)),
    ]

    first, second = daily_figures(jobs)

    assert first == DailyFigures(
        day=MORNING.date(), succeeded=1, failed=1, unfinished=1, wait_p50=2, wait_p95=2.9, run_p50=15, run_p95=19.5
    )
    assert second == DailyFigures(day=MORNING.date() + timedelta(days=1), cancelled=1)


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0, 1))
def test_a_percentile_is_between_the_smallest_and_the_largest(values: list[float], share: float) -> None:
    found = percentile(values, share)

    assert found is not None
    assert min(values) <= found <= max(values) or found == pytest.approx(max(values))


def test_nothing_has_no_percentile() -> None:
    assert percentile([], 0.5) is None
