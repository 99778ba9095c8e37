"""What goes into a store's operations and what comes out of them.

Plain numbers and names only: tiers, estimates and HTTP have already been turned into these.
Times that a caller gives are whole milliseconds since 1970 (`..._at_ms`) or spans (`..._ms`).
None of them can refer to itself, so the garbage collector is spared them (`gc=False`, which a lease that remembers its
job cannot have): a claim of fifty makes hundreds.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from enum import IntEnum, StrEnum
from functools import cached_property
from typing import Any, Self

import msgspec

from qo.job import Job, JobError, Progress, State, moment
from qo.policy.groups import looks
from qo.policy.ordering import NORMAL


class Bounds(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How much one step may do, so that none holds the store for more than a few milliseconds."""

    examine: int = 256
    """jobs and callers that a claim, or a hand-over to callers, looks at; one of many groups counts as several
    (`policy.groups.looks`)"""
    claim_bytes: int = 4 * 1024 * 1024
    """payloads and checkpoints that a claim gives, or all offers that one step fills; who goes beyond it is the last"""
    portion: int = 256
    """leases, callers, due jobs, aged jobs, forgotten jobs that one step deals with; a lease or a job of many groups
    counts as several"""


# --- limits ---------------------------------------------------------------------------------------------------


class Source(IntEnum):
    """Where a group's limit comes from; the smaller number wins."""

    OPERATOR = 1
    CONFIGURATION = 2
    TIER = 3
    TASK = 4
    SUBMIT = 5


