"""Positions of watched jobs, read once a tick for all watchers together, and only while a job is watched."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec

from qo.job import Estimate, Job
from qo.loops.repeating import repeat
from qo.loops.system import SYSTEM
from qo.loops.trouble import Trouble
from qo.policy.words import position_message
from qo.store.contract import Store
from qo.values import Place

log = logging.getLogger("qo.positions")

TICK_SECONDS = 1.0
"""How often positions are read while a job in line is watched, and so how often a watcher gets one at most."""
READ_AT_ONCE = 64
"""For so many watchers jobs and estimates are read together."""
TOLD_AT_ONCE = 4
"""After so many watchers were told, other work of the event loop gets a turn. Each of them takes a tenth of a
millisecond to send its news, and a request that comes meanwhile waits for them several times."""
TURN_SECONDS = 0.001

Estimates = Callable[[Sequence[Job]], Awaitable[Sequence[Estimate | None]]]


class News(msgspec.Struct, frozen=True):
    """The place of a job in line, for its watcher."""

    place: Place
    message: str
    estimate: Estimate | None


class Inbox(Protocol):
    def put_nowait(self, item: Watched, /) -> None: ...


class Watched:
    """One watcher's view of a job. It is put into the watcher's inbox when there is news; `take_news` returns that."""

    def __init__(self, job_id: str, inbox: Inbox) -> None:
        self.job_id = job_id
        self.job: Job | None = None
        """The job as it was last read. None: it has to be read again before the next news."""
        self._inbox = inbox
        self._news: News | None = None
        self._told_position: int | None = None
        self._told_at = -float("inf")

    def is_due(self, position: int, now: float, every_seconds: float) -> bool:
        """Whether the watcher needs news now: the position changed, or the next tick would be too late."""
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
        """Returns the newest news; None when the job has left the line since."""
        news, self._news = self._news, None
        return news


class Positions:
    """Gives watchers the place of their job: when it changed, and every few seconds. `clock` counts seconds."""

    def __init__(
        self,
        store: Store,
        *,
        every_seconds: float,
        estimates: Estimates,
        clock: Callable[[], float] = SYSTEM.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._store = store
        self._every_seconds = every_seconds
        self._estimates = estimates
        self._clock = clock
        self._sleep = sleep
        self._watched: set[Watched] = set()
        self._ticking: asyncio.Task[None] | None = None

    def look_at(self, watched: Watched, job: Job | None = None, *, told: bool = False) -> None:
        """Give this watcher news from now on. `job`: as it was just read; `told`: the watcher knows its position."""
        watched.job = job
        if job is not None and told:
            watched.was_told(job.position, self._clock())
        self._watched.add(watched)
        if self._ticking is None:
            self._ticking = asyncio.create_task(self._tick_on(), name="qo-positions")

    def look_away(self, watched: Watched) -> None:
        """Give it no more news: the job has left the line, or the watcher has."""
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
        """Read the positions of all watched jobs once, and give news to the watchers that need it."""
        places = await self._store.positions(sorted({watched.job_id for watched in self._watched}))
        now = self._clock()
        due = [
            watched
            for watched in self._watched
            if watched.job_id in places and watched.is_due(places[watched.job_id].position, now, self._every_seconds)
        ]
        for first in range(0, len(due), READ_AT_ONCE):
            await self._tell(due[first : first + READ_AT_ONCE], places, now)

    async def _tell(self, due: Sequence[Watched], places: dict[str, Place], now: float) -> None:
        jobs = await self._jobs_of(due, places)
        estimates = dict(zip(jobs, await self._estimates(list(jobs.values())), strict=True))
        for number, watched in enumerate(due, 1):
            if number % TOLD_AT_ONCE == 0:
                await asyncio.sleep(TURN_SECONDS)
            if watched in self._watched and watched.job_id in jobs:  # it may have left meanwhile
                place = places[watched.job_id]
                watched.tell(News(place, place_message(place), estimates[watched.job_id]), now)

    async def _jobs_of(self, due: Sequence[Watched], places: dict[str, Place]) -> dict[str, Job]:
        """Those of the jobs that are still there, each as it was when its watcher's job was last read."""
        unread = dict.fromkeys(watched.job_id for watched in due if watched.job is None)
        read = {job.id: job for job in (await self._store.jobs(ids=list(unread))).jobs} if unread else {}
        jobs: dict[str, Job] = {}
        for watched in due:
            watched.job = watched.job or read.get(watched.job_id)
            if watched.job is not None:
                jobs[watched.job_id] = msgspec.structs.replace(watched.job, position=places[watched.job_id].position)
        return jobs

    async def _tick_on(self) -> None:
        trouble = Trouble("positions cannot be told for now", log)
        await repeat(self.tick, pause=lambda: TICK_SECONDS, trouble=trouble, sleep=self._sleep)


def place_message(place: Place) -> str:
    return position_message(place.position, place.original, placed_ahead=place.placed_ahead, displaced=place.displaced)
