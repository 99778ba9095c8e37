"""What a store answers about jobs, the line, users and figures."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypedDict

import msgspec

from qo.job import Job, State
from qo.values.limits import GroupStatus
from qo.values.running import Suspicion


class Wanted(TypedDict, total=False):
    """Which jobs to list: those that fit all that is given. None is the same as not given."""

    status: str | None
    """A status or a state."""
    user: str | None
    task: str | None
    parent: str | None
    project: str | None
    tier: str | None
    priority: int | None
    """The job's own, which aging does not change."""
    id_prefix: str | None
    """How the id begins."""
    ended: bool | None
    """Only those that have ended, in the order of their ends."""


class InLine(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job in line, with only the fields that estimates need. `groups` are all of its groups, as in `Job`."""

    id: str
    task: str
    key: int
    """The order key: smaller first."""
    undisturbed_key: int | None = None
    """The order key before a person, or a move beside the job, first changed it. None where nobody did."""
    tier: str | None = None
    groups: tuple[str, ...]
    passed: int = 0
    """How often it was passed since it entered the line or had a turn."""
    turn: bool = False
    """It is its turn: free slots of its groups are kept for it."""
    suspicion: Suspicion = Suspicion.NONE


class LinePage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A part of the line, in order. `next` goes on behind it; None at the end."""

    jobs: tuple[InLine, ...] = ()
    queued: int
    """How many jobs are in line in all."""
    next_sequence: int
    """The sequence that the next job to join will draw. With it, the order key of a job not yet submitted is known."""
    task_groups: dict[str, tuple[str, ...]] = {}
    """The groups that each task adds to its jobs, of all tasks that add some."""
    next: str | None = None


class JobsPage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A part of the jobs, in order. `next` goes on behind it; None at the end."""

    jobs: tuple[Job, ...] = ()
    """The jobs, in order."""
    next: str | None = None
    """Goes on behind them. None at the end."""


class Place(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job's position in line, and the position at which it joined (`original`).

    `displaced` is as in `Job`. `placed_ahead` is the number of jobs ahead of it that joined after it did. It is counted
    only where the position is worse than the original one, and is None otherwise, and while more than
    `ordering.MOVED_COUNTED_AT_MOST` jobs stand at places that a move gave them.
    """

    position: int
    original: int
    placed_ahead: int | None = None
    displaced: str | None = None


class Blockers(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The facts that keep a job from starting.

    `ahead` counts the jobs in line before it. `groups` are its groups without room for it, gates included, in the order
    in which a claim looks at them: one that has a free slot is `kept` for a job or caller before it. `kept_for` says of
    each such job or caller, by its name, which of its own groups have no free slot. `turn` has the groups in which a
    slot is kept for this job. `waits_for` is the phase before it, and `waits_for_state` that phase's state; the state
    is None when the phase is not known (not submitted yet, or forgotten with its parent). `has_worker` says whether a
    live worker handles its task.

    `worker` is the worker that holds the job. For a job that is not held, it is the worker of its task that the store
    heard of last, live or not, at `heard_at`. Both are None where the store knows no such worker.

    `start_by` is when a job that has never started fails, on the store's clock. `suspicion` is that of a job in line.
    """

    job: Job
    ahead: int | None = None
    groups: tuple[GroupStatus, ...] = ()
    kept_for: dict[str, tuple[str, ...]] = {}
    turn: tuple[str, ...] = ()
    waits_for: int | None = None
    waits_for_state: State | None = None
    has_worker: bool = False
    worker: str | None = None
    heard_at: datetime | None = None
    start_by: datetime | None = None
    suspicion: Suspicion = Suspicion.NONE


class UserUsage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How many jobs a user was charged for today. `deferred` jobs wait for a later day because of the quota."""

    user: str
    tier: str | None = None
    daily_quota: int | None = None
    used_today: int = 0
    deferred: int = 0
    today: int
    """The day of this step, counted from 1970."""


class Mean(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An exponential moving average of values and of their squares, and how many went into it."""

    value: float
    square: float
    count: int


class Observed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What estimates are made from."""

    averages: dict[str, Mean] = {}
    """The wanted averages that exist."""
    errors: dict[str, tuple[float, ...]] = {}
    """How wrong the estimates of each wanted task were, oldest first."""


class SeriesPoint(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Figures of one minute: `count` events, `total_ms` in all."""

    name: str
    minute: int
    count: int
    total_ms: int


class Record(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Small service data under a name. `version` is 0 where there is none."""

    version: int = 0
    value: Any = None


class Audited(msgspec.Struct, frozen=True, kw_only=True):
    """The entry of the audit trail that a change of service data makes, in the same step."""

    action: str
    subject: str
    detail: dict[str, Any]
    by: str | None = None


class ParentStatus(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A parent and all its jobs that are kept."""

    parent: str
    """Its name."""
    priority: int
    """The priority that its new jobs get."""
    jobs: tuple[Job, ...]
    """The phases by number, then the jobs without a phase by submission. Of the jobs of one number, the cancelled come
    first."""
