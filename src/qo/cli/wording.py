"""Jobs in words, the same in every command."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from qo.job import HELD, Basis, Estimate, Job, State
from qo.policy.confirming import will_ask
from qo.policy.estimate import NOW
from qo.policy.ordering import PRIORITY_NAMES
from qo.policy.words import clock_time, span

NAMES_OF_PRIORITIES = {number: name for name, number in PRIORITY_NAMES.items()}


def told(job: Job, *, with_start: bool = False) -> str:
    """`build 01J… is #3 in line.`, and if that is wanted and known, `…, it starts in about 1 minute.`"""
    starts = f", {start_sentence(job.estimate)}" if with_start and job.estimate is not None else ""
    asks = will_ask(job) if job.state is State.QUEUED else None
    return f"{job.task} {job.id} {where(job)}{starts}.{'' if asks is None else f' {asks}.'}"


def where(job: Job) -> str:
    """Where a job stands, to be said after its name."""
    match job.state:
        case State.QUEUED if job.position is not None:
            return f"is #{job.position} in line"
        case State.SCHEDULED if job.run_at is not None:
            reason = ", because the daily quota is used up until then" if job.deferred else ""
            return f"is scheduled for {clock_time(job.run_at, now=datetime.now(UTC))}{reason}"
        case State.WAITING if job.phase is not None:
            return f"waits for phase {job.phase - 1} of {job.parent}"
        case State.CONFIRMING:
            return f"waits for a person to confirm{_after_colon(job.message)}"
        case State.FAILED:
            return f"has failed{_after_colon(None if job.error is None else job.error.message)}"
        case State.SUCCEEDED:
            return f"is {job.status}" if job.stage else "has succeeded"
        case State.CANCELLED:
            return f"was cancelled{_after_colon(job.message)}"
        case state if state in HELD and job.cancel_wanted:
            return "is being cancelled"
        case State.RUNNING if job.stage is not None:
            return f"is running, at stage {job.stage}"
        case state:
            return f"is {state.value}"


def starts_told(estimate: Estimate | None) -> str | None:
    """When a job will probably start, and how sure that is."""
    if estimate is None:
        return None
    if estimate.basis is not Basis.MEASURED or estimate.message == NOW:
        return estimate.message
    return f"{estimate.message} ({estimate.confidence} confidence)"


def start_sentence(estimate: Estimate) -> str:
    """The same, to be said after where the job stands."""
    if estimate.estimate_seconds is None:
        return f"when it starts is {estimate.message}"
    return f"it starts {estimate.message}" if estimate.message == NOW else f"it starts in {estimate.message}"


def priority_told(priority: int) -> str:
    name = NAMES_OF_PRIORITIES.get(priority)
    return f"{priority}" if name is None else f"{priority} ({name})"


def attempts_told(made: int, job: Job) -> str:
    """How many of how many; the latter is not known before a worker that knows the task has taken the job."""
    return f"{made}" if job.max_attempts is None else f"{made} of {job.max_attempts}"


def age_told(since: datetime | None) -> str | None:
    """How long ago, as people say it."""
    return None if since is None else span(max(0.0, (datetime.now(UTC) - since).total_seconds()))


def time_told(at: datetime | None) -> str | None:
    return None if at is None else f"{at:%Y-%m-%d %H:%M:%S} UTC"


def data_told(value: Any) -> str | None:
    """JSON as it was written; nothing for nothing."""
    import json

    return None if value is None else json.dumps(value, ensure_ascii=False)


def _after_colon(text: str | None) -> str:
    return f": {text.rstrip('.')}" if text else ""
