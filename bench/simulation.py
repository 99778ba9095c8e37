"""Plays a simulated day on the real store and estimator.

Only time is simulated: jobs are submitted, claimed and finished through a store whose clock is set, and the estimator
reads it every few simulated seconds, as it does in a server. What counts is the first estimate that a job got after it
had joined the line; a job that started before anybody could ask is not counted.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from bench.scoring import Promise, Result
from bench.simulated_days import DAY_SECONDS, Day, WorkerChange
from qo.job import State
from qo.loops.system import System
from qo.policy.estimates.base import base_estimate, duration_of_task, duration_of_tier
from qo.policy.estimates.durations import AverageRun
from qo.policy.estimates.replay import STEADY_WEIGHT, steady
from qo.queue.averages import average_duration
from qo.queue.estimator import Estimator
from qo.settings import Settings
from qo.store.contract import Store
from qo.store.sqlite import SQLiteStore
from qo.values import Average, Lease, Outcome, Registration

REFRESH_SECONDS = 5
WARM_UP_SHARE = 0.05
"""The share of the day at its start that is not counted, because the estimator has seen nothing yet."""
STARTS_AT_MS = 1_800_000_000_000
LEASE_MS = 30 * DAY_SECONDS * 1000


class SimulatedTime:
    """The store's operations, at the simulated time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.now = 0.0
        store.clock = lambda: STARTS_AT_MS + round(self.now * 1000)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def clock(self) -> float:
        return STARTS_AT_MS / 1000 + self.now


@dataclass
class SimulatedWorker:
    capacity: int = 0
    running: int = 0


@dataclass
class Simulation:
    day: Day
    store: Any
    estimator: Estimator
    settings: Settings
    workers: dict[str, SimulatedWorker] = field(default_factory=dict)
    promises: dict[str, Promise] = field(default_factory=dict)
    waiting: set[str] = field(default_factory=set)
    ends: list[tuple[float, int, str, Lease]] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=itertools.count)
    replays: int = 0

    async def play(self) -> Result:
        if self.day.limits:
            await self.store.set_limits(self.day.limits)
        runs = {arrival.submission.id: arrival.seconds for arrival in self.day.arrivals}
        arrivals, changes = iter(self.day.arrivals), iter(self.day.workers)
        arrival, change = next(arrivals, None), next(changes, None)
        tick = float(REFRESH_SECONDS)
        while arrival is not None or self.waiting:
            upcoming = [at for at in (arrival and arrival.at, change and change.at) if at is not None]
            ending = [self.ends[0][0]] if self.ends else []
            at = min(*upcoming, *ending, tick) if upcoming or ending else tick
            self.store.now = at
            if change is not None and change.at == at:
                await self._change_worker(change)
                change = next(changes, None)
            elif arrival is not None and arrival.at == at:
                await self.store.submit([arrival.submission])
                self.waiting.add(arrival.submission.id)
                arrival = next(arrivals, None)
            elif ending and ending[0] == at:
                await self._finish(*heapq.heappop(self.ends)[2:])
            else:
                tick += REFRESH_SECONDS
                if self.waiting:
                    await self._tell()
                continue
            await self._claim(runs)
        begun = self.day.arrivals[-1].at * WARM_UP_SHARE
        counted = [
            promise for promise in self.promises.values() if promise.at >= begun and not math.isnan(promise.waited)
        ]
        return Result(self.day, counted, self.replays, len(self.day.arrivals))

    async def _change_worker(self, change: WorkerChange) -> None:
        worker = self.workers.setdefault(change.name, SimulatedWorker())
        worker.capacity = change.capacity
        tasks = self.day.tasks if change.capacity else ()
        await self.store.register(
            Registration(name=change.name, tasks=tasks, capacity=max(change.capacity, 1), lifetime_ms=LEASE_MS)
        )

    async def _claim(self, runs: dict[str, float]) -> None:
        for name, worker in self.workers.items():
            free = worker.capacity - worker.running
            if free <= 0 or not self.waiting:
                continue
            claimed = await self.store.claim(
                worker=name,
                tasks=[task.name for task in self.day.tasks],
                capacity=free,
                lease_ms=LEASE_MS,
                claim_id=f"claim-{next(self.numbers)}",
            )
            for lease in claimed.leases:
                worker.running += 1
                self.waiting.discard(lease.job.id)
                heapq.heappush(self.ends, (self.store.now + runs[lease.job.id], next(self.numbers), name, lease))
                if lease.job.id in self.promises:
                    promise = self.promises[lease.job.id]
                    promise.waited = self.store.now - promise.at

    async def _finish(self, worker: str, lease: Lease) -> None:
        self.workers[worker].running -= 1
        estimate, tier = self.settings.estimate, lease.job.tier
        names = [(duration_of_task(lease.job.task), estimate.first_guess_secs)]
        if tier is not None:
            names.append((duration_of_tier(tier), self.settings.tiers[tier].first_guess_secs))
        averages = tuple(
            Average(name=name, first=first, weight=weight)
            for base_name, first in names
            for name, weight in ((base_name, estimate.newest_weight), (steady(base_name), STEADY_WEIGHT))
        )
        await self.store.finish(
            [Outcome(job_id=lease.job.id, token=lease.token, state=State.SUCCEEDED, averages=averages)]
        )

    async def _tell(self) -> None:
        """Make one replay, and record the estimates of jobs that joined since the last one."""
        await self.estimator.refresh()
        self.replays += 1
        forecast = await self.estimator.fresh()
        new = [(job_id, rank) for job_id, rank in forecast.ranks.items() if job_id not in self.promises]
        averages: dict[tuple[str, str | None], AverageRun] = {}
        for job_id, rank in new:
            learnt = self.estimator.estimate(job_id)
            if learnt is None:
                continue
            kind = (forecast.tasks[rank], None)
            if kind not in averages:
                averages[kind] = await average_duration(self.store, self.settings, task=kind[0], tier=kind[1])
            base = base_estimate(
                position=rank + 1,
                active_workers=forecast.capacity,
                average_seconds=averages[kind].seconds,
                settings=self.settings.estimate,
            )
            self.promises[job_id] = Promise(self.store.now, learnt, base, forecast.tasks[rank])


async def play(day: Day, settings: Settings | None = None) -> Result:
    settings = settings or Settings()
    store = SimulatedTime(await SQLiteStore.open(":memory:"))
    try:
        estimator = Estimator(store, settings, system=System(clock=lambda: round(store.clock() * 1000)))  # type: ignore[arg-type]
        return await Simulation(day, store, estimator, settings).play()
    finally:
        await store.close()