class Limit(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    group: str
    slots: int
    source: Source


class LimitIgnored(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A limit that was not set because a stronger one of another value is in force."""

    wanted: Limit
    in_force: Limit


class LimitChange(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A limit that was set, and the one it took the place of; None where the group had none."""

    limit: Limit
    before: Limit | None = None


class SlotInfo(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    slot_id: int
    holder: str
    worker_id: str | None
    expires_at: datetime
    token: str


class GroupStatus(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`active` counts the live holders, `waiting` the jobs and callers put aside because of this group."""

    group: str
    limit: int | None = None
    source: Source | None = None
    paused: bool = False
    closed_until: datetime | None = None
    active: int = 0
    waiting: int = 0
    slots: tuple[SlotInfo, ...] = ()

    @property
    def has_room(self) -> bool:
        has_slot = self.limit is None or self.active < self.limit
        return has_slot and not self.paused and self.closed_until is None


# --- submitting -----------------------------------------------------------------------------------------------


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
    id: str
    task: str
    payload: bytes = b"null"
    priority: int | None = None
    """None: the parent's, else normal"""
    user: str | None = None
    project: str | None = None
    standing: Standing | None = None
    """None: what the user's newest submit or `set_tier` gave, if anything"""
    parent: str | None = None
    phase: int | None = None
    groups: tuple[str, ...] = ()
    """of the caller's own; the store adds those that follow from the other fields"""
    limits: tuple[Limit, ...] = ()
    unique: str | None = None
    run_at_ms: int | None = None
    """a time on the store's clock"""
    delay_ms: int | None = None
    """a span from the step that stores the job; not together with `run_at_ms`"""
    quota_jitter_ms: int = 0
    cap: int | None = None
    """Refuse when so many are in line and this one would join it now or in less than CAPPED_DELAY_MS."""
    max_attempts: int | None = None
    """None: decided when it first starts, by what the most recently started worker says of the task"""
    timeout_ms: int | None = None
    by: str | None = None


class RefusalReason(StrEnum):
    FULL = "full"
    PHASE_TAKEN = "phase_taken"


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
    """what the job's user has been charged for the day of `now`, this job included; None without a user"""
    daily_quota: int | None = None
    today: int
    """the day of `now`, counted from 1970"""


# --- running --------------------------------------------------------------------------------------------------


class Lease(msgspec.Struct, frozen=True, kw_only=True, dict=True, eq=False):
    """The right to run a job, and everything that is needed to run it.

    The job itself is put together when somebody looks at it: most handlers never do, and on an idle worker it would
    take a fifth of the time between a message and its handler.
    """

    job_id: str
    task: str
    tier: str | None
    timeout_seconds: float | None
    token: str
    expires_at_ms: int
    slots: dict[str, int]
    """the number taken in each limited group"""
    payload: bytes
    checkpoint: bytes | None = None
    looks: int
    """what it counts for towards the bounds of a step, by the number of the job's groups (`policy.groups.looks`)"""
    read_job: Callable[[], Job]

    @classmethod
    def of(
        cls,
        job: Job,
        *,
        token: str,
        expires_at_ms: int,
        slots: dict[str, int],
        payload: bytes = b"",
        checkpoint: bytes | None = None,
    ) -> Self:
        return cls(
            job_id=job.id,
            task=job.task,
            tier=job.tier,
            timeout_seconds=job.timeout_seconds,
            token=token,
            expires_at_ms=expires_at_ms,
            slots=slots,
            payload=payload,
            checkpoint=checkpoint,
            looks=looks(len(job.groups)),
            read_job=lambda: job,
        )

    @cached_property
    def job(self) -> Job:
        """as it was when the lease began"""
        return self.read_job()

    @property
    def expires_at(self) -> datetime:
        return moment(self.expires_at_ms)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lease) and self.content() == other.content()

    def content(self) -> dict[str, Any]:
        """every field by name, and the job instead of the way to it"""
        fields = msgspec.structs.asdict(self)
        del fields["read_job"]
        return {**fields, "job": self.job}


class Claimed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`more`: a claim may find something, because a bound was reached or one has not been made yet. What was taken is
    an exact prefix all the same."""

    leases: tuple[Lease, ...] = ()
    more: bool = False


class Offer(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Of a worker that waits: a job may be claimed for it, as if it had called `claim` for one place with these."""

    lease_ms: int
    claim_id: str


class Renewal(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Live on for `lease_ms` from now (never shorter than before), or, with `extend_ms`, that much beyond its end."""

    holder: str
    token: str
    lease_ms: int = 0
    extend_ms: int = 0


class Held(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The answer to a renewal, an advance or a release. `lost`: not the owner (any more); nothing was changed."""

    holder: str
    token: str
    lost: bool = False
    cancel_wanted: bool = False
    expires_at: datetime | None = None


class Renewed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`held` answers the renewals, in order. `now_ms` is the store's time."""

    held: tuple[Held, ...]
    registration: Held | None = None
    """of the worker that was named: its holder is the worker, its token the instance; `lost`: it is not registered (any
    more), and has to register again"""
    now_ms: int


class Average(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An exponential moving average to be moved by one observation; `first` is what it starts from."""

    name: str
    first: float
    weight: float


class Outcome(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How a lease on a job ends.

    succeeded   `result`
    failed      `error`
    scheduled   again in `retry_after_ms`, unless all attempts are spent: then failed, with `error`
    confirming  waits for a person, with `message`
    cancelled   because it was wanted, with `message`
    queued      handed back to its place, without an attempt spent; `closed` names groups whose slots are
                kept elsewhere and were found full: each stays closed for its number of milliseconds
    """

    job_id: str
    token: str
    state: State
    result: bytes | None = None
    error: JobError | None = None
    message: str | None = None
    retry_after_ms: int | None = None
    closed: dict[str, int] = {}
    averages: tuple[Average, ...] = ()
    """moved by the run's seconds when it succeeded"""


class Finished(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`lost`: the token was stale and nothing was changed. `state`: what the job became, then or when this token
    was first finished."""

    job_id: str
    token: str
    lost: bool = False
    state: State | None = None


class Advance(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a handler reports while it runs. Everything that is None stays as it was."""

    job_id: str
    token: str
    stage: str | None = None
    progress: Progress | None = None
    checkpoint: bytes | None = None
    iteration: int | None = None
    """the number of the iteration now begun, counted over all attempts; smaller than before changes nothing"""
    message: str | None = None


# --- callers without a job ------------------------------------------------------------------------------------


class Ticket(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A caller who wants one slot in each of `groups`, all or nothing."""

    holder: str
    groups: tuple[str, ...]
    lease_ms: int
    wait_ms: int = 15_000
    """how long the ticket lives without a renewal; 0: do not wait, answer now"""
    priority: int = NORMAL
    worker: str | None = None


class Grant(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`token` None: not granted; `waiting` tells whether the ticket is kept. `slots` as in `Lease`."""

    holder: str
    token: str | None = None
    slots: dict[str, int] = {}
    expires_at: datetime | None = None
    waiting: bool = False


# --- workers --------------------------------------------------------------------------------------------------


DEFAULT_MAX_ATTEMPTS = 3
DEFAULT_LEASE_MS = 300_000


class TaskOptions(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    name: str
    groups: tuple[str, ...] = ()
    limit: int | None = None
    max_attempts: int | None = None
    """for jobs whose submit named none; None: DEFAULT_MAX_ATTEMPTS"""


class Registration(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Without `tasks`: the worker is gone."""

    name: str
    instance: str = ""
    """which of the workers that ever had this name: an id that each makes for itself"""
    replaces: str | None = None
    """the instance that is known to be dead, and whose name this one takes"""
    tasks: tuple[TaskOptions, ...]
    places: int
    limits: tuple[Limit, ...] = ()
    """those of the worker's configuration"""
    lifetime_ms: int = 30_000
    lease_ms: int = DEFAULT_LEASE_MS
    """how long the leases of this worker's jobs last"""
    host: str | None = None
    pid: int | None = None


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    name: str
    instance: str = ""
    tasks: tuple[str, ...]
    places: int
    running: int
    registered_at: datetime
    heard_at: datetime
    """when it registered or last renewed that"""
    expires_at: datetime
    host: str | None = None
    pid: int | None = None


class Registered(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The answer to a registration. `namesake`: a live worker has that name, and nothing was registered or changed.
    `changed` are the configuration's limits that were set, `ignored` those limits that a stronger source keeps out.
    `now_ms` is the store's time."""

    namesake: WorkerInfo | None = None
    changed: tuple[LimitChange, ...] = ()
    ignored: tuple[LimitIgnored, ...] = ()
    now_ms: int


# --- upkeep and reading ---------------------------------------------------------------------------------------


class Portion(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a bounded step dealt with, in order, and whether there is more of it."""

    ids: tuple[str, ...] = ()
    more: bool = False


class Reminder(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    job_id: str
    number: int
    """1 for the first of the given ages, 2 for the second, …"""
    confirmation_required_at: datetime


class InLine(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job in line with only what it competes for. `groups` are all of its groups, as in `Job`."""

    id: str
    task: str
    tier: str | None = None
    groups: tuple[str, ...]


class Place(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Where a job stands in line, and what became of the position at which it joined (`original`).

    `displaced` is as in `Job`. `placed_ahead` is the number of jobs ahead of it that joined after it did. It is counted
    only where the position is worse than the original one, and is None otherwise, and while more than
    `ordering.MOVED_COUNTED_AT_MOST` jobs stand at places that a move gave them.
    """

    position: int
    original: int
    placed_ahead: int | None = None
    displaced: str | None = None


class Blockers(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What stands between a job and its start, as facts.

    `ahead` counts the jobs in line before it; `groups` are those of its groups without room, gates included,
    in the order a claim looks at them; `waits_for` is the phase before it, with `waits_for_state` None when that
    one is not known (not submitted yet, or forgotten with its parent); `has_worker` tells whether a live worker
    handles its task. `worker` is the one that holds the job, else the one that was heard of last of those that handle
    its task, live or not; `heard_at` is when. Both are None where the store knows no such worker.
    """

    job: Job
    ahead: int | None = None
    groups: tuple[GroupStatus, ...] = ()
    waits_for: int | None = None
    waits_for_state: State | None = None
    has_worker: bool = False
    worker: str | None = None
    heard_at: datetime | None = None


class UserUsage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a user was charged for the day of `now`; `deferred` jobs wait for a later day because of the quota."""

    user: str
    tier: str | None = None
    daily_quota: int | None = None
    used_today: int = 0
    deferred: int = 0
    today: int
    """the day of `now`, counted from 1970"""


class Mean(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An exponential moving average of values and of their squares, and how many went into it."""

    value: float
    square: float
    count: int


class SeriesPoint(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Figures of one minute: `count` events, `total_ms` in all."""

    name: str
    minute: int
    count: int
    total_ms: int


class Record(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Small service data under a name. `version` 0: there is none."""

    version: int = 0
    value: Any = None


class ParentStatus(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    parent: str
    priority: int
    jobs: tuple[Job, ...]
    """Its phases by number, of one number the cancelled ones first, then its jobs without a phase by submission."""
