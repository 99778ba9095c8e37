"""How good the estimates of a day were: how many jobs started inside their range, and how wide that was."""

from __future__ import annotations

import itertools
import math
import statistics
from dataclasses import dataclass

from bench.simulated_days import Day
from qo.job import Estimate


@dataclass
class Told:
    """What one job was told, and what came of it."""

    at: float
    learnt: Estimate
    base: Estimate
    task: str
    waited: float = math.nan


@dataclass
class Result:
    day: Day
    told: list[Told]
    replays: int
    jobs: int

    def coverage(self) -> float:
        return statistics.mean(is_inside(told.learnt, told.waited) for told in self.told)

    def width(self) -> float:
        return statistics.median(told.learnt.upper_bound - told.learnt.lower_bound for told in self.told)

    def coverage_by_wait(self, parts: int = 5) -> list[float]:
        """Of those told to wait least, ..., of those told to wait longest."""
        ordered = sorted(self.told, key=lambda told: told.learnt.estimate_seconds)
        cuts = [len(ordered) * part // parts for part in range(parts + 1)]
        return [
            statistics.mean(is_inside(told.learnt, told.waited) for told in ordered[first:end])
            for first, end in itertools.pairwise(cuts)
        ]

    def base_coverage(self) -> float:
        return statistics.mean(is_inside(told.base, told.waited) for told in self.told)

    def base_spread(self) -> float:
        """By which the base rule has to be widened, instead of by 0.3, to cover as many."""
        needed = sorted(
            abs(told.waited / told.base.estimate_seconds - 1) if told.base.estimate_seconds else math.inf
            for told in self.told
        )
        return needed[min(math.ceil(self.coverage() * len(needed)), len(needed)) - 1]

    def base_width(self) -> float:
        """A start before now cannot be, so a lower edge below 0 is 0: that is in the base rule's favour."""
        spread = self.base_spread()
        return statistics.median(told.base.estimate_seconds * (1 + spread - max(1 - spread, 0.0)) for told in self.told)


def is_inside(estimate: Estimate, waited: float) -> bool:
    return estimate.lower_bound <= waited <= estimate.upper_bound
