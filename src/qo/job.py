"""A job as users see it."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic

import msgspec

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # `Job` without a parameter is `Job[Any]`: only Python 3.13 can say so by itself.
    Result_co = TypeVar("Result_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    Result_co = TypeVar("Result_co", covariant=True)

PRIORITY_NAMES = {"urgent": 10, "high": 20, "normal": 50, "low": 70, "background": 90}
NORMAL = PRIORITY_NAMES["normal"]


class State(StrEnum):
    """A job's state, for programs. An event of this kind says that a job went into the state."""

    SCHEDULED = "scheduled"
    """The job joins the line later: a delay, a retry or the user's quota. Detail: `run_at`."""
    WAITING = "waiting"
    """The job waits for the phase before it. Detail: none."""
    QUEUED = "queued"
    """The job is in line. Detail: `position` when it joined, `reason` when it came back to its place."""
    STARTING = "starting"
    """A worker has claimed the job, with all its slots. Detail: `worker`, `attempt`."""
    RUNNING = "running"
    """The handler has begun. Detail: none."""
    CONFIRMING = "confirming"
    """The job holds nothing and waits for a person. Detail: `message`, the question."""
    SUCCEEDED = "succeeded"
    """The handler returned. Detail: none."""
    FAILED = "failed"
    """The job has ended without success; it can be retried by hand. Detail: `message`."""
    CANCELLED = "cancelled"
    """A person cancelled the job. Detail: `message`."""


ENDED = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELLED})
HELD = frozenset({State.STARTING, State.RUNNING})


class Displaced(StrEnum):
    """How a person put a job in line further back than it would stand by itself."""

    MOVED = "moved"
    PRIORITY = "priority"


class Progress(msgspec.Struct, frozen=True):
    """How far a job is, as its handler reported it."""

    done: float
    """How much is done, in whatever unit."""
    total: float | None = None
    """How much there is in all, where that is known."""
    text: str | None = None
    """The same in words."""


class JobError(msgspec.Struct, frozen=True):
    """The part of a failure that a user may see. `debug_id` finds the rest in the server's log."""

    message: str
    """A sentence for the user."""
    detail: str | None = None
    """More about it, without secrets, tokens, home paths and addresses."""
    debug_id: str | None = None
    """Finds the whole traceback in the worker's log."""


class Usage(msgspec.Struct, frozen=True):
    """A user's usage of today, and how much is left of it; None where nothing limits it."""

    jobs_used: int
    """How many jobs were charged to today's quota."""
    jobs_remaining: int | None
    """How many more jobs start today; further ones are scheduled for another day."""
    iterations_used: int
    """How many iterations the job has begun."""
    iterations_remaining: int | None
    """How many more it may begin, however often it is confirmed."""
    daily_limit_resets_at: datetime
    """The next midnight, UTC."""


class Upgrade(msgspec.Struct, frozen=True):
    """The offer to a user of a lower tier, shown with their position."""

    message: str
    """A sentence for the user."""
    url: str
    """Where the user gets the higher tier: `[queue] upgrade_url`."""


class Basis(StrEnum):
    """The basis of an estimate."""

    MEASURED = "measured"
    """Runs of such jobs have ended and were measured."""
    FIRST_GUESS = "first_guess"
    """No such run has ended yet, so it rests on the tier's first guess."""


class Estimate(msgspec.Struct, frozen=True):
    """When a waiting job will probably start.

    Where that is not known, `message` says why and everything else is None.
    """

    estimate_seconds: float | None
    """The likely wait from now."""
    lower_bound: float | None
    """In seconds from now. Most jobs start between the two bounds (`[estimate] learnt_coverage`)."""
    upper_bound: float | None
    """In seconds from now."""
    message: str
    """The range in words, or why it is not known."""
    confidence: str | None
    """`medium` or `low`."""
    basis: Basis | None
    """`measured` once jobs of the task (or the tier) have ended, or where a job can start now; else `first_guess`."""


class Reached(msgspec.Struct, frozen=True, gc=False):
    """A state or stage that a job went into."""

    status: str
    """The state or the stage."""
    at: datetime
    """When the job went into it."""


LOST, REVOKED = "lost", "revoked"


