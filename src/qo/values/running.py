"""A lease on a job, and what a worker reports of it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from enum import IntEnum
from functools import cached_property
from typing import Any, Self

import msgspec

from qo.job import Job, JobError, Progress, State, moment
from qo.values.bounds import looks


class Suspicion(IntEnum):
    """Whether a job may have ended the process that ran it, because a lease of it ran out."""

    NONE = 0
    SUSPECT = 1
    LAST = 2
    """A suspect whose next start is its last. It runs alone in its process."""


class Lease(msgspec.Struct, frozen=True, kw_only=True, dict=True, eq=False):
    """The right to run a job, and everything that is needed to run it.

    `job` is made when it is first read: most handlers never read it, and on an idle worker making it would take a fifth
    of the time between a message and its handler.
    """

    job_id: str
    task: str
    tier: str | None
    timeout_seconds: float | None
    token: str
    expires_at_ms: int
    slots: dict[str, int]
    """The slot number that was taken in each limited group."""
    payload: bytes
    checkpoint: bytes | None = None
    looks: int
    """How many looks the job counts as towards the bounds of a step (`values.looks`)."""
    suspicion: Suspicion = Suspicion.NONE
    """What the job was when the lease began. While a job with LAST runs, its worker claims nothing."""
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
        suspicion: Suspicion = Suspicion.NONE,
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
            suspicion=suspicion,
            read_job=lambda: job,
        )

    @cached_property
    def job(self) -> Job:
        """The job as it was when the lease began."""
        return self.read_job()

    @property
    def expires_at(self) -> datetime:
        return moment(self.expires_at_ms)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lease) and self.content() == other.content()

    def content(self) -> dict[str, Any]:
        """Every field by name, with the job in place of `read_job`."""
        fields = msgspec.structs.asdict(self)
        del fields["read_job"]
        return {**fields, "job": self.job}


class Claimed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`more` says that another claim may find something, because this one reached a bound or was not made yet. The
    leases are an exact prefix of the line all the same."""

    leases: tuple[Lease, ...] = ()
    more: bool = False


class Offer(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A waiting worker's offer to have one job claimed for it, as if it had called `claim` with these arguments."""

    lease_ms: int
    claim_id: str


class Renewal(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Keep a lease for `lease_ms` from now (never shorter than before), or `extend_ms` longer than its present end."""

    holder: str
    token: str
    lease_ms: int = 0
    extend_ms: int = 0


class Held(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The answer to a renewal, an advance or a release. `lost` means that the caller does not own the lease (any more)
    and that nothing was changed."""

    holder: str
    token: str
    lost: bool = False
    cancel_wanted: bool = False
    expires_at: datetime | None = None


class Renewed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`held` answers the renewals, in order. `now_ms` is the store's time."""

    held: tuple[Held, ...]
    registration: Held | None = None
    """The registration of the named worker: `holder` is the worker, `token` its instance. `lost` means that it is not
    registered (any more) and has to register again."""
    now_ms: int


class Average(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An exponential moving average to be moved by one observation. It starts from `first`."""

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
    """Averages to be moved by the seconds of a run that succeeded."""


class Finished(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`lost` means that the token was stale and that nothing was changed. `state` is the state that the job went into,
    now or when this token was first finished."""

    job_id: str
    token: str
    lost: bool = False
    state: State | None = None


class Advance(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A handler's report while it runs. A field that is None leaves its value as it was."""

    job_id: str
    token: str
    stage: str | None = None
    progress: Progress | None = None
    checkpoint: bytes | None = None
    iteration: int | None = None
    """The number of the iteration now begun, counted over all attempts. A smaller number than before has no effect."""
    message: str | None = None
