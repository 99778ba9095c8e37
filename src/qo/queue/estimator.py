"""Estimator: when each waiting job will probably start, worked out once for all callers.

Every few seconds, and only while estimates are asked for, the line is read and played forward in a thread
(`policy/estimates/replay.py`); reading one job's estimate is then a look-up. The first estimate of a job is remembered
until the job starts. How wrong it was is kept in the store, and `policy/estimates/ranges.py` learns from that. Nothing
is scheduled by estimates.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence, Set

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
from qo.policy.estimates.forecast import Forecast, forecast_line
from qo.policy.estimates.newcomer import Newcomer, NewEstimate, rank_of
from qo.policy.estimates.ranges import ranged_estimate
from qo.policy.estimates.replay import NEVER, steady
from qo.policy.estimates.situation import Situation
from qo.queue.averages import average_duration
from qo.queue.learning import Learning
from qo.settings import Settings
from qo.store.contract import Store
from qo.store.paging import read_line

log = logging.getLogger("qo.estimator")

EVERY_SECONDS = 5.0
WANTED_FOR_SECONDS = 60.0
"""How long estimates are kept fresh after the last call that asked for one."""
LOOK_AT_MOST = 10_000
"""How many jobs are played forward. The starts of the jobs behind them are estimated from the pace of the line."""
MUCH_TOO_OLD = 3
"""A forecast that is so many periods old is not shown any more."""
EVENTS_AT_ONCE = 1000
PROMISES_AT_ONCE = 500


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
        self.learning = Learning(store, settings.estimate)
        self.keeps_promises = False
        """Whether the first range that is told of each job is noted in the store. A server does that, because it is
        where people are told."""
        self._noted: Set[str] = frozenset()
        """The jobs in line whose promise was noted."""

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
        forecast = await self.recent()
        averages = {kind: await self._average(forecast, *kind) for kind in {(job.task, job.tier) for job in in_line}}
        return [self._told(forecast, job, averages) for job in jobs]

    def estimates_at_hand(self, jobs: Sequence[Job]) -> list[Estimate | None]:
        """The same from the last replay, however old it is, without waiting for anything. None for a job of a task and
        tier that the replay did not see."""
        self._want()
        forecast = self._forecast
        if forecast is None:
            return [None] * len(jobs)
        return [
            self._told(forecast, job, forecast.averages) if (job.task, job.tier) in forecast.averages else None
            for job in jobs
        ]

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
        if (shut := _shut_out(forecast, job.task, job.groups)) is not None:
            return shut
        rank = forecast.ranks.get(job.id)
        average = averages[job.task, job.tier]
        if rank is not None:
            return self._from_start(forecast, forecast.starts[rank], job.task, job.tier, position, average)
        if forecast.has_room_for(job):
            return starts_now()
        # It came after the replay. The job that the replay saw at its place is about as far from its start.
        return self._later(forecast, _seconds_at(forecast, position), job.task, job.tier, position, average)

    async def estimate_of_newcomer(self, forecast: Forecast, newcomer: Newcomer, start: float | None) -> NewEstimate:
        """The estimate of a job that is not submitted yet. `start` is when a replay with this job starts it; None for
        a job that would stand behind those that are played forward."""
        # Between the last job that was read and the end of the line, nobody knows where: assume the end.
        position = forecast.situation.queued + 1 if start is None else rank_of(newcomer, forecast.situation) + 1
        estimate = _shut_out(forecast, newcomer.task, newcomer.groups)
        if estimate is None:
            task, tier = newcomer.task, newcomer.tier
            average = await self._average(forecast, task, tier)
            if start is None:
                estimate = self._later(forecast, _seconds_at(forecast, position), task, tier, position, average)
            else:
                estimate = self._from_start(forecast, start, task, tier, position, average)
        # Each suspect that stands ahead of it now would do so then.
        return NewEstimate(
            position=position,
            estimate=less_sure(estimate) if forecast.has_suspects_up_to(position - 1) else estimate,
        )

    def _from_start(
        self, forecast: Forecast, start: float, task: str, tier: str | None, position: int, average: AverageRun
    ) -> Estimate:
        if start == 0:
            return starts_now()
        if start == NEVER:
            return _no_room()
        return self._later(forecast, start, task, tier, position, average)

    def _later(
        self, forecast: Forecast, start: float, task: str, tier: str | None, position: int, average: AverageRun
    ) -> Estimate:
        if average.basis is Basis.FIRST_GUESS and tier not in self._settings.tiers:
            return no_data(task)
        if not forecast.has_data:
            return base_estimate(
                position=position,
                active_workers=forecast.capacity,
                average_seconds=average.seconds,
                settings=self._settings.estimate,
                basis=average.basis,
            )
        if start == NEVER:
            return _no_room()
        return self._ranged(forecast, start, task=task, position=position, basis=average.basis)

    def likely_seconds(self, forecast: Forecast) -> list[float]:
        """The seconds that estimates would tell of each job in line: the replay's, corrected by what was learnt."""
        margin = forecast.margin_seconds
        return [
            start if start in (0, NEVER) else max((start + margin) * self.learning.range_of(task).middle - margin, 0.0)
            for start, task in zip(forecast.starts, forecast.tasks, strict=True)
        ]

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

    async def recent(self) -> Forecast:
        """The last forecast, for lists that many people look at: while the next one is being made, nobody waits for it,
        unless the last one is much too old."""
        self._want()
        if self._keeping is None or self._age() > MUCH_TOO_OLD * self._every_seconds:
            return await self.fresh()
        assert self._forecast is not None
        return self._forecast

    def _from_forecast(self, forecast: Forecast, rank: int, basis: Basis) -> Estimate:
        seconds, task = forecast.starts[rank], forecast.tasks[rank]
        return self._ranged(forecast, seconds, task=task, position=rank + 1, basis=basis)

    def _ranged(self, forecast: Forecast, seconds: float, *, task: str, position: int, basis: Basis) -> Estimate:
        return ranged_estimate(
            max(seconds - (self._now() - forecast.made_at), 0.0),
            self.learning.range_of(task),
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
        await self.learning.learn_from(await self._starts())
        await self.learning.read_errors({job.task for job in situation.line})
        self._forecast = await self._system.call_in_thread(self._work_out, situation)
        if self.keeps_promises:
            await self._note_promises(self._forecast)

    async def _note_promises(self, forecast: Forecast) -> None:
        told = self.learning.promises.keys()
        new = [job_id for job_id in told if job_id not in self._noted]
        for first in range(0, len(new), PROMISES_AT_ONCE):
            portion = new[first : first + PROMISES_AT_ONCE]
            await self._store.note_promises({job_id: self._span(forecast, job_id) for job_id in portion})
        self._noted = set(told)

    def _span(self, forecast: Forecast, job_id: str) -> tuple[int, int]:
        """From when to when the job is told to start, in milliseconds from now."""
        rank = forecast.ranks[job_id]
        told = self._from_forecast(forecast, rank, forecast.averages[forecast.tasks[rank], forecast.tiers[rank]].basis)
        assert told.lower_bound is not None
        assert told.upper_bound is not None
        return round(told.lower_bound * 1000), round(told.upper_bound * 1000)

    def _work_out(self, situation: Situation) -> Forecast:
        """Runs in a thread, one at a time."""
        self.learning.learn_ranges()
        forecast = forecast_line(situation, self._settings)
        self.learning.remember(forecast)
        return forecast

    # --- reading ----------------------------------------------------------------------------------------------

    async def read(self) -> Situation:
        """The input of one replay, in a few reads. They need not be of the same millisecond."""
        store = self._store
        page = await read_line(store, limit=LOOK_AT_MOST)
        line = page.jobs
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
            queued=page.queued,
            next_sequence=page.next_sequence,
            task_groups=page.task_groups,
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


def _shut_out(forecast: Forecast, task: str, groups: Sequence[str]) -> Estimate | None:
    """The estimate of a job that cannot start at present, which says why."""
    if task not in forecast.staffed:
        return no_worker(task)
    shut = next((group for group in groups if group in forecast.shut), None)
    return None if shut is None else not_known(f"group {shut} {forecast.shut[shut]}")


def _no_room() -> Estimate:
    return not_known("nothing that runs now will make room for it")


def _seconds_at(forecast: Forecast, position: int) -> float:
    """When a job at this position starts that the replay did not see."""
    # Jobs that cannot start hold up no other: take the first one from here on that can.
    here = (start for start in forecast.starts[position - 1 :] if start != NEVER)
    return next(here, forecast.newcomer_seconds * max(position / (len(forecast.starts) + 1), 1.0))
