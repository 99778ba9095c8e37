"""Positions of watched jobs, read once a tick for all watchers of a process, and only while somebody watches."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec

from qo.errors import QoError
from qo.job import Estimate, Job
from qo.policy.words import position_message
from qo.store.base import Store
from qo.store.values import Place

log = logging.getLogger("qo.positions")

TICK_SECONDS = 1.0
"""how often positions are read while a job in line is watched, so also how often a watcher hears of one at most"""

Estimates = Callable[[Sequence[Job]], Awaitable[Sequence[Estimate | None]]]


class News(msgspec.Struct, frozen=True):
    """What a watcher is told of a job in line."""

    place: Place
    message: str
    estimate: Estimate | None


class Inbox(Protocol):
    def put_nowait(self, item: Watched, /) -> None: ...


class Watched:
    """One watcher's view of a job. It is put into the watcher's inbox when there is news, which `take_news` gives."""

    def __init__(self, job_id: str, inbox: Inbox) -> None:
        self.job_id = job_id
        self.job: Job | None = None
        """the job as it was read last; None: to be read before it is told of again"""
        self._inbox = inbox
        self._news: News | None = None
        self._told_position: int | None = None
        self._told_at = -float("inf")

    def is_due(self, position: int, now: float, every_seconds: float) -> bool:
        """Whether the watcher has to be told now: the position changed, or the next tick would be too late."""
        return position != self._told_position or now + TICK_SECONDS > self._told_at + every_seconds

    def was_told(self, position: int | None, now: float) -> None:
        self._told_position, self._told_at = position, now

    def tell(self, news: News, now: float) -> None:
        """A watcher that has not taken the last news yet gets only the newest."""
        if self._news is None:
            self._inbox.put_nowait(self)
        self._news = news
        self.was_told(news.place.position, now)

    def drop_news(self) -> None:
        self._news = None

    def take_news(self) -> News | None:
        """None: the job left the line after the news came."""
        news, self._news = self._news, None
        return news


class Positions:
    """Tells watchers where their jobs stand: when that changed, and every few seconds. `clock` counts seconds."""

    def __init__(
        self,
        store: Store,
        *,
        every_seconds: float,
        estimates: Estimates,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._store = store
        self._every_seconds = every_seconds
        self._estimates = estimates
        self._clock = clock
        self._sleep = sleep
        self._watched: set[Watched] = set()
        self._ticking: asyncio.Task[None] | None = None

    def look_at(self, watched: Watched, job: Job | None = None, *, told: bool = False) -> None:
        """From now on tell this watcher about its job. `job`: as it was just read; `told`: and shown to the watcher."""
        watched.job = job
        if job is not None and told:
            watched.was_told(job.position, self._clock())
        self._watched.add(watched)
        if self._ticking is None:
            self._ticking = asyncio.create_task(self._tick_on(), name="qo-positions")

    def look_away(self, watched: Watched) -> None:
        """The job is not in line any more, or nobody watches it."""
        watched.drop_news()
        self._watched.discard(watched)
        if not self._watched and self._ticking is not None:
            self._ticking.cancel()
            self._ticking = None

    async def close(self) -> None:
        if self._ticking is not None:
            self._ticking.cancel()
            await asyncio.gather(self._ticking, return_exceptions=True)
            self._ticking = None

    async def tick(self) -> None:
        """Read the positions of all watched jobs once, and tell the watchers for whom it is time."""
        places = await self._store.positions(sorted({watched.job_id for watched in self._watched}))
        now = self._clock()
        due = [
            watched
            for watched in self._watched
            if watched.job_id in places and watched.is_due(places[watched.job_id].position, now, self._every_seconds)
        ]
        if not due:
            return
        jobs = await self._jobs_of(due, places)
        estimates = dict(zip(jobs, await self._estimates(list(jobs.values())), strict=True))
        for watched in due:
            if watched in self._watched:  # it may have left meanwhile
                place = places[watched.job_id]
                watched.tell(News(place, place_message(place), estimates[watched.job_id]), now)

    async def _jobs_of(self, due: Sequence[Watched], places: dict[str, Place]) -> dict[str, Job]:
        jobs: dict[str, Job] = {}
        for watched in due:
            job_id = watched.job_id
            if watched.job is None:
                watched.job = jobs.get(job_id) or await self._store.job(job_id)
            jobs[job_id] = msgspec.structs.replace(watched.job, position=places[job_id].position)
        return jobs

    async def _tick_on(self) -> None:
        is_away = False
        while True:
            await self._sleep(TICK_SECONDS)
            try:
                await self.tick()
                is_away = False
            except QoError as error:
                if not is_away:
                    log.warning("positions cannot be told for now, trying again: %s", error)
                is_away = True
            except Exception:
                # Whatever it was, it may not happen with the next positions.
                log.exception("positions could not be told, trying again")


def place_message(place: Place) -> str:
    return position_message(place.position, place.original, placed_ahead=place.placed_ahead, displaced=place.displaced)
