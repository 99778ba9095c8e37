"""Computes when each job in line will start, from the line, the leases, the groups and the workers of a store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from qo.job import Job
from qo.policy.estimates.base import duration_of_task, duration_of_tier
from qo.policy.estimates.durations import AverageRun, average_among, capacity_among
from qo.policy.estimates.replay import (
    STEADY_WEIGHT,
    Duration,
    GivenBack,
    Kind,
    duration_from,
    replay,
    seconds_left,
    spread_out,
    steady,
)
from qo.policy.estimates.turns import Needs, Passed
from qo.policy.groups import GLOBAL
from qo.policy.turns import is_near
from qo.settings.sections import Settings
from qo.values import GroupStatus, InLine, Lease, Mean, WorkerInfo

MARGIN_STARTS = 2
MARGIN_AT_LEAST_SECONDS = 1.0
GUESS_VARIES = 0.3
"""The variation that is assumed for runs of which none was seen."""


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the store that one replay starts from."""

    now: float
    line: Sequence[InLine]
    leases: Sequence[Lease]
    groups: Sequence[GroupStatus]
    workers: Sequence[WorkerInfo]
    means: Mapping[str, Mean]


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one replay. `ranks` are places in line from 0, `starts` seconds from `made_at` by rank."""

    made_at: float
    ranks: Mapping[str, int]
    starts: Sequence[float]
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


def forecast_line(situation: Situation, settings: Settings) -> Forecast:
    """Play the line forward."""
    durations = _Durations(situation.means, settings)
    resources = _Resources(situation, durations)
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
    starts = replay(
        [*line, kinds.setdefault(newcomer, len(kinds))],
        list(kinds),
        rooms=resources.rooms,
        given_back=resources.given_back,
        durations=[spread_out(duration) for duration in durations.all],
        passed=Passed(
            times={rank: job.passed for rank, job in enumerate(situation.line) if job.passed},
            turns=frozenset(rank for rank, job in enumerate(situation.line) if job.turn),
            turn_after=settings.queue.turn_after,
        ),
    )
    starting = [job for job, start in zip(situation.line, starts, strict=False) if start == 0]
    return Forecast(
        made_at=situation.now,
        ranks={job.id: rank for rank, job in enumerate(situation.line)},
        starts=starts[:-1],
        newcomer_seconds=starts[-1],
        tasks=[job.task for job in situation.line],
        tiers=[job.tier for job in situation.line],
        staffed=frozenset(task for worker in situation.workers for task in worker.tasks),
        spare_capacity=_spare_capacity(situation, starting),
        spare_slots=_spare_slots(situation, starting),
        margin_seconds=_margin(situation, durations),
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
            for task, tier in {(task, tier) for task, tier, _ in numbers}
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


def _margin(situation: Situation, durations: _Durations) -> float:
    """Twice the time between two starts, about: the duration of a run, divided by how many run at once."""
    jobs: Sequence[Job | InLine] = [lease.job for lease in situation.leases] or situation.line[:100]
    if not jobs:
        return MARGIN_AT_LEAST_SECONDS
    mean = sum(durations.all[durations.of(job)].mean_seconds for job in jobs) / len(jobs)
    return max(MARGIN_STARTS * mean / max(len(situation.leases), 1), MARGIN_AT_LEAST_SECONDS)


class _Durations:
    """How long runs take, by the task where it has run, else by the tier, else by the first guess."""

    def __init__(self, means: Mapping[str, Mean], settings: Settings) -> None:
        self._means = means
        self._settings = settings
        self._index: dict[str, int] = {}
        self.all: list[Duration] = []

    def of(self, job: Job | InLine) -> int:
        task = duration_of_task(job.task)
        tier = None if job.tier is None else duration_of_tier(job.tier)
        guess = self._settings.estimate.first_guess_secs
        tier_guess = guess
        if job.tier is not None and job.tier in self._settings.tiers:
            tier_guess = self._settings.tiers[job.tier].first_guess_secs
        if task in self._means:
            return self._known(task, first=guess)
        if tier is not None and tier in self._means:
            return self._known(tier, first=tier_guess)
        return self._add(f"first guess {tier_guess}", Duration(tier_guess, GUESS_VARIES))

    def _known(self, name: str, *, first: float) -> int:
        if name in self._index:
            return self._index[name]
        mean, weight = self._means[name], self._settings.estimate.newest_weight
        if steady(name) in self._means:
            mean, weight = self._means[steady(name)], STEADY_WEIGHT
        duration = duration_from(mean=mean.value, mean_square=mean.square, count=mean.count, first=first, weight=weight)
        return self._add(name, duration)

    def none(self) -> int:
        return self._add("none", Duration(0))

    def _add(self, name: str, duration: Duration) -> int:
        if name not in self._index:
            self._index[name] = len(self.all)
            self.all.append(duration)
        return self._index[name]


class _Resources:
    """Limited groups and worker capacity as the replay's numbers: how much is free of each, and when more will be."""

    def __init__(self, situation: Situation, durations: _Durations) -> None:
        self.rooms: list[int] = []
        self.given_back: list[GivenBack] = []
        self._of_group: dict[str, tuple[int, ...]] = {}
        self._limited: dict[str, int] = {}
        self._shut: dict[str, int] = {}
        self._pools: list[tuple[frozenset[str], int]] = []
        self._pool_of_worker: dict[str, int] = {}
        self._pools_of_task: dict[str, tuple[int, ...]] = {}
        for group in situation.groups:
            self._add_group(group, situation)
        for worker in situation.workers:
            self._add_worker(worker)
        self._pools.sort(key=lambda pool: len(pool[0]))  # workers that take few other tasks are tried first
        self._add_leases(situation, durations)

    def of(self, groups: Sequence[str]) -> tuple[int, ...]:
        return tuple(resource for group in groups for resource in self._of_group.get(group, ()))

    def needs_of(self, job: InLine, pools: tuple[int, ...]) -> Needs:
        limited = [group for group in job.groups if group in self._limited and group != GLOBAL]
        return Needs(
            near=tuple(self._limited[group] for group in limited if is_near(group, job.task)),
            far=tuple(self._limited[group] for group in limited if not is_near(group, job.task)),
            shut=tuple(self._shut[group] for group in job.groups if group in self._shut),
            can_start=bool(pools),
        )

    def pools_of(self, task: str) -> tuple[int, ...]:
        if task not in self._pools_of_task:
            self._pools_of_task[task] = tuple(pool for tasks, pool in self._pools if task in tasks)
        return self._pools_of_task[task]

    def all_pools(self) -> tuple[int, ...]:
        return tuple(pool for _, pool in self._pools)

    def _add(self, room: int) -> int:
        self.rooms.append(room)
        return len(self.rooms) - 1

    def _add_group(self, group: GroupStatus, situation: Situation) -> None:
        resources = []
        if group.limit is not None:
            self._limited[group.group] = self._add(group.limit - group.active)
            resources.append(self._limited[group.group])
        if group.paused or group.limit == 0:
            resources.append(self._add(0))  # nothing gives this resource back
            self._shut[group.group] = resources[-1]
        elif group.closed_until is not None:
            resources.append(self._add(0))
            self._shut[group.group] = resources[-1]
            opens_after = max(group.closed_until.timestamp() - situation.now, 0.0)
            self.given_back.append(GivenBack(opens_after, (resources[-1],) * len(situation.line)))
        if resources:
            self._of_group[group.group] = tuple(resources)

    def _add_worker(self, worker: WorkerInfo) -> None:
        tasks = frozenset(worker.tasks)
        pool = next((pool for known, pool in self._pools if known == tasks), None)
        if pool is None:
            pool = self._add(0)
            self._pools.append((tasks, pool))
        self.rooms[pool] += worker.capacity
        self._pool_of_worker[worker.name] = pool

    def _add_leases(self, situation: Situation, durations: _Durations) -> None:
        """Adds the running jobs: the slots and capacity that each holds, and when it will probably give them back."""
        live = [lease for lease in situation.leases if lease.job.worker in self._pool_of_worker]
        orphaned = [lease for lease in situation.leases if lease.job.worker not in self._pool_of_worker]
        running = [(durations.all[durations.of(lease.job)], _ran_seconds(lease, situation.now)) for lease in live]
        for lease, left in zip(live, seconds_left(running), strict=True):
            held = self._slots_of(lease)
            pool = self._pool_of_worker[lease.job.worker or ""]
            if self.rooms[pool] > 0:  # a worker that came back with a smaller capacity may run more than that
                self.rooms[pool] -= 1
                held = (*held, pool)
            self.given_back.append(GivenBack(left, held))
        for lease in orphaned:
            # Its worker is gone, so its slots are not given back before the lease ends.
            left = max(lease.expires_at.timestamp() - situation.now, 0.0)
            self.given_back.append(GivenBack(left, self._slots_of(lease)))

    def _slots_of(self, lease: Lease) -> tuple[int, ...]:
        return tuple(self._limited[group] for group in lease.slots if group in self._limited)


def _ran_seconds(lease: Lease, now: float) -> float:
    return 0.0 if lease.job.started_at is None else now - lease.job.started_at.timestamp()
