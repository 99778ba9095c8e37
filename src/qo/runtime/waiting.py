"""What the wait of a job depends on: how long runs take, and how many run at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from qo.job import Basis
from qo.policy.estimate import duration_of_task, duration_of_tier
from qo.policy.groups import GLOBAL
from qo.settings import Settings
from qo.store.base import Store
from qo.store.values import Mean, WorkerInfo


class AverageRun(msgspec.Struct, frozen=True):
    """How long a run takes. `basis`: whether any was seen."""

    seconds: float
    basis: Basis


async def average_duration(store: Store, settings: Settings, *, task: str | None, tier: str | None) -> AverageRun:
    """Of the task where it has run, else of the tier, else the first guess."""
    return average_among(await store.averages(_names_of(task, tier)), settings, task=task, tier=tier)


def average_among(means: Mapping[str, Mean], settings: Settings, *, task: str | None, tier: str | None) -> AverageRun:
    """The same, of averages that were read before."""
    for name in _names_of(task, tier):
        if name in means:
            return AverageRun(means[name].value, Basis.MEASURED)
    if tier is not None and tier in settings.tiers:
        return AverageRun(settings.tiers[tier].first_guess_secs, Basis.FIRST_GUESS)
    return AverageRun(settings.estimate.first_guess_secs, Basis.FIRST_GUESS)


def _names_of(task: str | None, tier: str | None) -> list[str]:
    names = [duration_of_task(task)] if task is not None else []
    return names + ([duration_of_tier(tier)] if tier is not None else [])


async def active_places(store: Store) -> int:
    """The live workers' places, at most the limit of everything, at least 1."""
    return places_among(await store.workers(), limit=(await store.group(GLOBAL)).limit)


def places_among(workers: Sequence[WorkerInfo], *, limit: int | None) -> int:
    places = sum(worker.places for worker in workers)
    return max(1, places if limit is None else min(places, limit))
