"""How long a job in line will probably wait: the base estimate from averages, and the words of every estimate."""

from __future__ import annotations

import msgspec

from qo.job import Basis, Estimate
from qo.policy.words import span
from qo.settings.sections import EstimateSettings

NOW = "now"
STARTS_NOW_WITHIN_SECONDS = 1.0


def base_estimate(
    *,
    position: int,
    active_workers: int,
    average_seconds: float,
    settings: EstimateSettings,
    basis: Basis = Basis.MEASURED,
) -> Estimate:
    """`average x position / active workers`, with the settings' spread around it."""
    seconds = average_seconds * position / max(active_workers, 1)
    # To the millisecond, or 3780 s would be 3779.9999999999995 and a minute less in words.
    lower, upper = round(seconds * (1 - settings.spread), 3), round(seconds * (1 + settings.spread), 3)
    return estimate_between(lower, seconds, upper, position=position, settings=settings, basis=basis)


def estimate_between(
    lower: float, seconds: float, upper: float, *, position: int, settings: EstimateSettings, basis: Basis
) -> Estimate:
    """An estimate with its words: the range, marked where it is a first guess."""
    is_guess = basis is Basis.FIRST_GUESS
    is_near = position < settings.medium_confidence_below_position
    return Estimate(
        estimate_seconds=seconds,
        lower_bound=lower,
        upper_bound=upper,
        message=f"{_range(lower, upper)}{' (first guess)' if is_guess else ''}",
        confidence="medium" if is_near and not is_guess else "low",
        basis=basis,
    )


def starts_now() -> Estimate:
    """The estimate of a job for which a worker and all its groups have room. No duration has to be guessed."""
    return Estimate(
        estimate_seconds=0.0,
        lower_bound=0.0,
        upper_bound=STARTS_NOW_WITHIN_SECONDS,
        message=NOW,
        confidence="medium",
        basis=Basis.MEASURED,
    )


def less_sure(estimate: Estimate) -> Estimate:
    """The same estimate of a job for which something that cannot be foreseen comes first."""
    return estimate if estimate.confidence is None else msgspec.structs.replace(estimate, confidence="low")


def not_known(reason: str) -> Estimate:
    """An estimate without numbers, whose message says why there are none."""
    return Estimate(
        estimate_seconds=None,
        lower_bound=None,
        upper_bound=None,
        message=f"not known yet: {reason}",
        confidence=None,
        basis=None,
    )


def no_worker(task: str) -> Estimate:
    return not_known(f"no worker runs task {task}")


def no_data(task: str) -> Estimate:
    return not_known(f"no job of task {task} has ended, and it has no tier")


def duration_of_task(task: str) -> str:
    """The name under which a store keeps the average duration of a task's successful runs."""
    return f"duration:task:{task}"


def duration_of_tier(tier: str) -> str:
    return f"duration:tier:{tier}"


def _range(lower: float, upper: float) -> str:
    """ "17 minutes-32 minutes", or "about 1 minute" where both ends read alike."""
    if upper < 1:
        return "under 1 second"
    first, last = span(lower), span(upper)
    return f"about {first}" if first == last else f"{first}-{last}"
