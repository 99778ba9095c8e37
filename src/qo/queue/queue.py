"""Queue: the front door of qo. How it opens and closes, and how jobs are submitted.

Its other calls are in `reading.py`, `forecasting.py`, `changing.py` and `limiting.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, TypeVar, Unpack, overload

import msgspec

from qo.errors import HistoryFull, InvalidSubmit, InvalidValue, PhaseTaken, QueueFull, SubmitRefused
from qo.forking import leave_behind, when_forked
from qo.job import Basis, Job
from qo.loops.gathering import MOST_PER_CALL, Gathering, in_portions
from qo.loops.portions import Portion, payload_size, submission_count
from qo.loops.system import SYSTEM, System
from qo.new_job import New, SubmitOptions, Task
from qo.policy.admission import make_submission, retry_after
from qo.policy.checks import shown
from qo.policy.estimates.durations import capacity_among
from qo.policy.groups import GLOBAL
from qo.policy.presenting import present, usage_of_user
from qo.policy.start_by import never_in_time
from qo.queue.averages import average_duration
from qo.queue.changing import Changing
from qo.queue.estimator import Estimator
from qo.queue.follower import Follower
from qo.queue.forecasting import Forecasting
from qo.queue.limiting import Limiting
from qo.queue.line_view import LineView
from qo.queue.positions import Positions
from qo.queue.results import Results
from qo.queue.task import name_of
from qo.settings import Settings
from qo.store.check_values import check_submission
from qo.store.contract import Store
from qo.tracing import current_trace
from qo.values import Accepted, LimitIgnored, Refusal, RefusalReason, Submission

D = TypeVar("D")
R = TypeVar("R")
S = TypeVar("S")

SUBMIT_AT_ONCE = 250
"""A long list is submitted in portions of so many jobs, or of 1 MiB of payload, so that the store can serve other
callers in between."""
PORTION = Portion(SUBMIT_AT_ONCE, counts=submission_count, size=payload_size)


class Admitted(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job that was submitted. `known`: it was there before, under its id or its unique key."""

    job: Job
    """The job, as it was stored."""
    known: bool
    """Whether it was there before, under its id or its unique key."""


