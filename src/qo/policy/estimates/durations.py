"""What the wait of a job depends on: how long a run takes, and how many jobs run at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from qo.job import Basis
from qo.policy.estimates.base import duration_of_task, duration_of_tier
from qo.settings.sections import Settings
from qo.values import Mean, WorkerInfo


class AverageRun(msgspec.Struct, frozen=True):
    """How long a run takes. `basis` says whether that was measured or is the first guess."""

    seconds: float
    basis: Basis


def names_of_averages(task: str | None, tier: str | None) -> list[str]:
    """The averages to read from the store before `average_among` can answer, the preferred one first."""
    names = [duration_of_task(task)] if task is not None else []
    return names + ([duration_of_tier(tier)] if tier is not None else [])


def average_among(means: Mapping[str, Mean], settings: Settings, *, task: str | None, tier: str | None) -> AverageRun:
    """The average run of the task where one has succeeded, else of the tier, else the first guess."""
    for name in names_of_averages(task, tier):
        if name in means:
            return AverageRun(means[name].value, Basis.MEASURED)
    if tier is not None and tier in settings.tiers:
        return AverageRun(settings.tiers[tier].first_guess_secs, Basis.FIRST_GUESS)
    return AverageRun(settings.estimate.first_guess_secs, Basis.FIRST_GUESS)


def capacity_among(workers: Sequence[WorkerInfo], *, limit: int | None) -> int:
    """How many jobs can run at once: the workers' capacity, at most the limit of `global`, at least 1."""
    capacity = sum(worker.capacity for worker in workers)
    return max(1, capacity if limit is None else min(capacity, limit))
