"""The line played forward: when each job in line would start if no job came and runs took as long as before.

The rule is that of a claim: whenever a slot or capacity is given back, the first job in line starts whose every group
has room and for whose task some worker has free capacity. The result informs people; nothing is scheduled by it.

A job that is known to be blocked is not looked at again until the group that blocks it has room, as in the stores. Here
the line does not change, so whole kinds are put aside instead of jobs: jobs of one kind compete for the same groups and
capacity, and while the first of them is blocked all of them are. Moving ten thousand blocked jobs of one user is moving
one kind.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

import msgspec

from qo.policy.estimates.turns import Needs, Passed, Turns

NEVER = math.inf
LOOKS_PER_JOB = 20
"""How often kinds are examined for each job in line, at most. Usually it takes two or three times."""

STRATA = 32
LOOKS_AT_A_RUN = 16
SHORTEST_SECONDS = 1e-9
"""A shorter duration counts as 0: a moving average of runs of 0 ms shrinks until division by it overflows."""
LEAST_VARIATION, MOST_VARIATION = 0.05, 2.0
READY = -1
"""Stands in place of a resource, for a candidate that was not put aside in any."""


class Kind(msgspec.Struct, frozen=True, gc=False):
    """The groups and capacity that jobs of this kind compete for, and how long they take.

    All of `groups` and any one of `pools` must have room. A pool is the capacity of all workers that take the same
    tasks; those that take this kind's task are in the order in which they are tried. Both are indices into the rooms,
    `seconds` is one into the durations.
    """

    groups: tuple[int, ...]
    pools: tuple[int, ...]
    seconds: int = 0
    needs: Needs = Needs()


class GivenBack(msgspec.Struct, frozen=True, gc=False):
    """After so many seconds, one more job has room in each of these groups and pools."""

    after_seconds: float
    resources: tuple[int, ...]


class Played(NamedTuple):
    """When each job in line starts and ends, in seconds from now. `starts` has NEVER for a job that can never start,
    `ends` also for a job whose start was extrapolated."""

    starts: list[float]
    ends: list[float]


def replay(
    line: Sequence[int],
    kinds: Sequence[Kind],
    *,
    rooms: Sequence[int],
    given_back: Sequence[GivenBack],
    durations: Sequence[Sequence[float]],
    passed: Passed | None = None,
    looks_at_most: int | None = None,
    until_started: int | None = None,
) -> Played:
    """Play the line forward.

    `line` is the kind of each waiting job, first in line first. `rooms` has for every group and pool how many
    more jobs fit in; a group may have less than none (its limit was lowered), a pool may not. Jobs of one duration take
    its values in turn, in the order in which they start. Beyond `looks_at_most` the rest is extrapolated.
    With `until_started` the replay stops when the job of that rank has started, for callers that need no other.
    """
    room = list(rooms)
    choices, choices_with = _choices(kinds, room)
    needs = [(*kind.groups, choices[kind.pools]) for kind in kinds]
    gates = tuple(set(needs[0]).intersection(*needs[1:])) if needs else ()
    """The resources that every job needs. While one of them is full, no job is looked at."""
    behind = _by_kind(line, len(kinds))
    candidates = [(indices.pop(), READY) for indices in behind if indices]
    """The first job of each ready kind, and the first put aside in each resource with room; some are out of date."""
    heapify(candidates)
    parked: list[list[int]] = [[] for _ in room]
    """By resource that was found full, a heap: the first job of each kind put aside there."""
    coming = [
        (each.after_seconds, number, _with_choices(each.resources, choices_with))
        for number, each in enumerate(given_back)
    ]
    heapify(coming)
    starts = [NEVER] * len(line)
    ends = [NEVER] * len(line)
    started = [0] * len(durations)
    turns = Turns(passed or Passed(), line, [kind.needs for kind in kinds])
    turns.work_out(room)
    looks = LOOKS_PER_JOB * (len(line) + len(kinds)) if looks_at_most is None else looks_at_most
    now = 0.0
    while True:
        while candidates and _first_full(gates, room) is None:
            if looks == 0:
                return Played(_extrapolated(starts), ends)
            looks -= 1
            index, put_aside_in = heappop(candidates)
            if put_aside_in != READY:
                heads = parked[put_aside_in]
                if turns.room_for(put_aside_in, index, room) <= 0 or not heads or heads[0] != index:
                    continue  # out of date: when this resource gets room again, its first is a candidate again
                heappop(heads)
                if heads:
                    heappush(candidates, (heads[0], put_aside_in))
            number = line[index]
            full = _first_full_for(index, needs[number], room, turns)
            if full is not None:
                heappush(parked[full], index)
                if now > 0:  # what is blocked at the beginning was put aside before
                    turns.put_aside(index)
                continue
            kind = kinds[number]
            taken = (*kind.groups, *_with_choices((_first_free(kind.pools, room),), choices_with))
            for resource in taken:
                room[resource] -= 1
            starts[index] = now
            turns.started(index)
            seconds = durations[kind.seconds]
            ends[index] = now + seconds[started[kind.seconds] % len(seconds)]
            if index == until_started:
                return Played(starts, ends)
            started[kind.seconds] += 1
            heappush(coming, (ends[index], index, taken))
            if behind[number]:
                following = behind[number].pop()
                full = _first_full(needs[number], room)
                if full is None:
                    heappush(candidates, (following, READY))
                else:
                    heappush(parked[full], following)
        changed = turns.work_out(room)
        if changed and (stopped := [each for each in changed if parked[each] and room[each] > 0]):
            # Of those put aside because of a kept slot, some may go now.
            for resource in stopped:
                heappush(candidates, (parked[resource][0], resource))
            continue
        if not coming:
            return Played(starts, ends)
        now = coming[0][0]
        while coming and coming[0][0] == now:
            for resource in heappop(coming)[2]:
                room[resource] += 1
                if parked[resource] and (room[resource] == 1 or resource in turns.kept):
                    heappush(candidates, (parked[resource][0], resource))


def _first_full(resources: tuple[int, ...], room: list[int]) -> int | None:
    for resource in resources:
        if room[resource] <= 0:
            return resource
    return None


def _first_full_for(index: int, resources: tuple[int, ...], room: list[int], turns: Turns) -> int | None:
    if not turns.kept:
        return _first_full(resources, room)
    return next((resource for resource in resources if turns.room_for(resource, index, room) <= 0), None)


def _first_free(pools: tuple[int, ...], room: list[int]) -> int:
    if len(pools) == 1:
        return pools[0]
    return next(pool for pool in pools if room[pool] > 0)


def _choices(kinds: Sequence[Kind], room: list[int]) -> tuple[dict[tuple[int, ...], int], dict[int, tuple[int, ...]]]:
    """A resource for every choice of several pools, with the room of all of them. A single pool is its own.

    Returns the resource of each choice, and for each pool the resources of the choices that it is part of.
    """
    resource_of: dict[tuple[int, ...], int] = {}
    choices_with: dict[int, tuple[int, ...]] = {}
    for kind in kinds:
        if kind.pools in resource_of:
            continue
        if len(kind.pools) == 1:
            resource_of[kind.pools] = kind.pools[0]
            continue
        resource_of[kind.pools] = len(room)
        for pool in kind.pools:
            choices_with[pool] = (*choices_with.get(pool, ()), len(room))
        room.append(sum(room[pool] for pool in kind.pools))
    return resource_of, choices_with


def _with_choices(resources: tuple[int, ...], choices_with: dict[int, tuple[int, ...]]) -> tuple[int, ...]:
    if not choices_with:
        return resources
    return (*resources, *(choice for resource in resources for choice in choices_with.get(resource, ())))


def _by_kind(line: Sequence[int], kinds: int) -> list[list[int]]:
    """The places in line of each kind's jobs, last first, so that `pop` gives the next job."""
    indices: list[list[int]] = [[] for _ in range(kinds)]
    for index in range(len(line) - 1, -1, -1):
        indices[line[index]].append(index)
    return indices


