"""Computes when each job in line will start, from the line, the leases, the groups and the workers of a store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from qo.job import Job
from qo.policy.estimates.durations import AverageRun, average_among, capacity_among
from qo.policy.estimates.replay import Kind, Played, replay, spread_out
from qo.policy.estimates.resources import Durations, Resources
from qo.policy.estimates.situation import Situation
from qo.policy.estimates.turns import Passed
from qo.policy.groups import GLOBAL
from qo.settings.sections import Settings
from qo.values import InLine

MARGIN_STARTS = 2
MARGIN_AT_LEAST_SECONDS = 1.0


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one replay. `ranks` are places in line from 0, `starts` seconds from `made_at` by rank."""

    made_at: float
    situation: Situation
    ranks: Mapping[str, int]
    starts: Sequence[float]
    ends: Sequence[float]
    """When the run of each job in line would end, likewise; NEVER where that is not known."""
    lease_ends: Mapping[str, float]
    """By token, when the run of a job that holds a lease will probably end, in seconds from `made_at`."""
    newcomer_seconds: float
    """When a job would start that joins behind all others and is in no limited group of its own."""
    tasks: Sequence[str]
    tiers: Sequence[str | None]
    staffed: frozenset[str]
    """The tasks that a live worker takes."""
    spare_capacity: Mapping[str, int]
    """By task, how much capacity of workers is free once all jobs in line that can start have started."""
    spare_slots: Mapping[str, int]
    """By group that is limited or closed, how many of its slots are free then."""
    margin_seconds: float
    has_data: bool
    """Whether a run of any task or tier in the line or under way was measured before."""
    shut: Mapping[str, str]
    """The groups in which no job can start at present, and the reason."""
    capacity: int
    first_suspect: int | None = None
    """The rank of the first suspect. A worker takes few of them at a time, or one alone: nobody can say when."""
    averages: Mapping[tuple[str, str | None], AverageRun]
    """How long a run takes, by the tasks and tiers in line. The base estimate is made of this and `capacity`."""

    def has_suspects_up_to(self, position: int) -> bool:
        """Whether the job at this position, or one ahead of it, is a suspect."""
        return self.first_suspect is not None and position > self.first_suspect

    def has_room_for(self, job: Job) -> bool:
        """Whether a job that joined after the replay could start now, and all ahead of it too."""
        spare = self.spare_capacity.get(job.task, 0)
        return spare >= (job.position or 1) and all(self.spare_slots.get(group, 1) > 0 for group in job.groups)


class _Play(msgspec.Struct):
    """The input of a replay, made from a situation. The last in its line is a newcomer behind all others."""

    line: list[int]
    kinds: list[Kind]
    durations: Durations
    resources: Resources
    passed: Passed

    def run(self, *, until_started: int | None = None) -> Played:
        return replay(
            self.line,
            self.kinds,
            rooms=self.resources.rooms,
            given_back=self.resources.given_back,
            durations=[spread_out(duration) for duration in self.durations.all],
            passed=self.passed,
            until_started=until_started,
        )


def start_of(rank: int, situation: Situation, settings: Settings) -> float:
    """When the job of this rank starts, in seconds; NEVER if it cannot. Cheaper than a forecast of the whole line."""
    return _prepared(situation, settings).run(until_started=rank).starts[rank]


def _prepared(situation: Situation, settings: Settings) -> _Play:
    durations = Durations(situation.means, settings)
    resources = Resources(situation, durations)
    kinds: dict[Kind, int] = {}
    numbers: dict[tuple[str, str | None, tuple[str, ...]], int] = {}
    line = []
    for job in situation.line:
        alike = (job.task, job.tier, job.groups)
        number = numbers.get(alike)
        if number is None:
            pools = resources.pools_of(job.task)
            kind = Kind(resources.of(job.groups), pools, durations.of(job), resources.needs_of(job, pools))
            number = numbers[alike] = kinds.setdefault(kind, len(kinds))
        line.append(number)
    newcomer = Kind(resources.of((GLOBAL,)), resources.all_pools(), durations.none())
    line.append(kinds.setdefault(newcomer, len(kinds)))
    passed = Passed(
        times={rank: job.passed for rank, job in enumerate(situation.line) if job.passed},
        turns=frozenset(rank for rank, job in enumerate(situation.line) if job.turn),
        turn_after=settings.queue.turn_after,
    )
    return _Play(line, list(kinds), durations, resources, passed)


def forecast_line(situation: Situation, settings: Settings) -> Forecast:
    """Play the line forward."""
    play = _prepared(situation, settings)
    starts, ends = play.run()
    starting = [job for job, start in zip(situation.line, starts, strict=False) if start == 0]
    return Forecast(
        made_at=situation.now,
        situation=situation,
        ranks={job.id: rank for rank, job in enumerate(situation.line)},
        starts=starts[:-1],
        ends=ends[:-1],
        lease_ends=play.resources.lease_ends,
        newcomer_seconds=starts[-1],
        tasks=[job.task for job in situation.line],
        tiers=[job.tier for job in situation.line],
        staffed=frozenset(task for worker in situation.workers for task in worker.tasks),
        spare_capacity=_spare_capacity(situation, starting),
        spare_slots=_spare_slots(situation, starting),
        margin_seconds=_margin(situation, play.durations),
        has_data=bool(situation.means),
        shut={
            group.group: "is paused" if group.paused else "has a limit of 0"
            for group in situation.groups
            if group.paused or group.limit == 0
        },
        capacity=capacity_among(
            situation.workers,
            limit=next((group.limit for group in situation.groups if group.group == GLOBAL), None),
        ),
        first_suspect=next((rank for rank, job in enumerate(situation.line) if job.suspicion), None),
        averages={
            (task, tier): average_among(situation.means, settings, task=task, tier=tier)
            for task, tier in {(job.task, job.tier) for job in situation.line}
        },
    )


def _spare_capacity(situation: Situation, starting: Sequence[InLine]) -> dict[str, int]:
    """Counts each job that starts against every task, so that the answer is rather too small than too large."""
    running = Counter(lease.job.worker for lease in situation.leases)
    spare: Counter[str] = Counter()
    for worker in situation.workers:
        for task in worker.tasks:
            spare[task] += max(worker.capacity - running[worker.name], 0)
    return {task: capacity - len(starting) for task, capacity in spare.items()}


def _spare_slots(situation: Situation, starting: Sequence[InLine]) -> dict[str, int]:
    taken = Counter(group for job in starting for group in job.groups)
    spare = {
        group.group: group.limit - group.active - taken[group.group]
        for group in situation.groups
        if group.limit is not None
    }
    return spare | {group.group: 0 for group in situation.groups if group.closed_until is not None}


def _margin(situation: Situation, durations: Durations) -> float:
    """Twice the time between two starts, about: the duration of a run, divided by how many run at once."""
    jobs: Sequence[Job | InLine] = [lease.job for lease in situation.leases] or situation.line[:100]
    if not jobs:
        return MARGIN_AT_LEAST_SECONDS
    mean = sum(durations.all[durations.of(job)].mean_seconds for job in jobs) / len(jobs)
    return max(MARGIN_STARTS * mean / max(len(situation.leases), 1), MARGIN_AT_LEAST_SECONDS)
