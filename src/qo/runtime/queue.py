"""Queue: the front door. It turns what callers say into what the store needs, and back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, overload

import msgspec

from qo import chance
from qo.errors import (
    InvalidSubmit,
    InvalidValue,
    PhaseTaken,
    QoError,
    QueueFull,
    SubmitRefused,
    Timeout,
    WrongEventLoop,
)
from qo.event import AuditEntry, Event
from qo.forking import leave_behind, when_forked
from qo.job import Basis, Estimate, Job, New, Usage, moment
from qo.policy.admission import find_tier, retry_after
from qo.policy.days import midnight
from qo.policy.groups import GLOBAL
from qo.policy.ordering import parse_priority
from qo.policy.presenting import present, usage_of_user
from qo.policy.why import Why, explain
from qo.runtime.analytics import Analytics, analyse
from qo.runtime.estimator import Estimator
from qo.runtime.feed import Follower
from qo.runtime.gathering import MOST_PER_CALL, Gathering, in_portions
from qo.runtime.portions import Portion, payload_size, submission_count
from qo.runtime.positions import Positions
from qo.runtime.reasons import facts_of
from qo.runtime.submission import make_submission, standing_of
from qo.runtime.timing import within
from qo.runtime.waiting import average_duration, places_among
from qo.runtime.watching import watch_job
from qo.settings import Settings
from qo.spans import Clock, system_ms
from qo.store.base import Store
from qo.store.check import check_cursor, check_submission
from qo.store.check_value import (
    check_flag,
    check_group,
    check_name,
    check_name_or_none,
    check_number,
    check_seconds,
    shown,
)
from qo.store.values import (
    Accepted,
    GroupStatus,
    Limit,
    LimitIgnored,
    ParentStatus,
    Place,
    Refusal,
    RefusalReason,
    Source,
    Submission,
    WorkerInfo,
)

log = logging.getLogger("qo.queue")

SUBMIT_AT_ONCE = 250
"""jobs of a long list, unless 1 MiB of payload ends the portion, so that the store is free for others in between"""


class Queue:
    """A line of jobs and its limits, on one store. Made by `qo.connect`."""

    def __init__(
        self, store: Store, settings: Settings, *, draw: Callable[[], float] = chance.draw, clock: Clock = system_ms
    ) -> None:
        self.store = store
        self.settings = settings
        self._draw = draw
        self._clock = clock
        self._warned: set[LimitIgnored] = set()
        self._begin()
        when_forked(self, Queue._begin_anew)

    def _begin(self) -> None:
        self._submitting: Gathering[Submission, Accepted | Refusal] = Gathering(
            self.store.submit,
            check=check_submission,
            portion=Portion(MOST_PER_CALL, counts=submission_count, size=payload_size),
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self.follower = Follower(self.store)
        self._estimator = Estimator(self.store, self.settings, clock=lambda: self._clock() / 1000)
        self._positions = Positions(
            self.store, every_seconds=self.settings.stream.position_every_secs, estimates=self._estimates
        )

    def _begin_anew(self) -> None:
        leave_behind(self._submitting, self.follower, self._positions, self._estimator)
        self._begin()

    def check_loop(self) -> None:
        """Raises `WrongEventLoop` outside of the event loop in which the queue was first used.

        What it gathers, follows and keeps fresh belongs to that loop: in another one, answers would never arrive.
        """
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        if self._loop is not loop:
            which = "has ended" if self._loop.is_closed() else "is another one"
            raise WrongEventLoop(
                f"This queue belongs to the event loop in which it was first used, and that {which}; connect again in "
                "each event loop (each asyncio.run), or use qo.sync, which serves all threads."
            )

    @property
    def store_here(self) -> Store:
        """The store, for a call in the queue's own event loop."""
        self.check_loop()
        return self.store

    async def __aenter__(self) -> Queue:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of the store. Closing twice is harmless."""
        if self._loop is None or not self._loop.is_closed():  # else their tasks have ended with it
            self.check_loop()
            await self._positions.close()
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

        A call that is cancelled, or that raises `StoreUnavailable`, may have submitted the job or not. It does not
        submit it later: `get` and `cancel` come behind it. With an `id`, submit it again: there is one job at most.
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
        self.check_loop()
        submission = make_submission(new, self.settings, draw=self._draw)
        return await self._job_or_refusal(new, await self._submitting.send(submission))

    async def submit_many(self, jobs: Iterable[New]) -> list[Job | SubmitRefused]:
        """Submit several, each admitted or refused on its own, in order: a refused one is answered by its error.

        A job that is not even well-formed raises, and then none was submitted.
        """
        jobs = _checked_list(jobs)
        submissions = [make_submission(new, self.settings, draw=self._draw) for new in jobs]
        admitted: list[Job | SubmitRefused] = []
        portion = Portion(SUBMIT_AT_ONCE, counts=submission_count, size=payload_size)
        if portion.length(submissions) < len(submissions):
            for submission in submissions:
                check_submission(submission)  # the store would refuse its portion, when others have been submitted
        async with aclosing(in_portions(self.store_here.submit, submissions, portion=portion)) as portions:
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
                resets_at = _resets_at(answer.today)
                usage = usage_of_user(used=answer.used_today, quota=answer.daily_quota, resets_at=resets_at)
            return present(answer.job, self.settings, usage=usage, now=self._now())
        if answer.reason is RefusalReason.PHASE_TAKEN:
            assert new.parent is not None
            assert new.phase is not None
            assert answer.taken_by is not None
            raise PhaseTaken(new.parent, new.phase, answer.taken_by)
        average = await average_duration(self.store, self.settings, task=new.task, tier=new.tier)
        workers = await self.store.workers()
        wait = retry_after(
            over=answer.waiting - answer.cap,
            average_seconds=average.seconds,
            places=places_among(workers, limit=(await self.store.group(GLOBAL)).limit),
            step_seconds=self.settings.queue.retry_after_step_secs,
        )
        is_guess = average.basis is Basis.FIRST_GUESS or not workers
        raise QueueFull(answer.waiting, answer.cap, wait, is_guess=is_guess)

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
        limit: int = 100,
        newest_first: bool = False,
    ) -> list[Job]:
        """Jobs by status or state: those in line in their order with estimates, then the others by submission."""
        for field, name in (("status", status), ("user", user), ("task", task), ("parent", parent)):
            check_name_or_none(field, name)
        check_flag("newest_first", newest_first)
        found = await self.store_here.jobs(
            status=status, user=user, task=task, parent=parent, limit=limit, newest_first=newest_first
        )
        return await self._all_presented(found, await self._estimates(found))

    async def parent(self, parent: str) -> ParentStatus:
        """A parent, its priority and its phases. Raises `ParentNotFound`."""
        check_name("parent", parent)
        found = await self.store_here.parent(parent)
        return msgspec.structs.replace(found, jobs=tuple(await self._all_presented(found.jobs)))

    async def workers(self) -> list[WorkerInfo]:
        """The live workers, by name."""
        return list(await self.store_here.workers())

    async def wait(self, job_id: str, timeout: float | None = None) -> Job:
        """The job, once it has ended. Raises `Timeout` when it has not in so many seconds."""
        check_name("job_id", job_id)
        if timeout is not None:
            check_seconds("timeout", timeout)

        async def until_ended() -> None:
            changes = watch_job(self.store_here, self.follower, None, job_id, after=None)
            async with aclosing(changes) as events:
                async for _ in events:
                    pass

        if not await within(timeout, until_ended()):
            raise Timeout(f"Job {job_id!r} has not ended within {timeout} seconds; it goes on without you waiting.")
        return await self.get(job_id)

    async def watch(self, job_id: str, *, after: int | None = None) -> AsyncGenerator[Event]:
        """What happens to a job, until it has ended.

        Begins with an event that tells its present state (`present` in its detail); with `after`, the id of the
        last event that was seen, it goes on behind that one instead. Nothing is missed in between.

        While the job is in line, `position` events tell where it stands, with an estimate: when that changed, but at
        most once a second, and every few seconds. Each has the id of the event before it, so `after` works with it.
        """
        check_name("job_id", job_id)
        if after is not None:
            check_cursor(after)
        watching = watch_job(self.store_here, self.follower, self._positions, job_id, after=after)
        async with aclosing(watching) as events:
            async for event in events:
                yield event

    async def why(self, job_id: str, *, for_user: str | None = None) -> Why:
        """Why a job is not running. `for_user`: others' jobs that hold slots are counted, not named."""
        check_name("job_id", job_id)
        check_name_or_none("for_user", for_user)
        blockers = await self.store_here.blockers(job_id)
        visible = None
        if for_user is not None:
            visible = {job.id for job in await self.store_here.jobs(user=for_user, limit=10_000)}
        quota = None
        if blockers.job.deferred and blockers.job.user is not None:
            quota = (await self.store_here.usage(blockers.job.user)).daily_quota
        return explain(facts_of(blockers, visible=visible, daily_quota=quota, now=self._now()))

    async def usage(self, user: str, tier: str | None = None) -> Usage:
        """What a user has used today; `tier` for a user who has none yet."""
        check_name("user", user)
        if tier is not None:
            find_tier(tier, self.settings.tiers)
        used = await self.store_here.usage(user)
        quota = used.daily_quota
        if quota is None and tier is not None:
            quota = find_tier(tier, self.settings.tiers).jobs_per_day
        return usage_of_user(used=used.used_today, quota=quota, resets_at=_resets_at(used.today))

    async def _presented(self, job: Job, estimate: Estimate | None = None) -> Job:
        (presented,) = await self._all_presented([job], [estimate])
        return presented

    async def _all_presented(
        self, jobs: Sequence[Job], estimates: Sequence[Estimate | None] | None = None
    ) -> list[Job]:
        users = sorted({job.user for job in jobs if job.user is not None})
        usages = dict(zip(users, await asyncio.gather(*map(self.usage, users)), strict=True))
        places = await self._places_of_overtaken(jobs)
        now = self._now()
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
        """Of the jobs whose position got worse, and not because of what a person did to them."""
        overtaken = [
            job.id
            for job in jobs
            if job.position is not None and job.position > (job.position_original or 0) and job.displaced is None
        ]
        return await self.store_here.positions(overtaken) if overtaken else {}

    async def estimate(self, job_id: str) -> Estimate | None:
        """When a job in line will probably start; None for one that is not in line. Where it is not known, the
        estimate's message says why.

        From the first call on, and while somebody asks, estimates of the whole line are kept fresh in the background.
        """
        check_name("job_id", job_id)
        job = await self.store_here.job(job_id)
        self._estimator.start()
        return await self._estimator.estimate_of(job)

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
        check_number("minutes", minutes, 1)
        since = self._clock() // 60_000 - minutes
        return analyse(
            waiting=await self.store_here.waiting_count(),
            workers=await self.store_here.workers(),
            series=await self.store_here.series(since_minute=since),
            minutes=minutes,
        )

    async def audit(self, job_id: str | None = None, *, limit: int = 100) -> list[AuditEntry]:
        """Who did what, newest first; of one job or group, or of everything."""
        check_name_or_none("job_id", job_id)
        return list(await self.store_here.audit(subject=job_id, limit=limit))

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
        changed = await self.store_here.set_priority(parse_priority(priority), job_id=job_id, parent=parent, by=by)
        presented = await self._all_presented(changed)
        return presented if parent is not None else presented[0]

    async def move(
        self, job_id: str, *, before: str | None = None, after: str | None = None, by: str | None = None
    ) -> Job:
        """Put a waiting job directly before or after another one, whose priority it takes on."""
        return await self._presented(await self.store_here.move(job_id, before=before, after=after, by=by))

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
        cancelled = await self.store_here.cancel(job_id=job_id, parent=parent, message=message, by=by)
        presented = await self._all_presented(cancelled)
        return presented if parent is not None else presented[0]

    async def retry(self, job_id: str, *, by: str | None = None) -> Job:
        """Put a failed job in line again, with all its attempts."""
        return await self._presented(await self.store_here.retry(job_id, by=by))

    async def confirm(self, job_id: str, *, by: str | None = None) -> Job:
        """Let a job that asked for it go on for another batch of iterations."""
        return await self._presented(await self.store_here.confirm(job_id, by=by))

    async def set_tier(self, user: str, tier: str, by: str | None = None) -> None:
        """Give a user a tier; it counts at once for their waiting and deferred jobs."""
        standing = standing_of(tier, self.settings.tiers)
        self.warn_of_ignored(await self.store_here.set_tier(user, standing, by=by))

    # --- limits -----------------------------------------------------------------------------------------------

    async def pause(self, group: str, *, by: str | None = None) -> None:
        """Nobody new starts in this group until it is resumed."""
        await self.store_here.set_paused(group, True, by=by)

    async def resume(self, group: str, *, by: str | None = None) -> None:
        await self.store_here.set_paused(group, False, by=by)

    async def set_limit(self, group: str, slots: int, by: str | None = None) -> None:
        """Limit a group, as an operator: this wins over every other source."""
        await self.store_here.set_limits([Limit(group=group, slots=slots, source=Source.OPERATOR)], by=by)

    async def remove_limit(self, group: str, by: str | None = None) -> None:
        """The group is unlimited until somebody limits it again."""
        await self.store_here.remove_limit(group, by=by)

    async def limit(self, group: str) -> GroupStatus:
        """A group's limit, who holds its slots, and how many were put aside because of it."""
        check_group(group)
        return await self.store_here.group(group)

    async def limits(self) -> list[GroupStatus]:
        """All groups that have a limit, a pause or holders, by name, without their slots."""
        return list(await self.store_here.groups())

    async def release_slot(self, group: str, slot_id: int, by: str | None = None, force: bool = False) -> str:
        """Take a slot, and with it the whole lease, from its holder, and tell who it was.

        A job goes back to its place with an attempt spent. Without `force` only a lease that has run out.
        """
        check_flag("force", force)
        return await self.store_here.revoke(group, slot_id, force=force, by=by)

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

    def _now(self) -> datetime:
        """For words such as "tomorrow". Only the store's clock decides."""
        return moment(self._clock())


def check_queue(queue: object) -> None:
    if not isinstance(queue, Queue):
        raise InvalidValue(f"queue is {shown(queue)}; give a queue of `await qo.connect(...)`.")


def _checked_list(jobs: Iterable[New]) -> list[New]:
    if not isinstance(jobs, Iterable):
        raise InvalidSubmit(f"jobs is {shown(jobs)}; give a list of qo.New(task, data, ...).")
    listed = list(jobs)
    for number, new in enumerate(listed):
        if not isinstance(new, New):
            raise InvalidSubmit(f"jobs[{number}] is {shown(new)}; give a qo.New(task, data, ...).")
    return listed


def _resets_at(today: int) -> datetime:
    """When the quota of a new day begins: midnight UTC, always."""
    return moment(midnight(today + 1))