class Queue(Changing, Forecasting, Results, Limiting):
    """A line of jobs and its limits, on one store. `qo.connect` makes it."""

    def __init__(self, store: Store, settings: Settings, *, system: System = SYSTEM) -> None:
        self.store = store
        self.settings = settings
        self.system = system
        self.known_tasks = {}
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
        self._estimator = Estimator(self.store, self.settings, system=self.system)
        self._begin_forecasting()
        self.line_view = LineView(self._estimator, system=self.system)
        self._positions = Positions(
            self.store,
            every_seconds=self.settings.stream.position_every_secs,
            estimates=self._estimates,
            clock=self.system.monotonic,
        )

    def _begin_anew(self) -> None:
        leave_behind(self._submitting, self.follower, self._positions, self._estimator)
        self._begin()

    async def __aenter__(self) -> Queue:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the store and end the background tasks. Closing twice is harmless."""
        if self._loop is None or not self._loop.is_closed():  # else the tasks have ended with it
            self.check_loop()
            await self._positions.close()
            await self._estimator.close()
            await self.follower.close()
        await self.store.close()

    # --- submitting -------------------------------------------------------------------------------------------

    @overload
    async def submit(self, task: str, data: Any = None, **options: Unpack[SubmitOptions]) -> Job: ...
    @overload
    async def submit(self, task: Task[None, R], data: None = None, **options: Unpack[SubmitOptions]) -> Job[R]: ...
    @overload
    async def submit(self, task: Task[D, R], data: D, **options: Unpack[SubmitOptions]) -> Job[R]: ...
    async def submit(
        self,
        task: str | Task[Any, Any],
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
        start_by: float | timedelta | datetime | None = None,
        max_attempts: int | None = None,
        timeout: float | timedelta | None = None,
        contact: str | None = None,
        by: str | None = None,
    ) -> Job:
        """Submit one job. It is stored durably when this returns. A known `id` or `unique` key returns that job.

        `task` is a task's name, or a function under `@qo.task`. A type checker knows then which `data` it takes.

        `start_by` is a span from now or a time. A job that has not started by then fails, and gives its quota back.

        `contact` is the e-mail address that reminders about this job go to, instead of the configured recipients. It is
        deleted when the job ends, and no `Job`, event or log contains it.

        Raises a `SubmitRefused` that says what to do; then nothing was stored and nothing charged.
        The returned job has no estimate, because that would make a submit wait for one: `get` or `estimate` has it.

        A call that is cancelled, or that raises `StoreUnavailable`, may have submitted the job or not. It does not
        submit the job later: a `get` or `cancel` after it sees the outcome. A submit repeated with the same `id` makes
        one job at most.
        """
        if isinstance(task, Task):
            self.known_tasks[task.name] = task
        new = New(
            task=name_of(task),
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
            start_by=start_by,
            max_attempts=max_attempts,
            timeout=timeout,
            contact=contact,
            by=by,
        )
        return (await self.admit(new)).job

    async def admit(self, new: New) -> Admitted:
        """`submit` that also says whether the job was there before."""
        self.check_loop()
        submission = self._submission(new, current_trace())
        return await self._job_or_refusal(new, await self._submitting.send(submission))

    async def submit_many(self, jobs: Iterable[New]) -> list[Job | SubmitRefused]:
        """Submit several jobs. Returns in order each job, or the error that refused it.

        Raises when a job is malformed; then none was submitted.
        """
        jobs = _checked_list(jobs)
        trace = current_trace()
        submissions = [self._submission(new, trace) for new in jobs]
        if PORTION.length(submissions) < len(submissions):
            for submission in submissions:
                check_submission(submission)  # in a later portion the store would refuse it too late
        admitted = await self._admit(jobs, submissions)
        return [each.job if isinstance(each, Admitted) else each for each in admitted]

    async def admit_each(self, jobs: Sequence[New]) -> list[Admitted | SubmitRefused]:
        """`submit_many` in which a malformed job is refused by itself. It also says whether a job was there before."""
        trace = current_trace()
        made = [_or_refusal(lambda new: self._submission(new, trace), new) for new in jobs]
        well_formed = [each for each in made if isinstance(each, Submission)]
        if PORTION.length(well_formed) == len(well_formed):
            try:
                return await self._admit_made(jobs, made)
            except SubmitRefused:
                pass  # One is malformed, so the store took none of them. The checks below find it.
        checked = [_or_refusal(_checked, each) if isinstance(each, Submission) else each for each in made]
        return await self._admit_made(jobs, checked)

    async def _admit_made(
        self, jobs: Sequence[New], made: Sequence[Submission | SubmitRefused]
    ) -> list[Admitted | SubmitRefused]:
        pairs = [(new, each) for new, each in zip(jobs, made, strict=True) if isinstance(each, Submission)]
        admitted = iter(await self._admit([new for new, _ in pairs], [each for _, each in pairs]))
        return [next(admitted) if isinstance(each, Submission) else each for each in made]

    async def _admit(self, jobs: Sequence[New], submissions: Sequence[Submission]) -> list[Admitted | SubmitRefused]:
        admitted: list[Admitted | SubmitRefused] = []
        async with aclosing(in_portions(self.store_here.submit, submissions, portion=PORTION)) as portions:
            async for answers in portions:
                for answer in answers:
                    try:
                        admitted.append(await self._job_or_refusal(jobs[len(admitted)], answer))
                    except SubmitRefused as refusal:
                        admitted.append(refusal)
        return admitted

    def _submission(self, new: New, trace: str | None) -> Submission:
        job_id = self.system.new_id() if new.id is None else new.id
        return make_submission(new, self.settings, job_id=job_id, drawn=self.system.draw(), trace=trace)

    async def _job_or_refusal(self, new: New, answer: Accepted | Refusal) -> Admitted:
        if isinstance(answer, Accepted):
            self.warn_of_ignored(answer.ignored)
            usage = None
            if answer.used_today is not None:
                usage = usage_of_user(used=answer.used_today, quota=answer.daily_quota, today=answer.today)
            job = present(answer.job, self.settings, usage=usage, now=self.system.now())
            return Admitted(job=job, known=answer.known)
        if answer.reason is RefusalReason.PHASE_TAKEN:
            assert new.parent is not None
            assert new.phase is not None
            assert answer.taken_by is not None
            raise PhaseTaken(new.parent, new.phase, answer.taken_by)
        if answer.reason is RefusalReason.OVERDUE:
            raise never_in_time(new)
        if answer.reason is RefusalReason.HISTORY_FULL:
            raise HistoryFull(answer.waiting, answer.cap)
        average = await average_duration(self.store, self.settings, task=new.task, tier=new.tier)
        workers = await self.store.workers()
        wait = retry_after(
            over=answer.waiting - answer.cap,
            average_seconds=average.seconds,
            capacity=capacity_among(workers, limit=(await self.store.groups([GLOBAL]))[0].limit),
            step_seconds=self.settings.queue.retry_after_step_secs,
        )
        is_guess = average.basis is Basis.FIRST_GUESS or not workers
        raise QueueFull(answer.waiting, answer.cap, wait, is_guess=is_guess)


def check_queue(queue: object) -> None:
    """Raises `InvalidValue` for anything but a `Queue`."""
    if not isinstance(queue, Queue):
        raise InvalidValue(f"queue is {shown(queue)}; give a queue of `await qo.connect(...)`.")


def _or_refusal(make: Callable[[S], Submission], given: S) -> Submission | SubmitRefused:
    try:
        return make(given)
    except SubmitRefused as refusal:
        return refusal


def _checked(submission: Submission) -> Submission:
    check_submission(submission)
    return submission


def _checked_list(jobs: Iterable[New]) -> list[New]:
    if not isinstance(jobs, Iterable):
        raise InvalidSubmit(f"jobs is {shown(jobs)}; give a list of qo.New(task, data, ...).")
    listed = list(jobs)
    for number, new in enumerate(listed):
        if not isinstance(new, New):
            raise InvalidSubmit(f"jobs[{number}] is {shown(new)}; give a qo.New(task, data, ...).")
    return listed
