"""What the wait of a job depends on: how long runs take, and how many run at once."""

from __future__ import annotations

from qo.policy.estimate import duration_of_task, duration_of_tier
from qo.policy.groups import GLOBAL
from qo.settings import Settings
from qo.store.base import Store


async def average_duration(store: Store, settings: Settings, *, task: str | None, tier: str | None) -> float:
    """Seconds: of the task where it has run, else of the tier, else the first guess."""
    names = [duration_of_task(task)] if task is not None else []
    names += [duration_of_tier(tier)] if tier is not None else []
    known = await store.averages(names)
    for name in names:
        if name in known:
            return known[name].value
    if tier is not None and tier in settings.tiers:
        return settings.tiers[tier].first_guess_secs
    return settings.estimate.first_guess_secs


async def active_places(store: Store) -> int:
    """The live workers' places, at most the limit of everything, at least 1."""
    places = sum(worker.places for worker in await store.workers())
    limit = (await store.group(GLOBAL)).limit
    return max(1, places if limit is None else min(places, limit))
