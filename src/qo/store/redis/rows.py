"""A job's row as the functions store it, and the job it stands for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from qo.job import Job
from qo.policy.groups import groups_of
from qo.store.stored_job import stored_job, stored_lease
from qo.store.values import Lease


class JobRow(msgspec.Struct, gc=False):
    """What a row does not name is as here. Numbers have twelve digits and tokens sixteen, so that they sort as text."""

    number: str
    id: str
    task: str
    state: str
    priority: int
    submitted_at: int
    stage: str | None = None
    boost: int = 0
    user: str | None = None
    project: str | None = None
    tier: str | None = None
    parent: str | None = None
    phase: int | None = None
    replaces: str | None = None
    """the number of the cancelled job that was this phase before"""
    own_groups: tuple[str, ...] = ()
    unique_key: str | None = None
    key: int | None = None
    parked: str | None = None
    aged_at: int | None = None
    joined_at: int | None = None
    position_original: int | None = None
    run_at: int | None = None
    due_at: int | None = None
    steady_at: int | None = None
    quota_day: int | None = None
    deferred: bool = False
    attempts: int = 0
    max_attempts: int | None = None
    timeout_ms: int | None = None
    iterations: int = 0
    iterations_batch: int | None = None
    iterations_granted: int | None = None
    iterations_max: int | None = None
    token: str | None = None
    ended_token: str | None = None
    ended_state: str | None = None
    worker: str | None = None
    cancel_wanted: bool = False
    progress: str | None = None
    error: str | None = None
    message: str | None = None
    started_at: int | None = None
    confirming_at: int | None = None
    reminded: int = 0
    finished_at: int | None = None
    payload_bytes: int = 0
    checkpoint_bytes: int = 0
    undisturbed_key: int | None = None
    displaced: str | None = None


class LeaseRow(msgspec.Struct, array_like=True, gc=False):
    """As `lib/answer.lua` puts it together."""

    token: str
    claim_id: str | None
    expires_at: int
    slots: dict[str, int] | None
    groups: tuple[str, ...]
    payload: bytes | None
    checkpoint: bytes | None
    job: JobRow


decode_row = msgspec.msgpack.Decoder(JobRow).decode
decode_lease = msgspec.msgpack.Decoder(LeaseRow).decode
_decode = msgspec.msgpack.Decoder().decode

TOKEN_DIGITS = 16


def stored_token(token: str) -> str:
    """As the functions have it; empty for one that no store ever gave."""
    return token.zfill(TOKEN_DIGITS) if token.isascii() and token.isdigit() and len(token) <= TOKEN_DIGITS else ""


def plain_token(token: str) -> str:
    return token.lstrip("0")


class Reply:
    """A function's answer, and the rows and payloads that it refers to by number."""

    def __init__(self, reply: list[Any]) -> None:
        self._blobs = reply
        self.answer: dict[str, Any] = _decode(reply[0]) or {}  # an empty table is a list to Lua
        tasks: Mapping[str, Sequence[str]] = self.answer.get("tasks") or {}
        self._task_groups = {task: tuple(groups) for task, groups in tasks.items()}

    def blob(self, number: int) -> bytes:
        found: bytes = self._blobs[number]
        return found

    def job(self, found: Mapping[str, Any]) -> Job:
        row = decode_row(self.blob(found["row"]))
        result = found.get("result")
        return to_job(
            row,
            groups=row_groups(row, self._task_groups.get(row.task, ())),
            position=found.get("position"),
            result=None if result is None else self.blob(result),
        )

    def jobs(self) -> tuple[Job, ...]:
        return tuple(self.job(found) for found in self.answer["jobs"])

    def leases(self) -> tuple[Lease, ...]:
        """Of an answer that refers to nothing else."""
        return tuple(to_lease(decode_lease(text)) for text in self._blobs[1:])


def to_lease(row: LeaseRow) -> Lease:
    return stored_lease(
        row.job,
        read_job=partial(to_job, row.job, groups=row.groups),
        token=plain_token(row.token),
        expires_at_ms=row.expires_at,
        slots=row.slots or {},
        payload=row.payload or b"",
        checkpoint=row.checkpoint,
        groups=len(row.groups),
    )


def row_groups(row: JobRow, task_groups: tuple[str, ...]) -> tuple[str, ...]:
    return groups_of(
        task=row.task,
        priority=row.priority,
        user=row.user,
        project=row.project,
        tier=row.tier,
        parent=row.parent,
        task_groups=task_groups,
        own=row.own_groups,
    )


def to_job(row: JobRow, *, groups: tuple[str, ...], position: int | None = None, result: bytes | None = None) -> Job:
    token = None if row.token is None else plain_token(row.token)
    return stored_job(row, groups=groups, token=token, position=position, result=result)
