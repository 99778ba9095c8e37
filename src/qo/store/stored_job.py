"""From a row, as any store keeps it, to the job that people and programs see, and to the right to run it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from qo.job import Job, JobError, Progress, State, moment, status_of
from qo.policy.groups import looks
from qo.store.values import Lease

_decode = msgspec.json.Decoder().decode
_decode_progress = msgspec.json.Decoder(Progress).decode
_decode_error = msgspec.json.Decoder(JobError).decode
_STATES = {state.value: state for state in State}


def stored_job(
    row: Any, *, groups: tuple[str, ...], token: str | None, position: int | None, result: bytes | None
) -> Job:
    """`row` has the fields of SQLite's table of jobs, whatever it is stored in; texts of JSON are still texts."""
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
    )


def stored_lease(
    row: Any,
    *,
    read_job: Callable[[], Job],
    token: str,
    expires_at_ms: int,
    slots: dict[str, int],
    payload: bytes,
    checkpoint: bytes | None,
    groups: int,
) -> Lease:
    """Of the job in `row`, which nobody may change any more, with so many groups."""
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
        read_job=read_job,
    )


def _timeout_seconds(row: Any) -> float | None:
    return None if row.timeout_ms is None else row.timeout_ms / 1000
