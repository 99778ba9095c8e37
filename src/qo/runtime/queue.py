"""Queue: the front door. It turns what callers say into what the store needs, and back."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, overload

from qo.errors import PhaseTaken, QoError, QueueFull, SubmitRefused, Timeout
from qo.event import AuditEntry, Event
from qo.forking import leave_behind, when_forked
from qo.job import ENDED, Estimate, Job, New, Usage, moment
from qo.policy.admission import find_tier, retry_after
from qo.policy.days import day_of, midnight
from qo.policy.ordering import parse_priority
from qo.policy.presenting import present, usage_of_user
from qo.policy.why import Why, explain
from qo.runtime.analytics import Analytics, analyse
from qo.runtime.estimator import Estimator
from qo.runtime.feed import Follower, Reset
from qo.runtime.gathering import Gathering, in_portions
from qo.runtime.reasons import facts_of
from qo.runtime.submission import make_submission, standing_of
from qo.runtime.timing import within
from qo.runtime.waiting import active_places, average_duration
from qo.settings import Settings
from qo.store.base import Store
from qo.store.check import check_submission
from qo.store.values import (
    Accepted,
    GroupStatus,
    Limit,
    LimitIgnored,
    ParentStatus,
    Refusal,
    RefusalReason,
    Source,
    Submission,
    WorkerInfo,
)

log = logging.getLogger("qo.queue")

SUBMIT_AT_ONCE = 250
"""jobs of a long list, so that the store is free for others in between"""
PRESENT = "present"
"""in the detail of the first event of a watch: it tells how things stand, not that they changed"""


class Queue:
    """A line of jobs and its limits, on one store. Made by `qo.connect`."""

    def __init__(self, store: Store, settings: Settings, *, draw: Callable[[], float] = random.random) -> None:
        self.store = store
        self.settings = settings
        self._draw = draw
        self._warned: set[LimitIgnored] = set()
        self._begin()
        when_forked(self, Queue._begin_anew)

    def _begin(self) -> None:
        self._submitting: Gathering[Submission, Accepted | Refusal] = Gathering(
            self.store.submit, check=check_submission
        )
        self.follower = Follower(self.store)
        self._estimator = Estimator(self.store, self.settings)

    def _begin_anew(self) -> None:
        leave_behind(self._submitting, self.follower, self._estimator)
        self._begin()

    async def __aenter__(self) -> Queue:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of the store. Closing twice is harmless."""
        await self._estimator.close()
        await self.follower.close()
        await self.store.close()

    # --- submitting -------------------------------------------------------------------------------------------

    async def submit(
        self,
        task: str,
        data: Any = None,
        *,
        id: str | None = None,
        priority: int | str | None = None,
        user: str | None = None,
        project: str | None = None,
        tier: str | None = None,
        parent: str | None = None,
        phase: int | None = None,
        groups: Sequence[str] = (),
        concurrency_group: str | None = None,
        concurrency_limit: int | None = None,
        unique: str | None = None,
        delay: float | timedelta | None = None,
        run_at: datetime | None = None,
        max_attempts: int | None = None,
        timeout: float | timedelta | None = None,
        by: str | None = None,
    ) -> Job:
        """Submit one job. It is durably accepted when this returns; a known `id` or `unique` key gives that job.

        Raises a `SubmitRefused` that says what to do; then nothing was stored and nothing charged.
        The answer has no estimate yet, as nobody waits for a replay to submit: `get` or `estimate` gives it.
        """
        new = New(
            task=task,
            data=data,
            id=id,
            priority=priority,
            user=user,
            project=project,
            tier=tier,
            parent=parent,
            phase=phase,
            groups=groups,
            concurrency_group=concurrency_group,
            concurrency_limit=concurrency_limit,
            unique=unique,
            delay=delay,
            run_at=run_at,
            max_attempts=max_attempts,
            timeout=timeout,
            by=by,
        )
        submission = make_submission(new, self.settings, draw=self._draw)
        return await self._job_or_refusal(new, await self._submitting.send(submission))

    async def submit_many(self, jobs: Sequence[New]) -> list[Job | SubmitRefused]:
        """Submit several, each admitted or refused on its own, in order: a refused one is answered by its error.

        A job that is not even well-formed raises, and then none was submitted.
        """
        submissions = [make_submission(new, self.settings, draw=self._draw) for new in jobs]
        if len(submissions) > SUBMIT_AT_ONCE:
            for submission in submissions:
                check_submission(submission)  # the store would refuse its portion, when others have been submitted
        admitted: list[Job | SubmitRefused] = []
        async with aclosing(in_portions(self.store.submit, submissions, most_per_call=SUBMIT_AT_ONCE)) as portions:
            async for answers in portions:
                for answer in answers:
                    try:
                        admitted.append(await self._job_or_refusal(jobs[len(admitted)], answer))
                    except SubmitRefused as refusal:
                        admitted.append(refusal)
        return admitted

    async def _job_or_refusal(self, new: New, answer: Accepted | Refusal) -> Job:
        if isinstance(answer, Accepted):
            self.warn_of_ignored(answer.ignored)
            usage = None
            if answer.used_today is not None:
                usage = usage_of_user(used=answer.used_today, quota=answer.daily_quota, resets_at=_next_reset())
            return present(answer.job, self.settings, usage=usage, now=datetime.now(UTC))
        if answer.reason is RefusalReason.PHASE_TAKEN:
            assert new.parent is not None
            assert new.phase is not None
            assert answer.taken_by is not None
            raise PhaseTaken(new.parent, new.phase, answer.taken_by)
        wait = retry_after(
            over=answer.waiting - answer.cap,
            average_seconds=await average_duration(self.store, self.settings, task=None, tier=new.tier),
            places=await active_places(self.store),
            step_seconds=self.settings.queue.retry_after_step_secs,
        )
        raise QueueFull(answer.waiting, answer.cap, wait)

    def warn_of_ignored(self, ignored: Sequence[LimitIgnored]) -> None:
        for each in ignored:
            if each not in self._warned:
                self._warned.add(each)
                log.warning(
                    "the limit %d of group %s wanted by a %s is not used: the %s set %d",
                    each.wanted.slots,
                    each.wanted.group,
                    each.wanted.source.name.lower(),
                    each.in_force.source.name.lower(),
                    each.in_force.slots,
                )

    # --- reading ----------------------------------------------------------------------------------------------

    async def get(self, job_id: str) -> Job:
        """A job as it is now; in line, with its estimate (see `estimate`). Raises `JobNotFound`."""
        job = await self.store.job(job_id)
        (estimate,) = await self._estimates([job])
        return await self._presented(job, estimate)

    async def jobs(
        self,
        *,
        status: str | None = None,
        user: str | None = None,
        task: str | None = None,
        parent: str | None = None,
        limit: int = 100,
        newest_first: bool = False,
    ) -> list[Job]:
        """Jobs by status or state: those in line in their order with estimates, then the others by submission."""
        found = await self.store.jobs(
            status=status, user=user, task=task, parent=parent, limit=limit, newest_first=newest_first
        )
        return await self._all_presented(found, await self._estimates(found))

    async def parent(self, parent: str) -> ParentStatus:
        """A parent, its priority and its phases. Raises `ParentNotFound`."""
        return await self.store.parent(parent)

    async def workers(self) -> list[WorkerInfo]:
        """The live workers, by name."""
        return list(await self.store.workers())

    async def wait(self, job_id: str, timeout: float | None = None) -> Job:
        """The job, once it has ended. Raises `Timeout` when it has not in so many seconds."""

        async def until_ended() -> None:
            async with aclosing(self.watch(job_id)) as events:
                async for _ in events:
                    pass

        if not await within(timeout, until_ended()):
            raise Timeout(f"Job {job_id!r} has not ended within {timeout} seconds; it goes on without you waiting.")
        return await self.get(job_id)

    async def watch(self, job_id: str, *, after: int | None = None) -> AsyncGenerator[Event]:
        """What happens to a job, until it has ended.

        Begins with an event that tells its present state (`present` in its detail); with `after`, the id of the
        last event that was seen, it goes on behind that one instead. Nothing is missed in between.
        """
        # The cursor is older than the snapshot, so an event may tell what the snapshot already shows, but none
        # can fall between them.
        cursor = await self.store.newest_event() if after is None else after
        job = await self.store.job(job_id)
        if after is None:
            yield _present(job, cursor)
        if job.state in ENDED and (after is None or not await self._ended_after(job_id, after)):
            return
        async with aclosing(self.follower.follow(job_id, after=cursor)) as events:
            async for event in events:
                if isinstance(event, Reset):
                    cursor = await self.store.newest_event()
                    event = _present(await self.store.job(job_id), cursor)
                yield event
                if event.kind in ENDED:
                    return

    async def _ended_after(self, job_id: str, cursor: int) -> bool:
        feed = await self.store.events(cursor, kinds=[state.value for state in ENDED], subjects=[job_id], limit=1)
        return feed.reset or bool(feed.events)

    async def why(self, job_id: str, *, for_user: str | None = None) -> Why:
        """Why a job is not running. `for_user`: others' jobs that hold slots are counted, not named."""
        blockers = await self.store.blockers(job_id)
        visible = None
        if for_user is not None:
            visible = {job.id for job in await self.store.jobs(user=for_user, limit=10_000)}
        return explain(facts_of(blockers, visible=visible))

    async def usage(self, user: str, tier: str | None = None) -> Usage:
        """What a user has used today; `tier` for a user who has none yet."""
        used = await self.store.usage(user)
        quota = used.daily_quota
        if quota is None and tier is not None:
            quota = find_tier(tier, self.settings.tiers).jobs_per_day
        return usage_of_user(used=used.used_today, quota=quota, resets_at=_next_reset())

    async def _presented(self, job: Job, estimate: Estimate | None = None) -> Job:
        usage = None if job.user is None else await self.usage(job.user)
        return present(job, self.settings, usage=usage, estimate=estimate, now=datetime.now(UTC))

    async def _all_presented(
        self, jobs: Sequence[Job], estimates: Sequence[Estimate | None] | None = None
    ) -> list[Job]:
        users = sorted({job.user for job in jobs if job.user is not None})
        usages = dict(zip(users, await asyncio.gather(*map(self.usage, users)), strict=True))
        now = datetime.now(UTC)
        return [
            present(
                job, self.settings, usage=None if job.user is None else usages[job.user], estimate=estimate, now=now
            )
            for job, estimate in zip(jobs, estimates or [None] * len(jobs), strict=True)
        ]

    async def estimate(self, job_id: str) -> Estimate | None:
        """When a job in line will probably start; None for one that is not, or that cannot start as things stand.

        From the first call on, and while somebody asks, estimates of the whole line are kept fresh in the background.
        """
        self._estimator.start()
        return await self._estimator.estimate_of(await self.store.job(job_id))

    async def _estimates(self, jobs: Sequence[Job]) -> list[Estimate | None]:
        """Of those in line. They only inform: where they cannot be worked out, jobs are told without."""
        self._estimator.start()
        try:
            return await self._estimator.estimates_of(jobs)
        except Exception as error:
            log.warning("jobs are told without estimates: %s", error, exc_info=not isinstance(error, QoError))
            return [None] * len(jobs)

    async def analytics(self, *, minutes: int = 60) -> Analytics:
        """The line, who works on it, and how it went in the last minutes."""
        since = _now_ms() // 60_000 - minutes
        return analyse(
            waiting=await self.store.waiting_count(),
            workers=await self.store.workers(),
            series=await self.store.series(since_minute=since),
            minutes=minutes,
        )

    async def audit(self, job_id: str | None = None, *, limit: int = 100) -> list[AuditEntry]:
        """Who did what, newest first; of one job or group, or of everything."""
        return list(await self.store.audit(subject=job_id, limit=limit))

    # --- changes by people ------------------------------------------------------------------------------------

    @overload
    async def set_priority(self, job_id: str, priority: int | str, *, by: str | None = None) -> Job: ...
    @overload
    async def set_priority(
        self, job_id: None = None, *, priority: int | str, parent: str, by: str | None = None
    ) -> list[Job]: ...
    async def set_priority(
        self,
        job_id: str | None = None,
        priority: int | str = "normal",
        *,
        parent: str | None = None,
        by: str | None = None,
    ) -> Job | list[Job]:
        """Change the priority of a waiting job, or of a parent and all its unfinished phases. The place is kept."""
        changed = await self.store.set_priority(parse_priority(priority), job_id=job_id, parent=parent, by=by)
        presented = await self._all_presented(changed)
        return presented if parent is not None else presented[0]

    async def move(
        self, job_id: str, *, before: str | None = None, after: str | None = None, by: str | None = None
    ) -> Job:
        """Put a waiting job directly before or after another one, whose priority it takes on."""
        return await self._presented(await self.store.move(job_id, before=before, after=after, by=by))

    @overload
    async def cancel(self, job_id: str, *, message: str | None = None, by: str | None = None) -> Job: ...
    @overload
    async def cancel(
        self, job_id: None = None, *, parent: str, message: str | None = None, by: str | None = None
    ) -> list[Job]: ...
    async def cancel(
        self,
        job_id: str | None = None,
        *,
        parent: str | None = None,
        message: str | None = None,
        by: str | None = None,
    ) -> Job | list[Job]:
        """Cancel a job, or all unfinished ones of a parent: at once when it waits, within a second when it runs."""
        cancelled = await self.store.cancel(job_id=job_id, parent=parent, message=message, by=by)
        presented = await self._all_presented(cancelled)
        return presented if parent is not None else presented[0]

    async def retry(self, job_id: str, *, by: str | None = None) -> Job:
        """Put a failed job in line again, with all its attempts."""
        return await self._presented(await self.store.retry(job_id, by=by))

    async def confirm(self, job_id: str, *, by: str | None = None) -> Job:
        """Let a job that asked for it go on for another batch of iterations."""
        return await self._presented(await self.store.confirm(job_id, by=by))

    async def set_tier(self, user: str, tier: str, by: str | None = None) -> None:
        """Give a user a tier; it counts at once for their waiting and deferred jobs."""
        standing = standing_of(tier, self.settings.tiers)
        self.warn_of_ignored(await self.store.set_tier(user, standing, by=by))

    # --- limits -----------------------------------------------------------------------------------------------

    async def pause(self, group: str, *, by: str | None = None) -> None:
        """Nobody new starts in this group until it is resumed."""
        await self.store.set_paused(group, True, by=by)

    async def resume(self, group: str, *, by: str | None = None) -> None:
        await self.store.set_paused(group, False, by=by)

    async def set_limit(self, group: str, slots: int, by: str | None = None) -> None:
        """Limit a group, as an operator: this wins over every other source."""
        await self.store.set_limits([Limit(group=group, slots=slots, source=Source.OPERATOR)], by=by)

    async def remove_limit(self, group: str, by: str | None = None) -> None:
        """The group is unlimited until somebody limits it again."""
        await self.store.remove_limit(group, by=by)

    async def limit(self, group: str) -> GroupStatus:
        """A group's limit, who holds its slots, and how many were put aside because of it."""
        return await self.store.group(group)

    async def limits(self) -> list[GroupStatus]:
        """All groups that have a limit, a pause or holders, by name, without their slots."""
        return list(await self.store.groups())

    async def release_slot(self, group: str, slot_id: int, by: str | None = None, force: bool = False) -> str:
        """Take a slot, and with it the whole lease, from its holder, and tell who it was.

        A job goes back to its place with an attempt spent. Without `force` only a lease that has run out.
        """
        return await self.store.revoke(group, slot_id, force=force, by=by)

    def configured_limits(self) -> tuple[Limit, ...]:
        """Those of the settings, without those of groups that are kept in a bucket. They are written to the store by
        workers that register, and by `qo apply`."""
        concurrency = self.settings.concurrency
        kept_elsewhere = concurrency.shared_groups if concurrency.store is not None else ()
        return tuple(
            Limit(group=group, slots=slots, source=Source.CONFIGURATION)
            for group, slots in concurrency.limits.items()
            if group not in kept_elsewhere
        )


def _present(job: Job, cursor: int) -> Event:
    detail = {PRESENT: True, "status": job.status, "position": job.position, "message": job.message}
    return Event(id=cursor, at=datetime.now(UTC), kind=job.state.value, subject=job.id, detail=detail)


def _next_reset() -> datetime:
    """When the quota of a new day begins: midnight UTC, always."""
    return moment(midnight(day_of(_now_ms()) + 1))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
