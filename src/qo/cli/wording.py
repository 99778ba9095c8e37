"""Jobs in words, the same in every command."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from qo.job import HELD, PRIORITY_NAMES, Basis, Estimate, Job, State
from qo.policy.confirming import will_ask
from qo.policy.estimates.base import NOW
from qo.policy.words import brief_span, clock_time

NAMES_OF_PRIORITIES = {number: name for name, number in PRIORITY_NAMES.items()}
COLOURS: dict[str, str] = {
    State.SCHEDULED: "blue",
    State.WAITING: "blue",
    State.STARTING: "cyan",
    State.RUNNING: "cyan",
    State.CONFIRMING: "yellow",
    State.SUCCEEDED: "green",
    State.FAILED: "red",
    State.CANCELLED: "bright_black",
}
"""A job in line has no colour of its own, because most jobs of a list are in line."""


def job_sentence(job: Job, *, with_start: bool = False) -> str:
    """`build 01J… is #3 in line.`; `with_start` adds a known estimate: `…, it starts in about 1 minute.`"""
    starts = f", {start_sentence(job.estimate)}" if with_start and job.estimate is not None else ""
    asks = will_ask(job) if job.state is State.QUEUED else None
    return f"{job.task} {job.id} {where(job)}{starts}.{'' if asks is None else f' {asks}.'}"


def where(job: Job) -> str:
    """Where a job stands, as the rest of a sentence that begins with its name."""
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


def start_text(estimate: Estimate | None) -> str | None:
    """When a job will probably start, and how sure that is."""
    if estimate is None:
        return None
    if estimate.basis is not Basis.MEASURED or estimate.message == NOW:
        return estimate.message
    return f"{estimate.message} ({estimate.confidence} confidence)"


def start_sentence(estimate: Estimate) -> str:
    """When a job will probably start, as the rest of a sentence that says where it stands."""
    if estimate.estimate_seconds is None:
        return f"when it starts is {estimate.message}"
    return f"it starts {estimate.message}" if estimate.message == NOW else f"it starts in {estimate.message}"


def priority_text(priority: int) -> str:
    name = NAMES_OF_PRIORITIES.get(priority)
    return f"{priority}" if name is None else f"{priority} ({name})"


def attempts_text(made: int, job: Job) -> str:
    """`1 of 3`. The second number is known once a worker of the task has claimed the job."""
    return f"{made}" if job.max_attempts is None else f"{made} of {job.max_attempts}"


def brief_attempts(job: Job) -> str:
    """`1/3`, for a narrow column; nothing before the first."""
    if not job.attempts:
        return ""
    return f"{job.attempts}" if job.max_attempts is None else f"{job.attempts}/{job.max_attempts}"


def brief_age(since: datetime) -> str:
    """The time that has passed since then, for a narrow column."""
    return brief_span((datetime.now(UTC) - since).total_seconds())


def time_text(at: datetime | None) -> str | None:
    return None if at is None else f"{at:%Y-%m-%d %H:%M:%S} UTC"


def json_text(value: Any) -> str | None:
    """The value as JSON; None has no text."""
    import json

    return None if value is None else json.dumps(value, ensure_ascii=False)


def _after_colon(text: str | None) -> str:
    return f": {text.rstrip('.')}" if text else ""
