"""A submission and its answer."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from qo.job import Job
from qo.values.limits import Limit, LimitIgnored


class Standing(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a user's tier grants, as numbers; None where it limits nothing."""

    tier: str
    boost: int = 0
    user_limit: int | None = None
    project_limit: int | None = None
    daily_quota: int | None = None
    iterations_batch: int | None = None
    iterations_max: int | None = None


class Submission(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """A job as a store's `submit` takes it. `policy/admission.py` makes it from the caller's `New`."""

    id: str
    task: str
    payload: bytes = b"null"
    priority: int | None = None
    """None stands for the parent's priority, else normal."""
    user: str | None = None
    project: str | None = None
    standing: Standing | None = None
    """None stands for the standing that the user's newest submit or `set_tier` gave, if any."""
    parent: str | None = None
    phase: int | None = None
    groups: tuple[str, ...] = ()
    """The groups that the caller names. The store adds those that follow from the other fields."""
    limits: tuple[Limit, ...] = ()
    unique: str | None = None
    run_at_ms: int | None = None
    """A time on the store's clock."""
    delay_ms: int | None = None
    """A span from the step that stores the job. Not together with `run_at_ms`."""
    start_by_ms: int | None = None
    """A time on the store's clock. The job fails if it has not started by then."""
    start_within_ms: int | None = None
    """The same as a span from the step that stores the job. Not together with `start_by_ms`."""
    overdue_message: str | None = None
    """The message of the error with which a job fails that has not started in time. Needed with either of the two."""
    quota_jitter_ms: int = 0
    cap: int | None = None
    """The store refuses the job when so many are in line and it would join now, or in less than CAPPED_DELAY_MS."""
    max_attempts: int | None = None
    """None leaves it to the task's most recently started worker, when the job first starts."""
    timeout_ms: int | None = None
    trace: str | None = None
    """The W3C trace context (`traceparent`) of the caller."""
    contact: str | None = None
    """The e-mail address that reminders about this job go to. It is deleted when the job ends."""
    by: str | None = None


class RefusalReason(StrEnum):
    FULL = "full"
    PHASE_TAKEN = "phase_taken"
    OVERDUE = "overdue"
    """It could not start before the time that it has to start by."""
    HISTORY_FULL = "history_full"
    """The outbox has `waiting` records, and is full with `cap`."""


class Refusal(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Why a submission was not accepted; nothing was stored or charged."""

    id: str
    reason: RefusalReason
    waiting: int = 0
    cap: int = 0
    taken_by: str | None = None


class Accepted(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`known`: this id, or this unique key, was accepted before; `job` is that job, and nothing was changed."""

    job: Job
    known: bool = False
    ignored: tuple[LimitIgnored, ...] = ()
    used_today: int | None = None
    """How many jobs the user was charged for today, this job included. None for a job without a user."""
    daily_quota: int | None = None
    today: int
    """The day of this step, counted from 1970."""
