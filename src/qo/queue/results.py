"""Waits for the result of a job, in the type that its task declares."""

from __future__ import annotations

from typing import Any, TypeVar, overload

from qo.errors import JobCancelled, JobFailed
from qo.job import Job, JobError, State
from qo.new_job import Task
from qo.policy.checks import check_name
from qo.queue.reading import Reading
from qo.queue.task import check_task_or_none

R = TypeVar("R")


class Results(Reading):
    """The part of `Queue` that returns results."""

    known_tasks: dict[str, Task[Any, Any]]
    """By name, the tasks that this queue was given as functions: by a submit or by a worker."""

    @overload
    async def result(self, job: Job[R], task: None = None, *, timeout: float | None = None) -> R: ...
    @overload
    async def result(self, job: str | Job, task: Task[Any, R], *, timeout: float | None = None) -> R: ...
    @overload
    async def result(self, job: str, task: None = None, *, timeout: float | None = None) -> Any: ...
    async def result(self, job: str | Job, task: Task[Any, Any] | None = None, *, timeout: float | None = None) -> Any:
        """Wait until the job has ended, and return its result.

        The result has the type that its task declares, if this queue knows the task as a function under `@qo.task`:
        from a submit, from a worker of this queue, or as `task` here. Otherwise it has JSON values.

        Raises `JobFailed` or `JobCancelled` when the job ended otherwise, `Timeout` after so many seconds, and
        `InvalidValue` when the stored result does not fit the declared type.
        """
        check_task_or_none(task)
        job_id = job.id if isinstance(job, Job) else job
        check_name("job", job_id)
        ended = await self.wait(job_id, timeout)
        if ended.state is State.CANCELLED:
            raise JobCancelled(ended.id, ended.task, message=ended.message)
        if ended.state is not State.SUCCEEDED:
            raise _failure(ended)
        known = self.known_tasks.get(ended.task) if task is None else task
        return ended.result if known is None else known.read_result(ended.result)


def _failure(job: Job) -> JobFailed:
    error = job.error or JobError(message=job.message or "the reason is not known any more")
    return JobFailed(
        job.id,
        job.task,
        attempts=job.attempts,
        message=error.message,
        detail=error.detail,
        debug_id=error.debug_id,
    )
