"""What jobs compete for as the replay's numbers: how long runs take, and how much room groups and workers have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from qo.job import Job
from qo.policy.estimates.base import duration_of_task, duration_of_tier
from qo.policy.estimates.replay import STEADY_WEIGHT, Duration, GivenBack, duration_from, seconds_left, steady
from qo.policy.estimates.situation import Situation
from qo.policy.estimates.turns import Needs
from qo.policy.groups import GLOBAL
from qo.policy.turns import is_near
from qo.settings.sections import Settings
from qo.values import GroupStatus, InLine, Lease, Mean, WorkerInfo

GUESS_VARIES = 0.3
"""The variation that is assumed for runs of which none was seen."""


class Durations:
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


class Resources:
    """Limited groups and worker capacity as the replay's numbers: how much is free of each, and when more will be."""

    def __init__(self, situation: Situation, durations: Durations) -> None:
        self.rooms: list[int] = []
        self.given_back: list[GivenBack] = []
        self._of_group: dict[str, tuple[int, ...]] = {}
        self._limited: dict[str, int] = {}
        self._shut: dict[str, int] = {}
        self._pools: list[tuple[frozenset[str], int]] = []
        self._pool_of_worker: dict[str, int] = {}
        self._pools_of_task: dict[str, tuple[int, ...]] = {}
        self.lease_ends: dict[str, float] = {}
        """By token, after how many seconds the lease of a running job will probably end."""
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

    def _add_leases(self, situation: Situation, durations: Durations) -> None:
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
            self.lease_ends[lease.token] = left
            self.given_back.append(GivenBack(left, held))
        for lease in orphaned:
            # Its worker is gone, so its slots are not given back before the lease ends.
            left = self.lease_ends[lease.token] = max(lease.expires_at.timestamp() - situation.now, 0.0)
            self.given_back.append(GivenBack(left, self._slots_of(lease)))

    def _slots_of(self, lease: Lease) -> tuple[int, ...]:
        return tuple(self._limited[group] for group in lease.slots if group in self._limited)


def _ran_seconds(lease: Lease, now: float) -> float:
    return 0.0 if lease.job.started_at is None else now - lease.job.started_at.timestamp()