def _extrapolated(starts: list[float]) -> list[float]:
    """Lets the jobs that were not reached start at the pace of the others, by their place in line."""
    reached = [start for start in starts if start is not NEVER]
    pace = max(reached, default=0.0) / max(len(reached), 1)
    return [rank * pace if start is NEVER else start for rank, start in enumerate(starts, start=1)]


# --- how long runs take ---------------------------------------------------------------------------------------


STEADY_WEIGHT = 0.03
"""The weight of the newest run in the averages that replays use. The base estimate's 0.3 follows every run."""


def steady(name: str) -> str:
    """The name of the average that moves slowly, beside that of the base estimate."""
    return f"{name}:steady"


class Duration(msgspec.Struct, frozen=True, gc=False):
    """How long runs take: their mean and how much they vary (standard deviation / mean).

    Between those two, they are taken to follow Weibull's distribution: it has the steady (variation near 0), the
    memoryless (1) and the long-tailed (above 1) as cases, and the time left of a run has a closed form.
    """

    mean_seconds: float
    variation: float = 1.0


def duration_from(
    *, mean: float, mean_square: float, count: int, first: float, weight: float, unknown_variation: float = 1.0
) -> Duration:
    """The duration in a moving average, without the first guess that it started from.

    After `count` values the guess still has the weight `(1 - weight) ** count`; with a guess of ten minutes and runs
    of a second that is ten seconds after a dozen runs. The rest comes from the runs themselves.
    """
    left = (1 - weight) ** count
    if count < 1 or left >= 1:
        return Duration(max(mean, 0.0), unknown_variation)
    value = max((mean - left * first) / (1 - left), 0.0)
    square = max((mean_square - left * first * first) / (1 - left), 0.0)
    if count < 3 or value <= 0:
        return Duration(value, unknown_variation)
    # A moving average has seen as many values as its weight allows for, so its spread comes out too small.
    seen = min(count, (2 - weight) / weight)
    variance = max(square - value * value, 0.0) * seen / max(seen - 1, 1)
    return Duration(value, math.sqrt(variance) / value)