class Attempt(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One run of a job that is over.

    `outcome` is the state that it led to, LOST when its worker stopped responding, or REVOKED when a person released
    one of its slots. `slots` has its number in each limited group.
    """

    number: int
    """Which run of the job it was, from 1."""
    worker: str
    """The worker that ran it."""
    slots: dict[str, int]
    """The number of its slot in each limited group."""
    started_at: datetime
    """When it was claimed."""
    ended_at: datetime
    """When it was over."""
    outcome: str
    """The state that it led to, or `lost` or `revoked`."""
    debug_id: str | None = None
    """Finds its error in the worker's log."""


class Promise(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The first estimate of a job: it was to start so many seconds after `made_at`."""

    made_at: datetime
    """When the estimate was made."""
    lower_bound: float
    """In seconds from then."""
    upper_bound: float
    """In seconds from then."""


class JobHistory(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job's last 32 states and stages, its last 10 attempts, and what its user was first promised."""

    states: tuple[Reached, ...] = ()
    """The states and stages that it went into, oldest first."""
    attempts: tuple[Attempt, ...] = ()
    """Its runs that are over, oldest first."""
    promise: Promise | None = None
    """The first range that its user was told."""


class Job(msgspec.Struct, Generic[Result_co], frozen=True, kw_only=True, gc=False):
    """One call of a task, as it was when it was read.

    `Job[Invoice]` is a job whose task returns an `Invoice`, for type checkers: `await queue.result(job)` returns one.
    Its field `result` has the JSON values that are stored.

    `position` is None unless the job is in line. The queue fills in `position_message`, `upgrade`, `usage` and
    `estimate`, because it knows the policy; a store leaves them None. Only jobs that are read (`get`, `jobs`) have an
    `estimate` and a `history`, not those that a submit or a change returns.
    """

    id: str
    """The id that its submit named, or one that sorts by time."""
    task: str
    """The name of the task whose handler runs the job."""
    state: State
    """For programs."""
    status: str
    """For people: the stage while a job with stages runs, `ready` when it has succeeded, else the state."""
    priority: int
    """0 to 99, smaller is sooner."""
    groups: tuple[str, ...]
    """All groups that it belongs to."""
    submitted_at: datetime
    """When it was accepted."""
    attempts: int
    """How often it was started."""
    max_attempts: int | None = None
    """None until the job first starts, unless its submit named the number. Its task decides then."""
    stage: str | None = None
    """The last stage that its handler entered."""
    tier: str | None = None
    """The tier that its submit named."""
    user: str | None = None
    """Whose job it is."""
    project: str | None = None
    """The project that it belongs to."""
    parent: str | None = None
    """What it is a phase, or a part, of."""
    phase: int | None = None
    """Its number among the phases of its parent, from 1."""
    unique: str | None = None
    """While the job is unfinished, a submit with the same key returns it."""
    key: int | None = None
    """The order key while the job is in line: of two jobs, the one with the smaller key is first."""
    position: int | None = None
    """Its place in line, from 1. None unless it is in line."""
    position_original: int | None = None
    """Its position when it joined the line."""
    position_message: str | None = None
    """The position in words, and what made it worse."""
    displaced: str | None = None
    """How a person put the job further back since it joined the line: `moved` or `priority`."""
    upgrade: Upgrade | None = None
    """The offer of a higher tier, where `[queue] upgrade_url` is set."""
    usage: Usage | None = None
    """What its user has used of today's quota. None without a user."""
    estimate: Estimate | None = None
    """When it will probably start. Only of a job in line that was read."""
    iterations: int = 0
    """How many iterations its handler has begun, over all runs."""
    iterations_batch: int | None = None
    """How many more iterations a confirmation grants, as far as `iterations_max` allows."""
    iterations_granted: int | None = None
    """After so many iterations it asks for confirmation. None without a tier."""
    iterations_max: int | None = None
    """After so many iterations it fails. None without a tier."""
    progress: Progress | None = None
    """How far it is, as its handler last reported it."""
    result: Any = None
    """What its handler returned."""
    error: JobError | None = None
    """Why it failed, as far as its user may see it."""
    message: str | None = None
    """A sentence about its state: the handler's word on the stage, the question of a confirmation, the quota's day."""
    worker: str | None = None
    """The worker that runs it."""
    token: str | None = None
    """The token of its lease while it is held."""
    timeout_seconds: float | None = None
    """How long one run may take, where its submit said so."""
    cancel_wanted: bool = False
    """Whether it was cancelled while it ran, and has not stopped yet."""
    run_at: datetime | None = None
    """When it joins the line, while it is scheduled."""
    deferred: bool = False
    """Whether the job is scheduled for a later day because the user's quota is used up until then."""
    joined_at: datetime | None = None
    """When it joined the line, the last time."""
    started_at: datetime | None = None
    """When it was claimed, the last time."""
    confirmation_required_at: datetime | None = None
    """Since when it waits for a person."""
    finished_at: datetime | None = None
    """When it ended."""
    trace: str | None = None
    """The W3C trace context of the program that submitted the job."""
    history: JobHistory | None = None
    """Its states, attempts and first promise. Only of a job that was read."""

    def to_dict(self) -> dict[str, Any]:
        """The job as plain JSON values, as the HTTP API answers it: times as RFC 3339 text, estimates in whole
        seconds."""
        values: dict[str, Any] = msgspec.to_builtins(self)
        values["estimate"] = in_whole_seconds(values["estimate"])
        values["upgrade_url"] = None if self.upgrade is None else self.upgrade.url
        return values


def in_whole_seconds(estimate: dict[str, Any] | None) -> dict[str, Any] | None:
    """The fields of an estimate, its numbers rounded."""
    if estimate is None:
        return None
    numbers = ("estimate_seconds", "lower_bound", "upper_bound")
    return estimate | {name: round(estimate[name]) for name in numbers if estimate[name] is not None}


READY = "ready"


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
