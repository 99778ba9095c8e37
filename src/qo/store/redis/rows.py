"""A job's row in Redis as the Lua functions pack it, and the jobs and leases that are read from their replies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from qo.job import Job
from qo.store.redis.server.constants import TOKEN_DIGITS
from qo.store.row import JobFields, groups_of_row, stored_job, stored_lease
from qo.values import Lease


class JobRow(JobFields, gc=False):
    """Numbers of jobs have twelve digits and tokens sixteen, so that they sort as text."""

    number: str = ""
    own_groups: tuple[str, ...] = ()
    token: str | None = None
    ended_token: str | None = None
    overdue_message: str | None = None
    """The message of its error if it has not started in time."""
    replaces: str | None = None
    """The number of the cancelled job that was this phase before."""
    payload_bytes: int = 0
    checkpoint_bytes: int = 0


class LeaseRow(msgspec.Struct, array_like=True, gc=False):
    """A lease as `lib/answer.lua` packs it."""

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


def stored_token(token: str) -> str:
    """A token as the functions store it; empty for a token that no store ever gave."""
    return token.zfill(TOKEN_DIGITS) if token.isascii() and token.isdigit() and len(token) <= TOKEN_DIGITS else ""


def plain_token(token: str) -> str:
    return token.lstrip("0")


class Reply:
    """A function's answer, with the rows and payloads that it refers to by number."""

    def __init__(self, reply: list[Any]) -> None:
        self._blobs = reply
        self.answer: dict[str, Any] = _decode(reply[0]) or {}  # an empty table is a list to Lua
        self._task_groups: Mapping[str, Sequence[str]] = self.answer.get("tasks") or {}

    def blob(self, number: int) -> bytes:
        found: bytes = self._blobs[number]
        return found

    def job(self, found: Mapping[str, Any], *, with_history: bool = False) -> Job:
        row = decode_row(self.blob(found["row"]))
        result = found.get("result")
        return to_job(
            row,
            groups=groups_of_row(row, task_groups=tuple(self._task_groups.get(row.task, ())), own=row.own_groups),
            position=found.get("position"),
            result=None if result is None else self.blob(result),
            with_history=with_history,
        )

    def jobs(self, *, with_history: bool = False) -> tuple[Job, ...]:
        return tuple(self.job(found, with_history=with_history) for found in self.answer["jobs"])

    def leases(self) -> tuple[Lease, ...]:
        """The leases of an answer that has nothing else beside it."""
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


def to_job(
    row: JobRow,
    *,
    groups: tuple[str, ...],
    position: int | None = None,
    result: bytes | None = None,
    with_history: bool = False,
) -> Job:
    token = None if row.token is None else plain_token(row.token)
    return stored_job(row, groups=groups, token=token, position=position, result=result, with_history=with_history)
