"""One job on its way through its handler: from a lease to an outcome."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from enum import Enum
from typing import Any

from qo.errors import Fail, InvalidTransition, InvalidValue, LeaseLost, Retry
from qo.job import JobError, State
from qo.policy.confirming import question
from qo.policy.estimates.base import duration_of_task, duration_of_tier
from qo.policy.estimates.replay import STEADY_WEIGHT, steady
from qo.policy.retry import retry_delay_ms
from qo.policy.stages import check_may_return
from qo.settings import Settings
from qo.spans import whole_ms
from qo.store.check_values import check_advance, check_outcome
from qo.tracing import handling, is_traced
from qo.values import Advance, Average, Held, Lease, Outcome, Renewal, Renewed
from qo.worker.context import ConfirmationNeeded, Context, IterationsUsedUp, ThreadContext, current_context
from qo.worker.failure import report_failure, report_request
from qo.worker.hooks import Surroundings
from qo.worker.processes.process import ProcessEnded
from qo.worker.processes.running import run_in_process
from qo.worker.result import UnusableResult, encode_result
from qo.worker.task import PayloadMismatch, Task

log = logging.getLogger("qo.worker")


class Interruption(Enum):
    """Why a handler is to stop before it is done."""

    CANCELLED = "cancelled"
    TIMED_OUT = "timed out"
    LOST = "lost"
    STOPPED = "stopped"


class Execution:
    """The run of one job. It begins when this is made, and ends with one call of `ended` in the event loop.

    `ended` gets the outcome, or None when the lease is lost and no outcome counts any more.
    """

    def __init__(
        self,
        lease: Lease,
        task: Task,
        settings: Settings,
        *,
        draw: Callable[[], float],
        advance: Callable[[Advance], Awaitable[Held]],
        renew: Callable[[Sequence[Renewal]], Awaitable[Renewed]],
        ended: Callable[[Execution, Outcome | None], None],
        surroundings: Surroundings,
    ) -> None:
        self.lease = lease
        self.task = task
        self.begun = False
        """The handler has been called."""
        self.reported = False
        """The store knows that the job runs."""
        self._reports_under_way = 0
        self._surroundings = surroundings
        self.context = Context(lease, task.stages, report=self._report, extend=self._extend, state=surroundings.state)
        self._settings = settings
        self._draw = draw
        self._send_advance = advance
        self._send_renewals = renew
        self._ended = ended
        self.has_ended = False
        self._interruption: Interruption | None = None
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._running = self._loop.create_task(self._run(), name=lease.job_id)

    # --- from outside -----------------------------------------------------------------------------------------

    def has_news(self) -> bool:
        """Return whether the job runs and the store does not know."""
        return self.begun and not (self.reported or self._reports_under_way or self.has_ended)

    def interrupt(self, reason: Interruption, *, patience_seconds: float | None = None) -> None:
        """Ask the handler to stop. It is given up after `patience_seconds`, by default after the grace period."""
        if self.has_ended or (self._interruption is not None and reason is not Interruption.STOPPED):
            return
        reason = self._interruption or reason
        self._interruption = reason
        self.flag(reason)
        if self.task.is_async or self.task.process:
            self._running.cancel()
        grace = self._settings.worker.grace_secs
        self._set_timer(grace if patience_seconds is None else patience_seconds, self.give_up)

    def flag(self, reason: Interruption) -> None:
        """Set the flag that a handler in a thread looks at. May be called from any thread."""
        self.context.cancelled |= reason in (Interruption.CANCELLED, Interruption.TIMED_OUT)
        self.context.lost |= reason is Interruption.LOST

    def give_up(self) -> None:
        """Stop waiting for a handler that does not end. It may go on, but its result no longer counts."""
        if not self.has_ended:
            log.warning("%s %s goes on although it was told to stop; its result will not count", *self._name())
            self._end(self._interrupted())

    # --- the way through --------------------------------------------------------------------------------------

    async def _run(self) -> None:
        outcome: Outcome | None
        try:
            outcome = await self._outcome()
        except BaseException as error:
            # A handler may raise anything, and every error ends this job, never the worker.
            outcome = self._failed(error)
        self._end(outcome)

    async def _outcome(self) -> Outcome:
        # A process decodes the payload itself.
        data = None if self.task.process else self.task.decode(self.lease.payload)
        seconds = self.lease.timeout_seconds or self.task.timeout_seconds
        if seconds is not None:
            self._set_timer(seconds, self.interrupt, Interruption.TIMED_OUT)
        self.begun = True
        current_context.set(self.context)  # this task runs nothing else
        job = self.lease.job if is_traced() else None
        if job is not None:
            with handling(task=job.task, job_id=job.id, attempt=job.attempts, trace=job.trace):
                result = await self._call_within(data)
        else:
            result = await self._call_within(data)
        if self._interruption not in (None, Interruption.STOPPED):
            raise asyncio.CancelledError  # it returned because it was interrupted, so this is no result
        check_may_return(self.task.stages, self.context.present_stage)
        return self._outcome_of(State.SUCCEEDED, result=self._encoded(result), averages=self._averages())

    async def _call_within(self, data: Any) -> Any:
        """Call the handler inside of the program's own block. That cannot turn an error into a success: an error that
        it swallows, as reports of errors often do, is raised again."""
        around = self._surroundings.around
        if around is None:
            return await self._call(data)
        error: BaseException | None = None
        async with around(self.context):
            try:
                result = await self._call(data)
            except BaseException as raised:
                error = raised
                raise
        if error is not None:
            raise error
        return result

    async def _call(self, data: Any) -> Any:
        if self.task.process:
            assert self._surroundings.pool is not None
            return await run_in_process(
                self._surroundings.pool,
                self.task,
                self.lease,
                self.context,
                report=self._report,
                extend=self._extend,
            )
        if self.task.is_async:
            return await self.task.handler(*self.task.arguments(data, self.context))
        return await self._call_in_thread(data)

    async def _call_in_thread(self, data: Any) -> Any:
        """Run a plain function in a thread of its own: a daemon, because a handler that never returns must not keep the
        process of a stopped worker alive."""
        returned: asyncio.Future[tuple[Any, BaseException | None]] = self._loop.create_future()
        arguments = self.task.arguments(data, ThreadContext(self.context, self._loop))
        surroundings = contextvars.copy_context()

        def settle(result: Any, error: BaseException | None) -> None:
            if not returned.done():
                returned.set_result((result, error))

        def call() -> None:
            result, error = None, None
            try:
                result = surroundings.run(self.task.handler, *arguments)
            except BaseException as raised:
                # Passed on as a value: some errors, such as StopIteration, cannot be set on a future.
                error = raised
            try:
                self._loop.call_soon_threadsafe(settle, result, error)
            except RuntimeError:
                log.warning("%s %s returned after its worker was gone; its result is lost", *self._name())

        threading.Thread(target=call, name=self.lease.job_id, daemon=True).start()
        result, error = await returned
        if error is not None:
            raise error
        return result

    def _set_timer(self, seconds: float, callback: Callable[..., None], *arguments: Any) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, callback, *arguments)

    def _end(self, outcome: Outcome | None) -> None:
        if self.has_ended:
            return
        self.has_ended = True
        if self._timer is not None:
            self._timer.cancel()
        self._ended(self, outcome)

    # --- outcomes ---------------------------------------------------------------------------------------------

    def _failed(self, error: BaseException) -> Outcome | None:
        if self._interruption is not None:
            return self._interrupted()
        match error:
            case LeaseLost() if self.context.lost:
                return None
            case ConfirmationNeeded():
                return self._outcome_of(State.CONFIRMING, message=question(self.lease.job) or "Continue?")
            case Retry():
                after_ms = None if error.after is None else whole_ms(error.after)
                shown = self._report_request(error, "asked to be tried again", logging.INFO)
                return self._try_again(shown, after_ms=after_ms)
            case Fail() | IterationsUsedUp():
                shown = self._report_request(error, "failed", logging.WARNING, message=str(error))
                return self._outcome_of(State.FAILED, error=shown)
            case PayloadMismatch() | UnusableResult() | InvalidTransition():
                shown = report_failure(error, self.lease.job, self.lease.payload, message=str(error))
                return self._outcome_of(State.FAILED, error=shown)
            case ProcessEnded():
                return self._try_again(report_failure(error, self.lease.job, self.lease.payload, message=str(error)))
            case _:
                return self._try_again(report_failure(error, self.lease.job, self.lease.payload))

    def _interrupted(self) -> Outcome | None:
        match self._interruption:
            case Interruption.CANCELLED:
                return self._outcome_of(State.CANCELLED)
            case Interruption.STOPPED:
                return self._outcome_of(State.QUEUED)
            case Interruption.TIMED_OUT:
                return self._try_again(self._timeout_error())
            case _:
                # Another worker may run this job by now and will record its outcome. Ours is dropped, which is why
                # handlers must be safe to run twice.
                return None

    def _report_request(self, error: BaseException, request: str, level: int, message: str | None = None) -> JobError:
        return report_request(error, self.lease.job, self.lease.payload, request=request, level=level, message=message)

    def _try_again(self, error: JobError, *, after_ms: int | None = None) -> Outcome:
        if after_ms is None:
            after_ms = retry_delay_ms(self.lease.job.attempts, self._settings.retries, drawn=self._draw())
        return self._outcome_of(State.SCHEDULED, error=error, retry_after_ms=after_ms)

    def _timeout_error(self) -> JobError:
        seconds = self.lease.timeout_seconds or self.task.timeout_seconds
        error = TimeoutError(f"It took longer than the {seconds:g} seconds it may take.")
        return report_failure(error, self.lease.job, self.lease.payload, message=str(error))

    def _outcome_of(self, state: State, **fields: Any) -> Outcome:
        return Outcome(job_id=self.lease.job_id, token=self.lease.token, state=state, **fields)

    def _encoded(self, result: Any) -> bytes | None:
        return encode_result(result, most_bytes=self._settings.queue.max_payload_bytes)

    def _averages(self) -> tuple[Average, ...]:
        estimate, tier = self._settings.estimate, self.lease.tier
        names = [(duration_of_task(self.task.name), estimate.first_guess_secs)]
        if tier is not None:
            known = self._settings.tiers.get(tier)
            names.append(
                (duration_of_tier(tier), estimate.first_guess_secs if known is None else known.first_guess_secs)
            )
        return tuple(
            Average(name=name, first=first, weight=weight)
            for quick, first in names
            for name, weight in ((quick, estimate.newest_weight), (steady(quick), STEADY_WEIGHT))
        )

    # --- to the store -----------------------------------------------------------------------------------------

    async def _report(self, advance: Advance) -> None:
        check_advance(advance)  # here, because one call carries the reports of several jobs
        self._reports_under_way += 1
        try:
            held = await self._send_advance(advance)
        finally:
            self._reports_under_way -= 1
        self.reported = True
        self._heed(held)

    async def _extend(self, milliseconds: int) -> datetime:
        renewal = Renewal(holder=self.lease.job_id, token=self.lease.token, extend_ms=milliseconds)
        (held,) = (await self._send_renewals([renewal])).held
        self._heed(held)
        assert held.expires_at is not None
        return held.expires_at

    def _heed(self, held: Held) -> None:
        if held.lost:
            self.context.lost = True
            raise LeaseLost(held.holder, held.token)
        if held.cancel_wanted:
            self.interrupt(Interruption.CANCELLED)

    def _name(self) -> tuple[str, str]:
        return self.task.name, self.lease.job_id


def storable(outcome: Outcome) -> Outcome:
    """Return the outcome, or a failure in its stead where the store would refuse it."""
    try:
        check_outcome(outcome)
    except InvalidValue as error:
        refused = JobError(message=f"The outcome of the run cannot be stored: {error}")
        return Outcome(job_id=outcome.job_id, token=outcome.token, state=State.FAILED, error=refused)
    return outcome
