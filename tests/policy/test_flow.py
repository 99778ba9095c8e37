"""How many jobs joined, started, ended and failed within the last 60 seconds."""

from __future__ import annotations

from qo.policy.flow import MINUTE_MS, Flow, flow_of
from qo.values import SeriesPoint


def figure(name: str, minute: int, count: int) -> SeriesPoint:
    return SeriesPoint(name=name, minute=minute, count=count, total_ms=0)


def test_the_minute_before_counts_as_far_as_it_is_less_than_60_seconds_ago() -> None:
    now_ms = 100 * MINUTE_MS + 15_000
    series = [figure("submitted", 100, 3), figure("submitted", 99, 8), figure("submitted", 98, 1000)]

    assert flow_of(series, now_ms=now_ms).joined == 3 + 6


def test_all_priorities_and_all_ends_are_summed_and_a_retry_is_no_end() -> None:
    series = [
        figure("wait:10", 5, 2),
        figure("wait:50", 5, 3),
        figure("ended:succeeded", 5, 4),
        figure("ended:failed", 5, 1),
        figure("ended:cancelled", 5, 1),
        figure("ended:scheduled", 5, 7),
        figure("rejected:global", 5, 9),
    ]

    assert flow_of(series, now_ms=5 * MINUTE_MS) == Flow(joined=0, started=5, ended=6, failed=1)
