"""Figures of the last minutes, summed from the store's figures of each minute."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from qo.values import SeriesPoint, WorkerInfo


class Analytics(msgspec.Struct, frozen=True, kw_only=True):
    """The line now, and the last `minutes`."""

    waiting: int
    running: int
    workers: int
    capacity: int
    minutes: int
    submitted: int
    ended: dict[str, int]
    """How many jobs ended in each state. `scheduled` counts attempts that will be repeated."""
    average_wait_seconds: dict[int, float]
    """The average wait of the jobs that started, by priority."""
    average_run_seconds: float | None
    """The average run of the jobs that succeeded."""
    finished_per_minute: float


def analyse(*, waiting: int, workers: Sequence[WorkerInfo], series: Sequence[SeriesPoint], minutes: int) -> Analytics:
    counts: dict[str, int] = defaultdict(int)
    totals: dict[str, int] = defaultdict(int)
    for point in series:
        counts[point.name] += point.count
        totals[point.name] += point.total_ms
    succeeded = counts.get("ended:succeeded", 0)
    return Analytics(
        waiting=waiting,
        running=sum(worker.running for worker in workers),
        workers=len(workers),
        capacity=sum(worker.capacity for worker in workers),
        minutes=minutes,
        submitted=counts.get("submitted", 0),
        ended={name.removeprefix("ended:"): count for name, count in counts.items() if name.startswith("ended:")},
        average_wait_seconds={
            int(name.removeprefix("wait:")): totals[name] / counts[name] / 1000
            for name in sorted(counts)
            if name.startswith("wait:")
        },
        average_run_seconds=totals["ended:succeeded"] / succeeded / 1000 if succeeded else None,
        finished_per_minute=succeeded / minutes,
    )
