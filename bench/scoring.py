"""How good the estimates of a day were: how many jobs started inside their range, and how wide that was."""

from __future__ import annotations

import itertools
import math
import statistics
from dataclasses import dataclass

from bench.simulated_days import Day
from qo.job import Estimate


@dataclass
class Promise:
    """The first estimate of one job, and its real wait."""

    at: float
    learnt: Estimate
    base: Estimate
    task: str
    waited: float = math.nan


@dataclass
class Result:
    day: Day
    promises: list[Promise]
    replays: int
    jobs: int

    def coverage(self) -> float:
        return statistics.mean(is_inside(promise.learnt, promise.waited) for promise in self.promises)

    def width(self) -> float:
        return statistics.median(promise.learnt.upper_bound - promise.learnt.lower_bound for promise in self.promises)

    def coverage_by_wait(self, parts: int = 5) -> list[float]:
        """The share of each fifth, from the jobs with the shortest estimates to those with the longest."""
        ordered = sorted(self.promises, key=lambda promise: promise.learnt.estimate_seconds)
        cuts = [len(ordered) * part // parts for part in range(parts + 1)]
        return [
            statistics.mean(is_inside(promise.learnt, promise.waited) for promise in ordered[first:end])
            for first, end in itertools.pairwise(cuts)
        ]

    def base_coverage(self) -> float:
        return statistics.mean(is_inside(promise.base, promise.waited) for promise in self.promises)

    def base_spread(self) -> float:
        """The spread that the base rule needs, instead of 0.3, to cover as many jobs."""
        needed = sorted(
            abs(promise.waited / promise.base.estimate_seconds - 1) if promise.base.estimate_seconds else math.inf
            for promise in self.promises
        )
        return needed[min(math.ceil(self.coverage() * len(needed)), len(needed)) - 1]

    def base_width(self) -> float:
        """A job cannot start before now, so a lower bound below 0 is 0, which favours the base rule."""
        spread = self.base_spread()
        return statistics.median(
            promise.base.estimate_seconds * (1 + spread - max(1 - spread, 0.0)) for promise in self.promises
        )


def is_inside(estimate: Estimate, waited: float) -> bool:
    return estimate.lower_bound <= waited <= estimate.upper_bound
