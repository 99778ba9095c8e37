"""Starts of jobs against the range that each was first promised."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec

from qo.job import Job, JobHistory, State


class Start(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The first start of a job. All seconds count from the promise."""

    job: str
    """The id of the job."""
    task: str
    """Its task."""
    started_at: datetime
    """When it was claimed."""
    waited_seconds: float
    """How long that was after the promise."""
    lower_bound: float
    """The earliest start that was promised."""
    upper_bound: float
    """The latest start that was promised."""
    kept: bool
    """Whether it started in between."""


def starts_of(jobs: Iterable[Job]) -> list[Start]:
    """The first starts of those jobs that had a promise, in the order of the jobs."""
    return [start for job in jobs if (start := _start_of(job)) is not None]


def _start_of(job: Job) -> Start | None:
    history = job.history
    if history is None or history.promise is None:
        return None
    started_at = _first_start(history)
    if started_at is None:
        return None
    promise = history.promise
    waited_seconds = (started_at - promise.made_at).total_seconds()
    return Start(
        job=job.id,
        task=job.task,
        started_at=started_at,
        waited_seconds=waited_seconds,
        lower_bound=promise.lower_bound,
        upper_bound=promise.upper_bound,
        kept=promise.lower_bound <= waited_seconds <= promise.upper_bound,
    )


def _first_start(history: JobHistory) -> datetime | None:
    """None where it is not known any more: a job keeps only its last attempts and states."""
    if history.attempts and history.attempts[0].number == 1:
        return history.attempts[0].started_at
    starts = [reached.at for reached in history.states if reached.status == State.STARTING]
    return starts[0] if starts and not history.attempts else None
