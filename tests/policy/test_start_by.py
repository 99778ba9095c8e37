"""`start_by` as callers give it, as a store gets it, and the sentences about it."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from qo.errors import InvalidSubmit
from qo.new_job import New
from qo.policy.start_by import LatestStart, latest_start, never_in_time

NOON = datetime(2026, 3, 11, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("start_by", "within_ms", "span"),
    [
        (30, 30_000, "30 seconds"),
        (1, 1000, "1 second"),
        (1.5, 1500, "1.5 seconds"),
        (0.25, 250, "0.25 seconds"),
        (90, 90_000, "90 seconds"),
        (60, 60_000, "1 minute"),
        (timedelta(hours=36), 129_600_000, "36 hours"),
        (timedelta(days=2), 172_800_000, "2 days"),
    ],
)
def test_a_span_stays_a_span_and_the_message_has_it_exactly(start_by: Any, within_ms: int, span: str) -> None:
    assert latest_start(start_by) == LatestStart(within_ms=within_ms, message=f"Not started within {span}")


@pytest.mark.parametrize(
    ("start_by", "words"),
    [
        (NOON, "12:00 UTC on Wednesday, 11 March 2026"),
        (NOON + timedelta(seconds=5), "12:00:05 UTC on Wednesday, 11 March 2026"),
        (NOON.astimezone(), "12:00 UTC on Wednesday, 11 March 2026"),
    ],
)
def test_a_time_stays_a_time_and_the_message_has_it_in_full(start_by: datetime, words: str) -> None:
    at_ms = round(start_by.timestamp() * 1000)

    assert latest_start(start_by) == LatestStart(at_ms=at_ms, message=f"Not started by {words}")


def test_a_job_without_one_may_start_at_any_time() -> None:
    assert latest_start(None) == LatestStart()


@pytest.mark.parametrize("start_by", ["30", True, -1, 0, 0.0001, float("nan"), [30], NOON.replace(tzinfo=None)])
def test_anything_else_is_refused_by_name(start_by: Any) -> None:
    with pytest.raises(InvalidSubmit, match=r"^start_by is "):
        latest_start(start_by)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"start_by": 30, "delay": 60}, "start_by is 30 and delay is 60, so the job could not start in time"),
        ({"start_by": NOON, "run_at": NOON}, f"start_by is {NOON.isoformat()} and run_at is {NOON.isoformat()}"),
        ({"start_by": NOON}, f"start_by is {NOON.isoformat()}, which is over"),
    ],
)
def test_a_job_that_could_not_start_in_time_is_told_why(fields: dict[str, Any], said: str) -> None:
    assert re.match(re.escape(said), str(never_in_time(New("build", **fields))))
