"""The context of a handler, which it gets beside its data: its job, its slots, ways to report and to save."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextvars import ContextVar
from datetime import datetime, timedelta
from types import AsyncGeneratorType
from typing import Any, TypeVar

import msgspec

from qo.errors import InvalidValue, WrongEventLoop
from qo.job import Job, Progress
from qo.loops.background import runs_in
from qo.policy.admission import milliseconds
from qo.policy.json_value import encode_json
from qo.policy.stages import check_stage
from qo.values import Advance, Lease

T = TypeVar("T")
Report = Callable[[Advance], Awaitable[None]]
Extend = Callable[[int], Awaitable[datetime]]


current_context: ContextVar[Context | None] = ContextVar("qo_context", default=None)
"""The context of the job whose handler runs in this task or thread."""


class ConfirmationNeeded(BaseException):
    """The granted iterations are used up. Not an `Exception`, so that no handler swallows it by accident."""


class IterationsUsedUp(Exception):
    """All iterations that the job may ever have are used up."""


class Context:
    """One run of a handler. What reports something raises `LeaseLost` when the worker has lost the lease of the job."""

    def __init__(
        self, lease: Lease, stages: tuple[str, ...], *, report: Report, extend: Extend, state: Any = None
    ) -> None:
        self._lease = lease
        self.state: Any = state
        """What the function under `@worker.lifespan` yields; None without one."""
        self.token: str = lease.token
        """Greater than any earlier holder's token: pass it to what you write to, so that it can reject late writes."""
        self.slots: Mapping[str, int] = lease.slots
        """The number of the held slot, by limited group."""
        self.checkpoint: Any = None if lease.checkpoint is None else msgspec.json.decode(lease.checkpoint)
        """What an earlier run of this job saved, or None."""
        self.cancelled: bool = False
        """The job is to stop. A plain function looks at this from time to time."""
        self.lost: bool = False
        """The lease is lost: another worker may be running this job by now, so stop."""
        self.present_stage: str | None = None
        self._stages = stages
        self._iterations_begun = 0
        self._loop_of_iterations: Callable[[], AsyncGenerator[int, None] | None] = lambda: None
        """Returns the last loop over iterations, as long as the handler keeps it."""
        self._iteration_is_fresh = False
        """`iterations()` has begun an iteration whose first stage has not been entered yet."""
        self._report = report
        self._extend = extend

    @property
    def job(self) -> Job:
        """The job, as it was when it was claimed."""
        return self._lease.job

    @property
    def attempt(self) -> int:
        """Which attempt of the job this is, from 1."""
        return self.job.attempts

    async def stage(self, name: str, message: str | None = None) -> None:
        """Enter the next stage, or after the last one the first, which begins another iteration."""
        check_stage(self._stages, self.present_stage, name)
        iteration = None
        if name == self._stages[0] and not self._iteration_is_fresh:
            iteration = self._iteration_of_stages()
        self._iteration_is_fresh = False
        await self._report(self._advance(stage=name, message=message, iteration=iteration))
        self.present_stage = name

    async def progress(self, done: float, total: float | None = None, text: str | None = None) -> None:
        """Report how far the work has come."""
        await self._report(self._advance(progress=Progress(done, total, text)))

    async def save(self, checkpoint: Any) -> None:
        """Keep a JSON value for the next run of this job, whether by a retry, a confirmation or after a crash."""
        await self._report(self._advance(checkpoint=encode_json("checkpoint", checkpoint)))
        self.checkpoint = checkpoint

    async def extend_lease(self, seconds: float | timedelta) -> datetime:
        """Move the end of the lease further out, and return the new end. Heartbeats never shorten it."""
        return await self._extend(milliseconds("seconds", seconds))

    def iterations(self) -> AsyncGenerator[int, None]:
        """Number the iterations, over all runs of the job, until the handler leaves the loop.

        When the batch that the tier grants is used up, the job leaves the worker and waits for a person. One loop at
        a time: two would count the same iteration twice, so a second one raises `InvalidValue`.
        """
        earlier = self._loop_of_iterations()
        if isinstance(earlier, AsyncGeneratorType) and earlier.ag_frame is not None:
            raise InvalidValue(
                "Another loop over ctx.iterations() has not ended; an iteration is one full cycle of the job, so loop "
                "once and do what goes on side by side inside of it."
            )
        numbers = self._count_iterations()
        self._loop_of_iterations = weakref.ref(numbers)
        return numbers

    async def _count_iterations(self) -> AsyncGenerator[int, None]:
        while True:
            number = self._iterations() + 1
            self._check_granted(number)
            await self._report(self._advance(iteration=number))
            self._iterations_begun += 1
            self._iteration_is_fresh = True
            yield number

    def _iteration_of_stages(self) -> int | None:
        """Return the number of the iteration that the first stage begins; None when it repeats one that broke off."""
        if self.present_stage is None and self._iterations() > 0:
            return None
        number = self._iterations() + 1
        self._check_granted(number)
        self._iterations_begun += 1
        return number

    def _iterations(self) -> int:
        return self.job.iterations + self._iterations_begun

    def _check_granted(self, number: int) -> None:
        most, granted = self.job.iterations_max, self.job.iterations_granted
        if most is not None and number > most:
            raise IterationsUsedUp(f"All {most} iterations are used up.")
        if granted is not None and number > granted:
            raise ConfirmationNeeded

    def _advance(self, **fields: Any) -> Advance:
        return Advance(job_id=self._lease.job_id, token=self.token, **fields)


