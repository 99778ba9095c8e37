"""Reads jobs, waits for them and explains them, as a queue's users see them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Unpack

import msgspec

from qo.errors import JobNotFound, QoError, Timeout
from qo.event import AuditEntry, Event
from qo.job import Estimate, Job, Usage
from qo.loops.timing import within
from qo.policy.admission import find_tier
from qo.policy.analytics import MINUTE_MS, Analytics, analyse
from qo.policy.checks import check_flag, check_name, check_name_or_none, check_number, check_seconds
from qo.policy.ordering import parse_priority
from qo.policy.presenting import present, usage_of_user
from qo.policy.why import Why, explain, named_in
from qo.queue.base import QueueBase
from qo.queue.estimator import Estimator
from qo.queue.follower import Follower
from qo.queue.positions import Positions
from qo.queue.watching import watch_job
from qo.store.check import check_cursor
from qo.store.paging import read_jobs
from qo.values import JobsPage, ParentStatus, Place, Wanted, WorkerInfo

log = logging.getLogger("qo.queue")

NAMES_LOOKED_UP = 100
"""So many holders of slots are looked up for a user who asks why a job waits; the others are counted, not named."""


class Reading(QueueBase):
    """The part of `Queue` that reads and waits, and changes nothing."""

    follower: Follower
    _estimator: Estimator
    _positions: Positions

    async def get(self, job_id: str) -> Job:
        """A job as it is now, with its estimate while it is in line. Raises `JobNotFound`."""
        check_name("job_id", job_id)
        job = await self.store_here.job(job_id)
        (estimate,) = await self._estimates([job])
        return await self._presented(job, estimate)

    async def jobs(
        self,
        *,
        status: str | None = None,
        user: str | None = None,
        task: str | None = None,
        parent: str | None = None,
        project: str | None = None,
        tier: str | None = None,
        priority: int | str | None = None,
        limit: int = 100,
        newest_first: bool = False,
    ) -> list[Job]:
        """Jobs that fit all of these: first those in line, in their order and with estimates, then the others by
        submission. `status` may also be a state."""
        names = {"status": status, "user": user, "task": task, "parent": parent, "project": project, "tier": tier}
        for field, name in names.items():
            check_name_or_none(field, name)
        check_number("limit", limit, 1)
        check_flag("newest_first", newest_first)
        wanted = Wanted(
            status=status,
            user=user,
            task=task,
            parent=parent,
            project=project,
            tier=tier,
            priority=None if priority is None else parse_priority(priority),
        )
        found = await read_jobs(self.store_here, limit=limit, newest_first=newest_first, **wanted)
        return await self._all_presented(found, await self._estimates(found))

    async def jobs_page(
        self,
        *,
        ids: Sequence[str] | None = None,
        limit: int = 100,
        newest_first: bool = False,
        after: str | None = None,
        **wanted: Unpack[Wanted],
    ) -> JobsPage:
        """One page of `jobs`: `after` is the `next` of the page before. A page may have fewer jobs than `limit`, even
        none, and still a `next`. `ids`: instead, the jobs of these ids."""
        page = await self.store_here.jobs(ids=ids, limit=limit, newest_first=newest_first, after=after, **wanted)
        jobs = await self._all_presented(page.jobs, await self._estimates(page.jobs))
        return JobsPage(jobs=tuple(jobs), next=page.next)

    async def parent(self, parent: str) -> ParentStatus:
        """A parent, its priority and its phases. Raises `ParentNotFound`."""
        check_name("parent", parent)
        found = await self.store_here.parent(parent)
        return msgspec.structs.replace(found, jobs=tuple(await self._all_presented(found.jobs)))

    async def workers(self) -> list[WorkerInfo]:
        """The live workers, by name."""
        return list(await self.store_here.workers())

    async def wait(self, job_id: str, timeout: float | None = None) -> Job:
        """Wait until the job has ended. Raises `Timeout` after so many seconds."""
        check_name("job_id", job_id)
        if timeout is not None:
            check_seconds("timeout", timeout)

        async def until_ended() -> None:
            changes = watch_job(self.store_here, self.follower, None, job_id, after=None, now=self.system.now)
            async with aclosing(changes) as events:
                async for _ in events:
                    pass

        if not await within(timeout, until_ended()):
            raise Timeout(f"Job {job_id!r} has not ended within {timeout:g} seconds; it goes on without you waiting.")
        return await self.get(job_id)

    async def watch(self, job_id: str, *, after: int | None = None) -> AsyncGenerator[Event]:
        """The events of a job, until it has ended.

        The first event has its present state (`present` in its detail). With `after`, the id of the last event that
        was seen, the watch goes on behind that one instead, and misses nothing in between. A caller that leaves 256
        events unread, or comes back after they were removed, gets the present state again in place of them.

        While the job is in line, `position` events carry its position and its estimate: when the position changed, at
        most once a second, and every few seconds. Each has the id of the event before it, so `after` works with it.
        """
        check_name("job_id", job_id)
        if after is not None:
            check_cursor(after)
        watching = watch_job(self.store_here, self.follower, self._positions, job_id, after=after, now=self.system.now)
        async with aclosing(watching) as events:
            async for event in events:
                yield event

    async def why(self, job_id: str, *, for_user: str | None = None) -> Why:
        """Why a job is not running. With `for_user`, slots that other users' jobs hold are counted and not named."""
        check_name("job_id", job_id)
        check_name_or_none("for_user", for_user)
        blockers = await self.store_here.blockers(job_id)
        visible = None
        if for_user is not None:
            visible = await self._jobs_of(for_user, named_in(blockers)[:NAMES_LOOKED_UP])
        quota = None
        if blockers.job.deferred and blockers.job.user is not None:
            quota = (await self.store_here.usage(blockers.job.user)).daily_quota
        return explain(blockers, visible=visible, daily_quota=quota, now=self.system.now())

    async def _jobs_of(self, user: str, names: Sequence[str]) -> set[str]:
        """Those of the names that are jobs of this user. Not all jobs of the user are read, which may be very many."""
        found = await asyncio.gather(*map(self.store_here.job, names), return_exceptions=True)
        for each in found:
            if isinstance(each, BaseException) and not isinstance(each, JobNotFound):
                raise each
        return {each.id for each in found if isinstance(each, Job) and each.user == user}

    async def usage(self, user: str, tier: str | None = None) -> Usage:
        """What a user has used today. `tier` is the tier of a user that the store does not know yet."""
        check_name("user", user)
        if tier is not None:
            find_tier(tier, self.settings.tiers)
        used = await self.store_here.usage(user)
        quota = used.daily_quota
        if quota is None and tier is not None:
            quota = find_tier(tier, self.settings.tiers).jobs_per_day
        return usage_of_user(used=used.used_today, quota=quota, today=used.today)

    async def _presented(self, job: Job, estimate: Estimate | None = None) -> Job:
        (presented,) = await self._all_presented([job], [estimate])
        return presented

    async def _all_presented(
        self, jobs: Sequence[Job], estimates: Sequence[Estimate | None] | None = None
    ) -> list[Job]:
        users = sorted({job.user for job in jobs if job.user is not None})
        usages = dict(zip(users, await asyncio.gather(*map(self.usage, users)), strict=True))
        places = await self._places_of_overtaken(jobs)
        now = self.system.now()
        return [
            present(
                job if job.id not in places else msgspec.structs.replace(job, position=places[job.id].position),
                self.settings,
                usage=None if job.user is None else usages[job.user],
                estimate=estimate,
                placed_ahead=places[job.id].placed_ahead if job.id in places else None,
                now=now,
            )
            for job, estimate in zip(jobs, estimates or [None] * len(jobs), strict=True)
        ]

    async def _places_of_overtaken(self, jobs: Sequence[Job]) -> dict[str, Place]:
        """The places of the jobs whose position got worse, except where a person put them further back."""
        overtaken = [
            job.id
            for job in jobs
            if job.position is not None and job.position > (job.position_original or 0) and job.displaced is None
        ]
        return await self.store_here.positions(overtaken) if overtaken else {}

    async def estimate(self, job_id: str) -> Estimate | None:
        """When a job in line will probably start; None for a job that is not in line. Where that is not known, the
        estimate's message says why.

        The first call starts a background task that keeps the estimates of the whole line fresh while they are used.
        """
        check_name("job_id", job_id)
        job = await self.store_here.job(job_id)
        self._estimator.start()
        return await self._estimator.estimate_of(job)

    async def _estimates(self, jobs: Sequence[Job]) -> list[Estimate | None]:
        """The estimates of the jobs in line. They only inform: where they cannot be computed, they are None."""
        self._estimator.start()
        try:
            return await self._estimator.estimates_of(jobs)
        except Exception as error:
            log.warning("jobs are shown without estimates: %s", error, exc_info=not isinstance(error, QoError))
            return [None] * len(jobs)

    async def analytics(self, *, minutes: int = 60, group: str | None = None) -> Analytics:
        """The line, its workers, and the figures of the last minutes. `group` is among the groups in any case."""
        check_number("minutes", minutes, 1)
        check_name_or_none("group", group)
        now_ms = self.system.clock()
        return analyse(
            waiting=(await self.store_here.line(limit=0)).queued,
            workers=await self.store_here.workers(),
            series=await self.store_here.series(since_minute=now_ms // MINUTE_MS - minutes),
            minutes=minutes,
            now_ms=now_ms,
            group=group,
        )

    async def audit(self, job_id: str | None = None, *, limit: int = 100, after: int | None = None) -> list[AuditEntry]:
        """The audit trail, newest first: of one job or group, or of everything. `after` is the id of the last entry
        that was seen."""
        check_name_or_none("job_id", job_id)
        return list(await self.store_here.audit(subject=job_id, limit=limit, after=after))
