"""The range of an estimate, learnt from the errors of earlier estimates.

For every job that was given an estimate and has started, one number is kept: the multiplier that would have made its
estimate right. A range is then a low and a high multiplier with the wanted share of those numbers between them. Their
median corrects the average error of estimates (from jobs with a higher priority that come later, for example).

Multipliers are of `wait + margin`, on both sides: without the margin, a promise of a tenth of a second that took one
second would count as ten times too small, and one such job would spoil the range of those that wait for an hour.
The margin is about the time between two starts: no estimate can be more exact than that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from qo.job import Basis, Estimate
from qo.policy.estimates.base import estimate_between
from qo.settings.sections import EstimateSettings

NEWEST = 500
"""How many of a task's multipliers count: enough for the edges of a range, few enough to follow a change."""
BORROWED = 24
"""How many multipliers a task without any of its own borrows from other tasks."""
OWN_FOR_ONE_BORROWED = 3
"""For each so many multipliers of its own, a task borrows one less."""
LEARNING_RATE = 0.005
"""The part of a miss by which the aimed-at share moves."""
UNKNOWN_WIDENS = 3.0
"""Where nothing is known yet, the edge is so many times as far away as that of the base estimate."""
LEAST_AIM, MOST_AIM = 0.5, 0.995
"""The bounds of the aimed-at share, the first as a part of the stated share."""
ROUNDING = 1e-9
BEYOND = 1.5
"""How far an edge is put outside of the sample when it has to be."""


class Multipliers(msgspec.Struct, frozen=True, gc=False):
    """The edges and the middle of a range, as multipliers of `wait + margin`."""

    low: float
    middle: float
    high: float


def multiplier(*, promised_seconds: float, actual_seconds: float, margin_seconds: float) -> float:
    """The multiplier that would have made the replay's estimate right."""
    return (max(actual_seconds, 0.0) + margin_seconds) / (promised_seconds + margin_seconds)


def learn(own: Sequence[float], of_all: Sequence[float], aimed_at: float, settings: EstimateSettings) -> Multipliers:
    """The range from a task's own multipliers, and from those of all tasks where it has few; both oldest first.

    The more a task has of its own the fewer it borrows from all tasks, and those from a first guess that is wider
    than the base estimate's range. `aimed_at` is the share to have inside: the stated share, or that of `next_aim`.
    """
    lender = with_borrowed(sorted(of_all[-NEWEST:]), first_guesses(settings))
    sample = with_borrowed(sorted(own[-NEWEST:]), lender)
    low, high = edges(sample, aimed_at)
    return Multipliers(low=low, middle=quantile(sample, 0.5), high=high)


def next_aim(aimed_at: float, *, was_inside: bool, settings: EstimateSettings) -> float:
    """The share to aim at after one more job has started, inside its range or not.

    Traffic changes, so fewer (or more) jobs may start inside than did among those that were learnt from. After a job
    outside, the aim is higher; after a job inside, it is lower by less (adaptive conformal inference, Gibbs and Candès
    2021). In the long run the stated share holds whatever the traffic does.
    """
    coverage = settings.learnt_coverage
    moved = aimed_at + LEARNING_RATE * (coverage - 1 if was_inside else coverage)
    return min(max(moved, LEAST_AIM * coverage), max(MOST_AIM, coverage))


def with_borrowed(own: list[float], lender: Sequence[float]) -> list[float]:
    """Sorted multipliers, with as many of the lender's as are still needed, evenly taken from it."""
    count = BORROWED - len(own) // OWN_FOR_ONE_BORROWED
    if count <= 0:
        return own
    borrowed = [quantile(lender, (number + 0.5) / count) for number in range(count)]
    return sorted([*own, *borrowed])


def first_guesses(settings: EstimateSettings) -> list[float]:
    """The multipliers to borrow where nothing is known: half of them too small, and four of five within the edge."""
    edge = 1 + UNKNOWN_WIDENS * settings.spread
    shape = math.log(edge) / math.log(9)
    shares = [(number + 0.5) / BORROWED for number in range(BORROWED)]
    return [(share / (1 - share)) ** shape for share in shares]


def edges(sample: Sequence[float], coverage: float) -> tuple[float, float]:
    """The low and high edge of a sorted sample: this share of future values lies between them, equal shares outside.

    One more value is as likely to fall into any of the n + 1 gaps around n values, also beneath the smallest and above
    the largest. So the edges lie a little further out than the sample's own quantiles, and beyond it when they must.
    """
    outside = (1 - coverage) / 2 * (len(sample) + 1)
    if outside < 1 - ROUNDING:
        return sample[0] / BEYOND, sample[-1] * BEYOND
    share = max(outside - 1, 0.0) / max(len(sample) - 1, 1)
    return quantile(sample, share), quantile(sample, 1 - share)


def quantile(sample: Sequence[float], share: float) -> float:
    """A quantile of a sorted sample, interpolated between its values."""
    at = share * (len(sample) - 1)
    below = min(int(at), len(sample) - 1)
    above = min(below + 1, len(sample) - 1)
    return sample[below] + (at - below) * (sample[above] - sample[below])


def ranged_estimate(
    seconds: float,
    multipliers: Multipliers,
    *,
    margin_seconds: float,
    position: int,
    settings: EstimateSettings,
    basis: Basis = Basis.MEASURED,
) -> Estimate:
    """The estimate for people, from the replay's seconds and the learnt multipliers."""
    base = seconds + margin_seconds
    low, middle, high = (
        max(round(base * factor - margin_seconds, 3), 0.0)
        for factor in (multipliers.low, multipliers.middle, multipliers.high)
    )
    return estimate_between(low, middle, high, position=position, settings=settings, basis=basis)
