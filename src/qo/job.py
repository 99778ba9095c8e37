"""A job as users see it, and a job to be submitted."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Any

import msgspec

PRIORITY_NAMES = {"urgent": 10, "high": 20, "normal": 50, "low": 70, "background": 90}
NORMAL = PRIORITY_NAMES["normal"]


class State(StrEnum):
    """A job's state, for programs. `policy/lifecycle.py` has the allowed transitions."""

    SCHEDULED = "scheduled"
    WAITING = "waiting"
    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    CONFIRMING = "confirming"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


ENDED = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELLED})
HELD = frozenset({State.STARTING, State.RUNNING})


class Displaced(StrEnum):
    """How a person put a job in line further back than it would stand by itself."""

    MOVED = "moved"
    PRIORITY = "priority"


class Progress(msgspec.Struct, frozen=True):
    done: float
    total: float | None = None
    text: str | None = None


class JobError(msgspec.Struct, frozen=True):
    """The part of a failure that a user may see. `debug_id` finds the rest in the server's log."""

    message: str
    detail: str | None = None
    debug_id: str | None = None


class Usage(msgspec.Struct, frozen=True):
    """A user's usage of today, and how much is left of it; None where nothing limits it."""

    jobs_used: int
    jobs_remaining: int | None
    iterations_used: int
    iterations_remaining: int | None
    daily_limit_resets_at: datetime


class Upgrade(msgspec.Struct, frozen=True):
    """The offer to a user of a lower tier, shown with their position."""

    message: str
    url: str


class Basis(StrEnum):
    """The basis of an estimate."""

    MEASURED = "measured"
    FIRST_GUESS = "first_guess"


class Estimate(msgspec.Struct, frozen=True):
    """When a waiting job will probably start.

    Where that is not known, `message` says why and everything else is None.
    """

    estimate_seconds: float | None
    lower_bound: float | None
    upper_bound: float | None
    message: str
    confidence: str | None
    basis: Basis | None
    """`measured` once jobs of the task (or the tier) have ended, or where a job can start now; else `first_guess`."""


class Job(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One call of a task, as it was when it was read.

    `position` is None unless the job is in line. The queue fills in `position_message`, `upgrade`, `usage` and
    `estimate`, because it knows the policy; a store leaves them None. Only jobs that are read (`get`, `jobs`) have an
    `estimate`, not those that a submit or a change returns.
    """

    id: str
    task: str
    state: State
    status: str
    priority: int
    groups: tuple[str, ...]
    submitted_at: datetime
    attempts: int
    max_attempts: int | None = None
    """None until the job first starts, unless its submit named the number. Its task decides then."""
    stage: str | None = None
    tier: str | None = None
    user: str | None = None
    project: str | None = None
    parent: str | None = None
    phase: int | None = None
    unique: str | None = None
    position: int | None = None
    position_original: int | None = None
    position_message: str | None = None
    displaced: str | None = None
    """How a person put the job further back since it joined the line, one of `Displaced`."""
    upgrade: Upgrade | None = None
    usage: Usage | None = None
    estimate: Estimate | None = None
    iterations: int = 0
    iterations_batch: int | None = None
    """How many more iterations a confirmation grants, as far as `iterations_max` allows."""
    iterations_granted: int | None = None
    iterations_max: int | None = None
    progress: Progress | None = None
    result: Any = None
    error: JobError | None = None
    message: str | None = None
    worker: str | None = None
    token: str | None = None
    timeout_seconds: float | None = None
    cancel_wanted: bool = False
    run_at: datetime | None = None
    deferred: bool = False
    """Whether the job is scheduled for a later day because the user's quota is used up until then."""
    joined_at: datetime | None = None
    started_at: datetime | None = None
    confirmation_required_at: datetime | None = None
    finished_at: datetime | None = None


READY = "ready"


class New(msgspec.Struct, frozen=True):
    """A job to be submitted, with the fields of `Queue.submit`. Times without a unit are seconds."""

    task: str
    data: Any = None
    id: str | None = None
    priority: int | str | None = None
    user: str | None = None
    project: str | None = None
    tier: str | None = None
    parent: str | None = None
    phase: int | None = None
    groups: Sequence[str] = ()
    concurrency_group: str | None = None
    concurrency_limit: int | None = None
    unique: str | None = None
    delay: float | timedelta | None = None
    run_at: datetime | None = None
    start_by: float | timedelta | datetime | None = None
    """The job fails if it has not started so soon after it was accepted, or by this time."""
    max_attempts: int | None = None
    timeout: float | timedelta | None = None
    contact: str | None = None
    """The e-mail address that reminders about this job go to. It is in no `Job`, event or log."""
    by: str | None = None


def status_of(state: State, stage: str | None) -> str:
    """The state as people see it: the stage while a staged job runs, `ready` when it has succeeded."""
    if stage is None:
        return str(state)
    if state is State.RUNNING:
        return stage
    return READY if state is State.SUCCEEDED else str(state)


@lru_cache(maxsize=1024)
def moment(milliseconds: int) -> datetime:
    """A store's time (whole milliseconds since 1970, UTC) as a datetime. Cached, because all jobs of a step share their
    times."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
