"""The question to a person before a job goes on, and the iterations that a confirmation grants."""

from __future__ import annotations

from qo.job import Job, State
from qo.policy.words import counted

BEFORE_IT_RUNS = frozenset({State.QUEUED, State.SCHEDULED, State.STARTING})


def granted_after(granted: int | None, batch: int | None, most: int | None) -> int | None:
    """The iterations that a job may use in all after one more confirmation. None sets no bound."""
    if granted is None or batch is None:
        return granted
    return granted + batch if most is None else min(granted + batch, most)


def message_now(job: Job) -> str | None:
    """A job's message for a reader now.

    The tier may have changed since the job asked, so the stored question may be out of date.
    """
    if job.state is State.CONFIRMING:
        return question(job) or job.message
    if job.state in BEFORE_IT_RUNS:
        return will_ask(job) or job.message
    return job.message


def question(job: Job) -> str | None:
    """The question of a job that asks for more iterations. None for a job that asks for something else."""
    granted = job.iterations_granted
    after = granted_after(granted, job.iterations_batch, job.iterations_max)
    if granted is None or after is None or job.iterations_batch is None:
        return None
    if after <= granted:
        used = f"its tier allows {job.iterations_max} in all, and {job.iterations} are used"
        return f"No more iterations can be granted: {used}; cancel it"
    return f"Continue for {counted(after - granted, 'more iteration')}"


def will_ask(job: Job) -> str | None:
    """The message of a job whose next iteration needs a confirmation, such as a job that failed without one."""
    granted, used = job.iterations_granted, job.iterations
    if granted is None or used < granted or (job.iterations_max is not None and used >= job.iterations_max):
        return None
    iterations = counted(granted, "iteration")
    verb = "is" if granted == 1 else "are"
    return f"It asks for confirmation before iteration {used + 1}: the {iterations} that it was granted {verb} used"
