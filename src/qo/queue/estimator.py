"""Estimator: when each waiting job will probably start, worked out once for all callers.

Every few seconds, and only while estimates are asked for, the line is read and played forward in a thread
(`policy/estimates/replay.py`); reading one job's estimate is then a look-up. The first estimate of a job is remembered
until the job starts. How wrong it was is kept in the store, and `policy/estimates/ranges.py` learns from that. Nothing
is scheduled by estimates.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from qo.errors import StoreUnavailable
from qo.job import Basis, Estimate, Job, State
from qo.loops.repeating import repeat
from qo.loops.system import SYSTEM, System
from qo.loops.trouble import Trouble
from qo.policy.estimates.base import (
    base_estimate,
    duration_of_task,
    duration_of_tier,
    less_sure,
    no_data,
    no_worker,
    not_known,
    starts_now,
)
from qo.policy.estimates.durations import AverageRun
from qo.policy.estimates.forecast import Forecast, Situation, forecast_line
from qo.policy.estimates.ranges import Multipliers, learn, multiplier, next_aim, ranged_estimate
from qo.policy.estimates.replay import NEVER, steady
from qo.queue.averages import average_duration
from qo.settings import Settings
from qo.store.contract import Store
from qo.store.paging import read_line

log = logging.getLogger("qo.estimator")

EVERY_SECONDS = 5.0
WANTED_FOR_SECONDS = 60.0
"""How long estimates are kept fresh after the last call that asked for one."""
LOOK_AT_MOST = 10_000
"""How many jobs are played forward. The starts of the jobs behind them are estimated from the pace of the line."""
EVENTS_AT_ONCE = 1000
LENT_BY_EACH_TASK = 100


class Promise(msgspec.Struct, frozen=True, gc=False):
    """The first estimate of a job, and the range that was made of it."""

    task: str
    made_at: float
    seconds: float
    margin_seconds: float
    multipliers: Multipliers


class Estimator:
    """One for each queue. Its times are seconds since 1970, by this machine's clock."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        system: System = SYSTEM,
        every_seconds: float = EVERY_SECONDS,
    ) -> None:
        self._store = store
        self._settings = settings
        self._system = system
        self._every_seconds = every_seconds
        self._forecast: Forecast | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._wanted_until = 0.0
        self.wanted = asyncio.Event()
        """Set while estimates are kept fresh."""
        self._cursor: int | None = None
        self.promises: dict[str, Promise] = {}
        """The first estimate of each job in line, by its id."""
        self._errors: dict[str, tuple[float, ...]] = {}
        """By task, how wrong earlier estimates were, as read from the store."""
        self._ranges: dict[str, Multipliers] = {}
        self._aims: dict[str, float] = {}
        """By task, the share of starts that its range aims at. Each start of a job with an estimate corrects it."""
        self._range_of_others = learn((), (), settings.estimate.learnt_coverage, settings.estimate)
        """The range of a task that the last replay did not see."""

    # --- asking -----------------------------------------------------------------------------------------------

    def estimate(self, job_id: str) -> Estimate | None:
        """A look-up in the last replay. None for a job that the replay did not see, or that cannot start at present
        (a pause, a limit of 0, no worker)."""
        self._want()
        forecast = self._forecast
        if forecast is None or not forecast.has_data or job_id not in forecast.ranks:
            return None
        rank = forecast.ranks[job_id]
        if forecast.starts[rank] == NEVER:
            return None
        basis = forecast.averages[forecast.tasks[rank], forecast.tiers[rank]].basis
        estimate = self._from_forecast(forecast, rank, basis)
        return less_sure(estimate) if forecast.has_suspects_up_to(rank + 1) else estimate

    async def estimate_of(self, job: Job) -> Estimate | None:
        """The estimate of a job as it was just read, from a replay that is at most a few seconds old.

        Callers at the same time share one replay. Before the first run of a task, this is the base estimate with the
        tier's first guess. Without a first guess, and for a job that cannot start at present, the estimate has no
        numbers and a message that says why. None for a job that is not in line.
        """
        (estimate,) = await self.estimates_of([job])
        return estimate

    async def estimates_of(self, jobs: Sequence[Job]) -> list[Estimate | None]:
        """The same for several jobs, in order. Nothing is computed if none of them is in line."""
        in_line = [job for job in jobs if job.position is not None]
        if not in_line:
            return [None] * len(jobs)
        forecast = await self.fresh()
        averages = {kind: await self._average(forecast, *kind) for kind in {(job.task, job.tier) for job in in_line}}
        return [self._told(forecast, job, averages) for job in jobs]

    def _told(
        self, forecast: Forecast, job: Job, averages: Mapping[tuple[str, str | None], AverageRun]
    ) -> Estimate | None:
        if job.position is None:
            return None
        estimate = self._worked_out(forecast, job, job.position, averages)
        return less_sure(estimate) if forecast.has_suspects_up_to(job.position) else estimate

    def _worked_out(
        self, forecast: Forecast, job: Job, position: int, averages: Mapping[tuple[str, str | None], AverageRun]
    ) -> Estimate:
        if job.task not in forecast.staffed:
            return no_worker(job.task)
        for group in job.groups:
            if group in forecast.shut:
                return not_known(f"group {group} {forecast.shut[group]}")
        rank = forecast.ranks.get(job.id)
        if forecast.has_room_for(job) if rank is None else forecast.starts[rank] == 0:
            return starts_now()
        if rank is not None and forecast.starts[rank] == NEVER:
            return not_known("nothing that runs now will make room for it")
        average = averages[job.task, job.tier]
        if average.basis is Basis.FIRST_GUESS and job.tier not in self._settings.tiers:
            return no_data(job.task)
        if not forecast.has_data:
            return base_estimate(
                position=position,
                active_workers=forecast.capacity,
                average_seconds=average.seconds,
                settings=self._settings.estimate,
                basis=average.basis,
            )
        if rank is None:
            # It came after the replay. The job that the replay saw at its place is about as far from its start.
            return self._at_position(forecast, job, average.basis)
        return self._from_forecast(forecast, rank, average.basis)

    async def _average(self, forecast: Forecast, task: str, tier: str | None) -> AverageRun:
        known = forecast.averages.get((task, tier))
        return await average_duration(self._store, self._settings, task=task, tier=tier) if known is None else known

    async def fresh(self) -> Forecast:
        """The last forecast; a new one if that is older than `every_seconds`."""
        self._want()
        if self._age() > self._every_seconds:
            await self.refresh()
        assert self._forecast is not None
        return self._forecast

    def _from_forecast(self, forecast: Forecast, rank: int, basis: Basis) -> Estimate:
        seconds, task = forecast.starts[rank], forecast.tasks[rank]
        return self._ranged(forecast, seconds, task=task, position=rank + 1, basis=basis)

    def _at_position(self, forecast: Forecast, job: Job, basis: Basis) -> Estimate:
        assert job.position is not None
        behind = len(forecast.starts) + 1
        # Jobs that cannot start hold up no other: take the first one from here on that can.
        here = (start for start in forecast.starts[job.position - 1 :] if start != NEVER)
        seconds = next(here, forecast.newcomer_seconds * max(job.position / behind, 1.0))
        if seconds == NEVER:
            return not_known("nothing that runs now will make room for it")
        return self._ranged(forecast, seconds, task=job.task, position=job.position, basis=basis)

    def _ranged(self, forecast: Forecast, seconds: float, *, task: str, position: int, basis: Basis) -> Estimate:
        return ranged_estimate(
            max(seconds - (self._now() - forecast.made_at), 0.0),
            self._ranges.get(task, self._range_of_others),
            margin_seconds=forecast.margin_seconds,
            position=position,
            settings=self._settings.estimate,
            basis=basis,
        )

    # --- keeping fresh ----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Keep estimates fresh in the background until closed. Starting twice is harmless."""
        if self._keeping is None:
            self._keeping = asyncio.create_task(self.keep_fresh(), name="qo-estimates")

    async def keep_fresh(self) -> None:
        """Work out estimates every few seconds while they are asked for, until cancelled."""
        trouble = Trouble("estimates cannot be worked out for now", log)
        await repeat(self._refresh_if_wanted, pause=lambda: self._every_seconds, trouble=trouble)

    async def _refresh_if_wanted(self) -> None:
        await self.wanted.wait()
        if self._now() > self._wanted_until:
            self.wanted.clear()
        elif self._age() >= self._every_seconds / 2:  # else a caller has just refreshed them
            await self.refresh()

    def _want(self) -> None:
        self._wanted_until = self._now() + WANTED_FOR_SECONDS
        self.wanted.set()

    def _age(self) -> float:
        # A clock that was set back must not keep an old forecast fresh.
        return NEVER if self._forecast is None else abs(self._now() - self._forecast.made_at)

    def _now(self) -> float:
        return self._system.clock() / 1000

    async def refresh(self) -> None:
        """Work out estimates now. Callers at the same time share one refresh."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._refresh(), name="qo-estimates")
        refreshing = self._refreshing
        try:
            await asyncio.shield(refreshing)  # a cancelled caller must not cancel it for the others
        except asyncio.CancelledError:
            me = asyncio.current_task()
            if refreshing.cancelled() and me is not None and not me.cancelling():
                # The refresh was cancelled, not the caller.
                raise StoreUnavailable("The queue is being closed; connect again.") from None
            raise

    async def close(self) -> None:
        """Cancel the refresh under way. To be called before the store is closed."""
        under_way = [task for task in (self._keeping, self._refreshing) if task is not None]
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)

    async def _refresh(self) -> None:
        """Read the line, learn from what has started, and play it forward in a thread."""
        situation = await self.read()
        await self._learn_from(await self._starts())
        await self._read_errors({job.task for job in situation.line})
        self._forecast = await self._system.call_in_thread(self._work_out, situation)

    def _work_out(self, situation: Situation) -> Forecast:
        """Runs in a thread, one at a time."""
        self._learn_ranges()
        forecast = forecast_line(situation, self._settings)
        # A job that left the line without having started is forgotten.
        promises = {job_id: promise for job_id, promise in self.promises.items() if job_id in forecast.ranks}
        if forecast.has_data:
            for job_id, rank in forecast.ranks.items():
                if job_id not in promises and forecast.starts[rank] != NEVER:
                    promises[job_id] = Promise(
                        forecast.tasks[rank],
                        forecast.made_at,
                        forecast.starts[rank],
                        forecast.margin_seconds,
                        self._ranges[forecast.tasks[rank]],
                    )
        self.promises = promises
        return forecast

    # --- reading ----------------------------------------------------------------------------------------------

    async def read(self) -> Situation:
        """The input of one replay, in a few reads. They need not be of the same millisecond."""
        store = self._store
        line = await read_line(store, limit=LOOK_AT_MOST)
        leases, groups, workers = await asyncio.gather(store.leases(), store.groups(), store.workers())
        kinds = {(job.task, job.tier) for job in line} | {(lease.job.task, lease.job.tier) for lease in leases}
        names = {duration_of_task(task) for task, _ in kinds}
        names |= {duration_of_tier(tier) for _, tier in kinds if tier is not None}
        names |= {steady(name) for name in names}
        return Situation(
            now=self._now(),
            line=line,
            leases=leases,
            groups=groups,
            workers=workers,
            means=(await store.observed(sorted(names))).averages,
        )

    async def _starts(self) -> dict[str, float]:
        """When each job started that has started since the last call, by the store's clock."""
        if self._cursor is None:
            self._cursor = (await self._store.events(None)).cursor
            return {}
        starts: dict[str, float] = {}
        while True:
            feed = await self._store.events(self._cursor, kinds=[State.STARTING], limit=EVENTS_AT_ONCE)
            self._cursor = feed.cursor
            for event in feed.events:
                starts.setdefault(event.subject, event.at.timestamp())
            if len(feed.events) < EVENTS_AT_ONCE:
                return starts

    # --- learning ---------------------------------------------------------------------------------------------

    async def _learn_from(self, starts: Mapping[str, float]) -> None:
        """Record how wrong the first estimates of these started jobs were."""
        wrong: dict[str, list[float]] = defaultdict(list)
        for job_id, started_at in starts.items():
            promise = self.promises.pop(job_id, None)
            if promise is not None:
                right = multiplier(
                    promised_seconds=promise.seconds,
                    actual_seconds=started_at - promise.made_at,
                    margin_seconds=promise.margin_seconds,
                )
                wrong[promise.task].append(right)
                self._aims[promise.task] = next_aim(
                    self._aim_of(promise.task),
                    was_inside=promise.multipliers.low <= right <= promise.multipliers.high,
                    settings=self._settings.estimate,
                )
        if wrong:
            await self._store.observe(errors=wrong)
        for task in wrong:
            self._errors.pop(task, None)

    async def _read_errors(self, tasks: set[str]) -> None:
        """Read the errors of the tasks in line. Those of other tasks are forgotten and read again when needed."""
        self._errors = {task: errors for task, errors in self._errors.items() if task in tasks}
        unread = [task for task in tasks if task not in self._errors]
        if unread:
            self._errors.update((await self._store.observed(tasks=unread)).errors)
        self._ranges = {task: range_ for task, range_ in self._ranges.items() if task in tasks and task not in unread}

    def _learn_ranges(self) -> None:
        if len(self._ranges) == len(self._errors):
            return
        estimate = self._settings.estimate
        of_all = [error for errors in self._errors.values() for error in errors[-LENT_BY_EACH_TASK:]]
        self._range_of_others = learn((), of_all, estimate.learnt_coverage, estimate)
        for task in self._errors.keys() - self._ranges.keys():
            self._ranges[task] = learn(self._errors[task], of_all, self._aim_of(task), estimate)

    def _aim_of(self, task: str) -> float:
        return self._aims.get(task, self._settings.estimate.learnt_coverage)
