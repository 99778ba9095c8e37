"""WaitTimeEstimator: the base estimate of a tier, for callers that know the position and the number of workers."""

from __future__ import annotations

from qo.errors import InvalidValue
from qo.job import Estimate
from qo.policy.admission import find_tier
from qo.policy.checks import check_number
from qo.policy.estimates.base import base_estimate, duration_of_tier
from qo.queue.averages import average_duration
from qo.queue.queue import Queue, check_queue
from qo.values import Average


class WaitTimeEstimator:
    """Uses the averages that workers keep in the store when a job of a tier succeeds, as `queue.estimate` does.

    So record a completion only for work that qo did not run. A tier that is not configured raises `UnknownTier`.
    """

    def __init__(self, queue: Queue) -> None:
        check_queue(queue)
        self._queue = queue
        self._settings = queue.settings

    async def record_completion(self, tier: str, duration_seconds: float) -> None:
        """Move the tier's average by one run, in one atomic step. The average starts from the tier's first guess."""
        first = find_tier(tier, self._settings.tiers).first_guess_secs
        if not _is_number(duration_seconds) or not 0 <= duration_seconds < float("inf"):
            raise InvalidValue(f"duration_seconds is {duration_seconds!r}; use seconds of 0 or more.")
        average = Average(name=duration_of_tier(tier), first=first, weight=self._settings.estimate.newest_weight)
        await self._queue.store_here.observe([(average, float(duration_seconds))])

    async def estimate_with_confidence(self, tier: str, position: int, active_workers: int) -> Estimate:
        """`average x position / active workers` of the tier, with its range in words. No workers count as one.

        Before any run of the tier was recorded, the estimate is a first guess and says so.
        """
        find_tier(tier, self._settings.tiers)
        check_number("position", position, 1)
        check_number("active_workers", active_workers, 0)
        average = await average_duration(self._queue.store_here, self._settings, task=None, tier=tier)
        return base_estimate(
            position=position,
            active_workers=active_workers,
            average_seconds=average.seconds,
            settings=self._settings.estimate,
            basis=average.basis,
        )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
