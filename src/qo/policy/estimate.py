"""How long a waiting job will probably wait: the base estimate, from averages alone."""

from __future__ import annotations

from qo.job import Estimate
from qo.policy.words import span
from qo.settings import EstimateSettings


def base_estimate(
    *, position: int, active_workers: int, average_seconds: float, settings: EstimateSettings
) -> Estimate:
    """`average x position / active workers`, with the settings' spread around it."""
    seconds = average_seconds * position / max(active_workers, 1)
    # To the millisecond, or 3780 s would be 3779.9999999999995 and a minute less in words.
    lower, upper = round(seconds * (1 - settings.spread), 3), round(seconds * (1 + settings.spread), 3)
    return Estimate(
        estimate_seconds=seconds,
        lower_bound=lower,
        upper_bound=upper,
        message=f"{span(lower)}-{span(upper)}",
        confidence="medium" if position < settings.medium_confidence_below_position else "low",
    )


def duration_of_task(task: str) -> str:
    """The name under which a store keeps the average duration of a task's successful runs."""
    return f"duration:task:{task}"


def duration_of_tier(tier: str) -> str:
    return f"duration:tier:{tier}"