def spread_out(duration: Duration, strata: int = STRATA) -> tuple[float, ...]:
    """Durations for jobs to take in turn: evenly drawn, in a mixed order, and with the right mean.

    If all took exactly the mean, jobs that started together would end together, and the first of ten to end
    would seem ten times as far away as it is.
    """
    if duration.mean_seconds < SHORTEST_SECONDS:
        return (0.0,)
    shape, scale = _weibull(duration)
    drawn = [scale * math.pow(-math.log1p(-share), 1 / shape) for share in shares(strata)]
    correction = duration.mean_seconds * strata / sum(drawn)
    return tuple(seconds * correction for seconds in drawn)


def remaining_seconds(duration: Duration, *, ran_seconds: float, share: float) -> float:
    """How much longer a run takes that has taken `ran_seconds`: the time by which `share` of such runs have ended."""
    if duration.mean_seconds < SHORTEST_SECONDS:
        return 0.0
    shape, scale = _weibull(duration)
    ran = max(ran_seconds, 0.0)
    try:
        ends = scale * math.pow(math.pow(ran / scale, shape) - math.log1p(-share), 1 / shape)
    except OverflowError:
        ends = math.inf
    # An overflow means that it ran far longer than such runs ever did, so it may end at any moment.
    return max(ends - ran, 0.0) if ends < math.inf else 0.0


def seconds_left(running: Sequence[tuple[Duration, float]]) -> list[float]:
    """When each of several runs ends, given how long they take and how long they have run.

    The first of ten to end is much sooner than any one of them can be expected to. So it is worked out when the first,
    the second, ... of all of them ends; which one that is goes by when each is as likely to have ended as not.
    """
    shares_of_each = shares(LOOKS_AT_A_RUN)
    by_then = sorted(
        remaining_seconds(duration, ran_seconds=ran, share=share)
        for duration, ran in running
        for share in shares_of_each
    )
    middles = [remaining_seconds(duration, ran_seconds=ran, share=0.5) for duration, ran in running]
    left = [0.0] * len(running)
    for number, which in enumerate(sorted(range(len(running)), key=middles.__getitem__), start=1):
        # The mean place of the k-th of n among all that could be is k / (n + 1).
        left[which] = by_then[number * len(by_then) // (len(running) + 1)]
    return left


def shares(count: int) -> list[float]:
    """The middles of `count` equal parts of 0 to 1, the middle one first, neighbours far apart."""
    step = _coprime_near(count * (math.sqrt(5) - 1) / 2, count)
    return [((number * step + count // 2) % count + 0.5) / count for number in range(count)]


def _coprime_near(wanted: float, count: int) -> int:
    steps = (step for step in range(1, count + 1) if math.gcd(step, count) == 1)
    return min(steps, key=lambda step: abs(step - wanted))


def _weibull(duration: Duration) -> tuple[float, float]:
    """Shape and scale for a mean and a variation; the shape by Justus' approximation, which is within some percent."""
    variation = min(max(duration.variation, LEAST_VARIATION), MOST_VARIATION)
    shape = math.pow(variation, -1.086)
    return shape, duration.mean_seconds / math.gamma(1 + 1 / shape)
