"""Estimator: when each waiting job will probably start, worked out once for all who ask.

Every few seconds, and only while somebody asks, the line is read and played forward in a thread (`policy/replay.py`);
reading one job's estimate is then a look-up. What was promised to a job first is remembered until it starts, and how
wrong that was is kept in the store, where `policy/ranges.py` learns from it. Nothing is scheduled by estimates.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import msgspec

from qo.errors import QoError, StoreUnavailable
from qo.job import Basis, Estimate, Job, State
from qo.policy.estimate import (
    base_estimate,
    duration_of_task,
    duration_of_tier,
    no_data,
    no_worker,
    not_known,
    starts_now,
)
from qo.policy.ranges import Multipliers, learn, multiplier, next_aim, ranged_estimate
from qo.policy.replay import NEVER, steady
from qo.runtime.forecast import Forecast, Situation, forecast_line
from qo.runtime.waiting import AverageRun, average_duration
from qo.settings import Settings
from qo.spans import system_seconds
from qo.store.base import Store
from qo.threads import in_thread

log = logging.getLogger("qo.estimator")

EVERY_SECONDS = 5.0
WANTED_FOR_SECONDS = 60.0
"""how long estimates are kept fresh after somebody asked for one"""
LOOK_AT_MOST = 10_000
"""jobs that are played forward; for those further back, their pace is taken"""
EVENTS_AT_ONCE = 1000
LENT_BY_EACH_TASK = 100


class Promise(msgspec.Struct, frozen=True, gc=False):
    """What the first replay that saw a job said of it, and the range that was made of that."""

    task: str
    made_at: float
    seconds: float
    margin_seconds: float
    multipliers: Multipliers


class Estimator:
    """One for each serving process. `clock` gives seconds since 1970."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        clock: Callable[[], float] = system_seconds,
        every_seconds: float = EVERY_SECONDS,
    ) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self._every_seconds = every_seconds
        self._forecast: Forecast | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._wanted_until = 0.0
        self._wanted = asyncio.Event()
        self._cursor: int | None = None
        self._promises: dict[str, Promise] = {}
        self._errors: dict[str, tuple[float, ...]] = {}
        """how wrong earlier estimates were, by task, as read from the store"""
        self._ranges: dict[str, Multipliers] = {}
        self._aims: dict[str, float] = {}
        """the share that each task's range aims at, moved by what comes of this process's promises"""
        self._range_of_others = learn((), (), settings.estimate.learnt_coverage, settings.estimate)
        """for a task that the last replay did not see"""

    # --- asking -----------------------------------------------------------------------------------------------

    def estimate(self, job_id: str) -> Estimate | None:
        """What the last replay says of a job: a look-up. None for one that it did not see, or that cannot start
        as things stand (a pause, a limit of 0, no worker)."""
        self._want()
        forecast = self._forecast
        if forecast is None or not forecast.has_data or job_id not in forecast.ranks:
            return None
        rank = forecast.ranks[job_id]
        if forecast.starts[rank] == NEVER:
            return None
        basis = forecast.averages[forecast.tasks[rank], forecast.tiers[rank]].basis
        return self._from_forecast(forecast, rank, basis)

    async def estimate_of(self, job: Job) -> Estimate | None:
        """The estimate of a job as it was just read, from a replay that is at most a few seconds old.

        All who ask meanwhile share one replay. Where no run has been seen yet, it is the base estimate with the tier's
        first guess. Where that cannot be told either, or the job cannot start as things stand, the estimate has a
        message that says why and no numbers. None for a job that is not in line.
        """
        (estimate,) = await self.estimates_of([job])
        return estimate

    async def estimates_of(self, jobs: Sequence[Job]) -> list[Estimate | None]:
        """The same of several jobs, in order. Where none of them is in line nothing is computed."""
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
                position=job.position,
                active_workers=forecast.places,
                average_seconds=average.seconds,
                settings=self._settings.estimate,
                basis=average.basis,
            )
        if rank is None:
            # It came after the replay. Whoever has its place in line now is about as far from the start.
            return self._at_position(forecast, job, average.basis)
        return self._from_forecast(forecast, rank, average.basis)

    async def _average(self, forecast: Forecast, task: str, tier: str | None) -> AverageRun:
        known = forecast.averages.get((task, tier))
        return await average_duration(self._store, self._settings, task=task, tier=tier) if known is None else known

    async def fresh(self) -> Forecast:
        """A forecast that is not older than the time between two; made now if there is none."""
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
        # Those who cannot start hold up nobody: the first from there on who can.
        here = (start for start in forecast.starts[job.position - 1 :] if start != NEVER)
        seconds = next(here, forecast.newcomer_seconds * max(job.position / behind, 1.0))
        if seconds == NEVER:
            return not_known("nothing that runs now will make room for it")
        return self._ranged(forecast, seconds, task=job.task, position=job.position, basis=basis)

    def _ranged(self, forecast: Forecast, seconds: float, *, task: str, position: int, basis: Basis) -> Estimate:
        return ranged_estimate(
            max(seconds - (self._clock() - forecast.made_at), 0.0),
            self._ranges.get(task, self._range_of_others),
            margin_seconds=forecast.margin_seconds,
            position=position,
            settings=self._settings.estimate,
            basis=basis,
        )

    # --- keeping fresh ----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Keep fresh in the background, from now on until closed. Starting twice is harmless."""
        if self._keeping is None:
            self._keeping = asyncio.create_task(self.keep_fresh(), name="qo-estimates")

    async def keep_fresh(self) -> None:
        """Work out estimates every few seconds while somebody asks for them, until cancelled; else do nothing."""
        while True:
            await self._wanted.wait()
            try:
                if self._age() >= self._every_seconds / 2:  # else whoever asked was first
                    await self.refresh()
            except QoError as error:
                log.warning("estimates cannot be worked out for now, trying again: %s", error)
            except Exception:
                # Whatever it was, it may not happen with the next line.
                log.exception("estimates could not be worked out, trying again")
            if self._clock() > self._wanted_until:
                self._wanted.clear()
            await asyncio.sleep(self._every_seconds)

    def _want(self) -> None:
        self._wanted_until = self._clock() + WANTED_FOR_SECONDS
        self._wanted.set()

    def _age(self) -> float:
        # A clock that was set back must not keep an old forecast fresh.
        return NEVER if self._forecast is None else abs(self._clock() - self._forecast.made_at)

    async def refresh(self) -> None:
        """Work out estimates now. All who call while that is under way wait for the same."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._refresh(), name="qo-estimates")
        refreshing = self._refreshing
        try:
            await asyncio.shield(refreshing)  # whoever gives up waiting must not take it from the others
        except asyncio.CancelledError:
            me = asyncio.current_task()
            if refreshing.cancelled() and me is not None and not me.cancelling():
                # It was given up, not who waits for it.
                raise StoreUnavailable("The queue is being closed; connect again.") from None
            raise

    async def close(self) -> None:
        """Give up what is under way. To be called before the store is closed."""
        under_way = [task for task in (self._keeping, self._refreshing) if task is not None]
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)

    async def _refresh(self) -> None:
        """Read the line, learn from what has started, and play it forward in a thread."""
        situation = await self.read()
        await self._learn_from(await self._starts())
        await self._read_errors({job.task for job in situation.line})
        self._forecast = await in_thread(self._work_out, situation)

    def _work_out(self, situation: Situation) -> Forecast:
        """In a thread; one at a time."""
        self._learn_ranges()
        forecast = forecast_line(situation, self._settings)
        # Whoever left the line without having started is forgotten.
        promises = {job_id: promise for job_id, promise in self._promises.items() if job_id in forecast.ranks}
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
        self._promises = promises
        return forecast

    # --- reading ----------------------------------------------------------------------------------------------

    async def read(self) -> Situation:
        """What one replay needs, in a few reads: they need not fit together to the millisecond."""
        store = self._store
        line = await store.line(limit=LOOK_AT_MOST)
        leases, groups, workers = await asyncio.gather(store.leases(), store.groups(), store.workers())
        kinds = {(job.task, job.tier) for job in line} | {(lease.job.task, lease.job.tier) for lease in leases}
        names = {duration_of_task(task) for task, _ in kinds}
        names |= {duration_of_tier(tier) for _, tier in kinds if tier is not None}
        names |= {steady(name) for name in names}
        return Situation(
            now=self._clock(),
            line=line,
            leases=leases,
            groups=groups,
            workers=workers,
            means=await store.averages(sorted(names)),
        )

    async def _starts(self) -> dict[str, float]:
        """When jobs have started since the last look, by the store's clock."""
        if self._cursor is None:
            self._cursor = await self._store.newest_event()
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
        """How wrong the first promises to those were that have started."""
        wrong: dict[str, list[float]] = defaultdict(list)
        for job_id, started_at in starts.items():
            promise = self._promises.pop(job_id, None)
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
        await asyncio.gather(*(self._store.record_estimate_errors(task, found) for task, found in wrong.items()))
        for task in wrong:
            self._errors.pop(task, None)

    async def _read_errors(self, tasks: set[str]) -> None:
        """Of the tasks in line; those of others are forgotten, and come back from the store when needed."""
        self._errors = {task: errors for task, errors in self._errors.items() if task in tasks}
        unread = [task for task in tasks if task not in self._errors]
        found = await asyncio.gather(*(self._store.estimate_errors(task) for task in unread))
        self._errors.update(zip(unread, found, strict=True))
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
