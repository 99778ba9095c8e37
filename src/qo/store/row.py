"""A job's row: the fields that every store keeps, and the job and the lease that are made from them.

A field of a job is described here once. The stores derive their row classes, their statements and their decoders from
`JobFields`, and add only what is of another kind in each.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from qo.job import Job, JobError, Progress, State, moment, status_of
from qo.policy.groups import groups_of
from qo.policy.job_history import history_of
from qo.values import Lease, Suspicion, looks

Milliseconds = int
"""A time in milliseconds since 1970, on the store's clock unless the field says otherwise."""
Json = str
"""JSON as text. It is decoded when the job is read."""


class JobFields(msgspec.Struct, gc=False):
    """The fields that are alike in every store. What a job does not have is as here."""

    id: str
    task: str
    state: str
    priority: int
    submitted_at: Milliseconds
    stage: str | None = None
    boost: int = 0
    user: str | None = None
    project: str | None = None
    tier: str | None = None
    parent: str | None = None
    phase: int | None = None
    unique_key: str | None = None
    key: int | None = None
    """The order key. It stays while the job is held, so that the job can come back to its place."""
    aged_at: Milliseconds | None = None
    """When the job entered the line or last aged. None unless it is queued."""
    joined_at: Milliseconds | None = None
    position_original: int | None = None
    run_at: Milliseconds | None = None
    due_at: Milliseconds | None = None
    """When the job joins the line. None for a job that does not wait for a time, or not for that alone."""
    steady_at: Milliseconds | None = None
    """When the span that the job waits for is over, on steady time."""
    start_by: Milliseconds | None = None
    """When the job fails unless it has started before. Void once it has started."""
    steady_start_by: Milliseconds | None = None
    """The same on steady time, for a job that was given a span."""
    quota_day: int | None = None
    deferred: bool = False
    attempts: int = 0
    max_attempts: int | None = None
    timeout_ms: int | None = None
    iterations: int = 0
    iterations_batch: int | None = None
    iterations_granted: int | None = None
    iterations_max: int | None = None
    ended_state: str | None = None
    """The state after the finish with `ended_token`, which is the last finish that was applied."""
    worker: str | None = None
    cancel_wanted: bool = False
    progress: Json | None = None
    error: Json | None = None
    message: str | None = None
    started_at: Milliseconds | None = None
    confirming_at: Milliseconds | None = None
    reminded: int = 0
    finished_at: Milliseconds | None = None
    has_contact: bool = False
    """The store has an e-mail address for the job, beside its payload."""
    undisturbed_key: int | None = None
    """The order key before a person, or a move beside the job, first changed it."""
    displaced: str | None = None
    passed: int = 0
    """How often it was passed since it entered the line, was moved, or got another priority from a person."""
    turn: bool = False
    states: str = ""
    """Its last states and stages; this and the next two as `policy/job_history.py` writes them."""
    past_attempts: str = ""
    promise: str | None = None
    trace: str | None = None
    suspicion: int = 0
    """A `Suspicion`: of a job in line or held, or of a failed one that may be retried."""


_decode = msgspec.json.Decoder().decode
_decode_progress = msgspec.json.Decoder(Progress).decode
_decode_error = msgspec.json.Decoder(JobError).decode
_STATES = {state.value: state for state in State}


def stored_job(
    row: JobFields,
    *,
    groups: tuple[str, ...],
    token: str | None,
    position: int | None,
    result: bytes | None,
    with_history: bool,
) -> Job:
    """The job that people and programs see."""
    state = _STATES[row.state]
    return Job(
        id=row.id,
        task=row.task,
        state=state,
        status=status_of(state, row.stage),
        priority=row.priority,
        groups=groups,
        submitted_at=moment(row.submitted_at),
        attempts=row.attempts,
        max_attempts=row.max_attempts,
        stage=row.stage,
        tier=row.tier,
        user=row.user,
        project=row.project,
        parent=row.parent,
        phase=row.phase,
        unique=row.unique_key,
        key=row.key if state is State.QUEUED else None,
        position=position,
        position_original=row.position_original,
        displaced=row.displaced,
        iterations=row.iterations,
        iterations_batch=row.iterations_batch,
        iterations_granted=row.iterations_granted,
        iterations_max=row.iterations_max,
        progress=None if row.progress is None else _decode_progress(row.progress),
        result=None if result is None else _decode(result),
        error=None if row.error is None else _decode_error(row.error),
        message=row.message,
        worker=row.worker,
        token=token,
        timeout_seconds=_timeout_seconds(row),
        cancel_wanted=bool(row.cancel_wanted),
        run_at=None if row.run_at is None else moment(row.run_at),
        deferred=bool(row.deferred),
        joined_at=None if row.joined_at is None else moment(row.joined_at),
        started_at=None if row.started_at is None else moment(row.started_at),
        confirmation_required_at=None if row.confirming_at is None else moment(row.confirming_at),
        finished_at=None if row.finished_at is None else moment(row.finished_at),
        trace=row.trace,
        history=history_of(row.states, row.past_attempts, row.promise) if with_history else None,
    )


def stored_lease(
    row: JobFields,
    *,
    read_job: Callable[[], Job],
    token: str,
    expires_at_ms: int,
    slots: dict[str, int],
    payload: bytes,
    checkpoint: bytes | None,
    groups: int,
) -> Lease:
    """The right to run the job, which has so many groups. `read_job` reads `row` later, so it must not change."""
    return Lease(
        job_id=row.id,
        task=row.task,
        tier=row.tier,
        timeout_seconds=_timeout_seconds(row),
        token=token,
        expires_at_ms=expires_at_ms,
        slots=slots,
        payload=payload,
        checkpoint=checkpoint,
        looks=looks(groups),
        suspicion=Suspicion(row.suspicion),
        read_job=read_job,
    )


def _timeout_seconds(row: JobFields) -> float | None:
    return None if row.timeout_ms is None else row.timeout_ms / 1000


def groups_of_row(row: JobFields, *, task_groups: tuple[str, ...], own: tuple[str, ...]) -> tuple[str, ...]:
    """Every group of the job: those that follow from its fields, its task's, and its own."""
    return groups_of(
        task=row.task,
        priority=row.priority,
        user=row.user,
        project=row.project,
        tier=row.tier,
        parent=row.parent,
        task_groups=task_groups,
        own=own,
    )