class ThreadContext:
    """The context of a plain function, in a thread or in a process of its own: the same names, blocking."""

    def __init__(self, context: Context, loop: asyncio.AbstractEventLoop) -> None:
        self._context = context
        self._loop = loop

    @property
    def job(self) -> Job:
        """The job, as it was when it was claimed."""
        return self._context.job

    @property
    def token(self) -> str:
        """Greater than any earlier holder's token: pass it to what you write to, so that it can reject late writes."""
        return self._context.token

    @property
    def slots(self) -> Mapping[str, int]:
        """The number of the held slot, by limited group."""
        return self._context.slots

    @property
    def attempt(self) -> int:
        """Which attempt of the job this is, from 1."""
        return self._context.attempt

    @property
    def checkpoint(self) -> Any:
        """What an earlier run of this job saved, or None."""
        return self._context.checkpoint

    @property
    def state(self) -> Any:
        """What the function under `@worker.lifespan` yields; None without one."""
        return self._context.state

    @property
    def cancelled(self) -> bool:
        """The job is to stop. Look at this from time to time."""
        return self._context.cancelled

    @property
    def lost(self) -> bool:
        """The lease is lost: another worker may be running this job by now, so stop."""
        return self._context.lost

    def stage(self, name: str, message: str | None = None) -> None:
        """Enter the next stage, or after the last one the first, which begins another iteration."""
        self._wait(self._context.stage(name, message))

    def progress(self, done: float, total: float | None = None, text: str | None = None) -> None:
        """Report how far the work has come."""
        self._wait(self._context.progress(done, total, text))

    def save(self, checkpoint: Any) -> None:
        """Keep a JSON value for the next run of this job, whether by a retry, a confirmation or after a crash."""
        self._wait(self._context.save(checkpoint))

    def extend_lease(self, seconds: float | timedelta) -> datetime:
        """Move the end of the lease further out, and return the new end. Heartbeats never shorten it."""
        return self._wait(self._context.extend_lease(seconds))

    def iterations(self) -> Iterator[int]:
        """Number the iterations, over all runs of the job, until the handler leaves the loop."""
        numbers = self._context.iterations()
        while True:
            yield self._wait(_next(numbers))

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        if runs_in(self._loop):
            work.close()
            raise WrongEventLoop(
                "The context of a plain function was used in the worker's event loop, where it would wait for itself "
                "for ever; use it in the thread of the handler, or make the handler an `async def`."
            )
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


async def _next(numbers: AsyncIterator[int]) -> int:
    return await anext(numbers)
