"""A limiter's figures as metrics, as samples for Prometheus, and in the error of a caller that came too late."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple, TypedDict

import msgspec

from qo.errors import Timeout
from qo.policy.groups import GLOBAL, PROVIDERS

PROVIDER_PREFIX = "provider:"
TOTAL = "total"
"""The public name of the group `providers`. Among the limits it is `global`, as in `LLM_MAX_CONCURRENCY_GLOBAL`."""


class GroupFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One group at one instant. `blocked` counts the callers that had to wait for it, each in one group only. `kept`
    says that a slot is free, and kept for a caller whose turn it is."""

    group: str
    limit: int | None
    in_flight: int
    waiting: int
    blocked: int
    kept: bool = False


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """All figures of the same instant. Waits that have ended are counted however they ended."""

    groups: tuple[GroupFigures, ...]
    waits_ended: int
    waited_seconds: float
    longest_wait_seconds: float


class LimiterMetrics(TypedDict):
    """A limiter's figures, by provider and group where a value is a dictionary."""

    in_flight: dict[str, int]
    """How many callers hold a slot; `total` is the sum of the providers."""
    blocked_requests: int
    """How many calls had to wait since the limiter was made."""
    avg_block_time_seconds: float
    """The average of the waits that have ended, in whatever way."""
    blocked_by: dict[str, int]
    """How many calls had to wait, by the group that was full."""
    waiting: dict[str, int]
    """How many calls wait now, by the group that blocks them."""
    longest_wait_seconds: float
    """The longest wait, which may still go on."""
    limits: dict[str, int]
    """The limits; the total is `global` here."""


class Series(NamedTuple):
    """Samples of one name. A counter's name ends in `_total`, as in the text that is scraped."""

    name: str
    kind: Literal["gauge", "counter"]
    help: str


IN_FLIGHT = Series("qo_limiter_in_flight", "gauge", "Holders of a slot.")
LIMIT = Series("qo_limiter_limit", "gauge", "Slots there are.")
WAITING = Series("qo_limiter_waiting", "gauge", "Callers that wait because it is full.")
BLOCKED = Series("qo_limiter_blocked_total", "counter", "Callers that had to wait.")
WAITS_ENDED = Series("qo_limiter_waits_ended_total", "counter", "Waits that are over.")
WAITED = Series("qo_limiter_waited_seconds_total", "counter", "Their seconds together.")
LONGEST_WAIT = Series("qo_limiter_longest_wait_seconds", "gauge", "The longest wait until now.")

BY_GROUP = (IN_FLIGHT, LIMIT, WAITING, BLOCKED)
"""These have a sample for each group, with the label `group`."""
OF_ALL = (WAITS_ENDED, WAITED, LONGEST_WAIT)
"""These have one sample."""


class Sample(NamedTuple):
    """A number as Prometheus wants it."""

    name: str
    """The metric's name."""
    kind: Literal["gauge", "counter"]
    """Its kind for Prometheus."""
    help: str
    """What it counts, in words."""
    labels: Mapping[str, str]
    """Its labels with their values, such as the group."""
    value: float
    """The number."""


def metrics_of(figures: Figures) -> LimiterMetrics:
    """The figures in the shape that `Limiter.get_metrics` promises.

    Counts return 0 for a name that they do not list.
    """
    names = _names(figures)
    total = next((each for each in figures.groups if each.group == PROVIDERS), None)
    others = [each for each in figures.groups if each is not total]
    # A caller that was blocked by one group may by now wait for another, which has blocked no new caller.
    holding_up = [each for each in figures.groups if each.blocked or each.waiting]
    in_flight = Counter({names[each.group]: each.in_flight for each in others})
    in_flight[TOTAL] = 0 if total is None else total.in_flight
    limits = {names[each.group]: each.limit for each in others if each.limit is not None}
    if total is not None and total.limit is not None:
        limits[GLOBAL] = total.limit
    return {
        "in_flight": in_flight,
        "blocked_requests": sum(each.blocked for each in figures.groups),
        "avg_block_time_seconds": figures.waited_seconds / figures.waits_ended if figures.waits_ended else 0.0,
        "blocked_by": Counter({names[each.group]: each.blocked for each in holding_up}),
        "waiting": Counter({names[each.group]: each.waiting for each in holding_up}),
        "longest_wait_seconds": figures.longest_wait_seconds,
        "limits": limits,
    }


def samples_of(figures: Figures) -> Iterator[Sample]:
    """The figures for Prometheus, samples of one name next to each other.

    `group` is the name that the metrics use. `total` is a group beside the providers, so a sum over all groups
    counts calls twice.
    """
    names = _names(figures)
    labelled = [(each, {"group": names[each.group]}) for each in figures.groups]
    for each, group in labelled:
        yield Sample(*IN_FLIGHT, group, each.in_flight)
    for each, group in labelled:
        if each.limit is not None:
            yield Sample(*LIMIT, group, each.limit)
    for each, group in labelled:
        yield Sample(*WAITING, group, each.waiting)
    for each, group in labelled:
        yield Sample(*BLOCKED, group, each.blocked)
    yield Sample(*WAITS_ENDED, {}, figures.waits_ended)
    yield Sample(*WAITED, {}, figures.waited_seconds)
    yield Sample(*LONGEST_WAIT, {}, figures.longest_wait_seconds)


def too_late(full: GroupFigures, seconds: float) -> Timeout:
    """The error of a caller that waited so long, or would not wait, for a slot of a full group."""
    when = f"within {seconds:g} seconds" if seconds else "now"
    others = "nobody else waits" if not full.waiting else f"{full.waiting} more wait"
    if full.limit == 0:
        why = f"its limit is 0, so nobody enters until it is raised, and {others}."
    else:
        held = f"{full.in_flight} hold one" + (", one is kept for a caller whose turn it is" if full.kept else "")
        why = f"its limit is {full.limit}, {held} and {others}. Wait longer, or raise the limit."
    return Timeout(f"No slot in {_described(full.group)} {when}: {why}")


def _described(group: str) -> str:
    if group == PROVIDERS:
        return "the total over all providers"
    if group.startswith(PROVIDER_PREFIX):
        return f"provider {group.removeprefix(PROVIDER_PREFIX)!r}"
    return f"group {group!r}"


def _names(figures: Figures) -> dict[str, str]:
    """The public name of each group: a provider's bare name, unless a group of the user's own has that name."""
    groups = {each.group for each in figures.groups}
    bare = {group: group.removeprefix(PROVIDER_PREFIX) for group in groups}
    names = {group: group if name in groups else name for group, name in bare.items()}
    return {**names, PROVIDERS: TOTAL}
