"""Reads from the store how long a run takes."""

from __future__ import annotations

from qo.policy.estimates.durations import AverageRun, average_among, names_of_averages
from qo.settings import Settings
from qo.store.contract import Store


async def average_duration(store: Store, settings: Settings, *, task: str | None, tier: str | None) -> AverageRun:
    """The average run of the task where one has succeeded, else of the tier, else the first guess."""
    means = (await store.observed(names_of_averages(task, tier))).averages
    return average_among(means, settings, task=task, tier=tier)
