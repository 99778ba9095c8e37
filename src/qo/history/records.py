"""The records of an outbox, as `lib/outbox.lua` packs them, and the rows of the history that they become."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from datetime import date
from functools import lru_cache
from typing import Any

import msgspec

from qo.job import moment
from qo.policy.actor import actor_of
from qo.policy.ordering import place_of
from qo.store.outbox import OutboxEntry
from qo.store.redis.rows import JobRow
from qo.store.row import groups_of_row

ACCEPTED, ATTEMPT, ENDED = 1, 2, 4
WITH_ERROR = frozenset({"failed", "scheduled"})
"""The outcomes of an attempt that the job's error belongs to. After others it is that of an earlier attempt."""
DIGEST_BYTES = 8
TIMES = ("submitted_ms", "at_ms")
"""Those that decide which month a row belongs to."""
NUL = rb"\u0000"
ESCAPED_NUL = re.compile(rb"(?<!\\)((?:\\\\)*)\\u0000")
"""In JSON. Behind an odd number of backslashes, the same letters are no NUL."""
REPLACEMENT = rb"\1\\ufffd"
NOT_READABLE = (msgspec.DecodeError, ValueError, OverflowError, OSError, RecursionError)
"""Also for text that is not UTF-8, for odd times, and for JSON that is nested too deeply."""


class JobRecord(msgspec.Struct, array_like=True, tag=1, gc=False):
    what: int
    """A sum of ACCEPTED, ATTEMPT and ENDED."""
    by: str | bool
    task_groups: tuple[str, ...] | bool
    payload: bytes | None
    result: bytes | None
    job: JobRow


class AuditRecord(msgspec.Struct, array_like=True, tag=0, gc=False):
    id: int
    at: int
    by: str | bool
    action: str
    subject: str
    detail: str


class Record(msgspec.Struct, frozen=True, gc=False):
    """One record as the database gets it."""

    id: int
    digest: int
    """Tells it from another record that has the same id, because the store had lost the one before."""
    row: str | None
    """JSON with the columns of the tables, in milliseconds where they have times; None where it cannot be read."""
    months: frozenset[date]
    """The first days of the months that it is in."""
    packed: bytes


_split = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_decode = msgspec.msgpack.Decoder(JobRecord | AuditRecord).decode
_json = msgspec.json.Decoder(msgspec.Raw).decode
"""Checks JSON and leaves it as it is: its numbers may be huge, and its lists nested deeply."""
_to_json = msgspec.json.Encoder().encode
_decode_attempt = msgspec.json.Decoder(tuple[int, str, dict[str, int], int, int, str, str]).decode


def records_of(entries: Sequence[OutboxEntry]) -> list[Record]:
    """All records of these entries, in their order."""
    return [record for entry in entries for record in _records_in(entry)]


def _records_in(entry: OutboxEntry) -> Iterator[Record]:
    try:
        parts = [bytes(part) for part in _split(entry.packed)]
    except msgspec.DecodeError:
        parts = [entry.packed]
    for id_, packed in enumerate(parts, start=entry.id - len(parts) + 1):
        digest, months, row = _digest(packed), {_month(id_ // 1000)}, None
        try:
            columns = _columns(packed)
            row = _as_json({"id": id_, "digest": digest, **columns})
            months.update(_month(columns[name]) for name in TIMES if name in columns)
        except NOT_READABLE:
            row = None
        yield Record(id_, digest, row, frozenset(months), packed)


@lru_cache(maxsize=1024)
def _month(ms: int) -> date:
    return moment(ms).date().replace(day=1)


def _digest(packed: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(packed, digest_size=DIGEST_BYTES).digest(), signed=True)


def _columns(packed: bytes) -> dict[str, Any]:
    """Without those that are null: it costs the database a tenth more to read them."""
    record = _decode(packed)
    row = _job_row(record) if isinstance(record, JobRecord) else _audit_row(record)
    return {name: value for name, value in row.items() if value is not None}


def _as_json(columns: dict[str, Any]) -> str:
    """Without NUL, which PostgreSQL has in no text. A payload or a result may have it."""
    encoded = _to_json(columns)
    return (ESCAPED_NUL.sub(REPLACEMENT, encoded) if NUL in encoded else encoded).decode()


def _job_row(record: JobRecord) -> dict[str, Any]:
    job = record.job
    task_groups = record.task_groups if isinstance(record.task_groups, tuple) else ()
    row = {
        "kind": "job",
        "job_id": job.id,
        "submitted_ms": job.submitted_at,
        "state": job.state if record.what & ENDED else "accepted",
        "task": job.task,
        "user_id": job.user,
        "project": job.project,
        "tier": job.tier,
        "parent": job.parent,
        "phase": job.phase,
        "priority": job.priority,
        "groups": groups_of_row(job, task_groups=task_groups, own=job.own_groups),
        "place": None if job.key is None else place_of(job.key),
        "position": job.position_original,
        "submitted_by": actor_of(record.by).name if isinstance(record.by, str) else None,
        "run_at_ms": job.run_at,
        "joined_ms": job.joined_at,
        "started_ms": job.started_at,
        "finished_ms": job.finished_at,
        "attempts": job.attempts,
        "max_attempts": job.max_attempts,
        "worker": job.worker,
        "message": job.message,
        "error": None if job.error is None else _json(job.error),
        "payload": None if record.payload is None else _json(record.payload),
        "result": None if record.result is None else _json(record.result),
    }
    if job.promise is not None:
        row["promised_ms"], row["promised_lower_ms"], row["promised_upper_ms"] = map(int, job.promise.split())
    if record.what & ATTEMPT:
        row |= _attempt_of(job)
    if not record.what & (ACCEPTED | ENDED):
        row["kind"] = "attempt"
    return row


def _attempt_of(job: JobRow) -> dict[str, Any]:
    """The attempt that has just ended, which is the last of those that the job's row keeps."""
    number, worker, slots, started, ended, outcome, debug_id = _decode_attempt(job.past_attempts.rpartition("\n")[2])
    return {
        "attempt": number,
        "attempt_worker": worker,
        "attempt_slots": slots,
        "attempt_started_ms": started,
        "at_ms": ended,
        "outcome": outcome,
        "debug_id": debug_id or None,
        "attempt_error": None if job.error is None or outcome not in WITH_ERROR else _json(job.error),
        "worker": worker,
    }


def _audit_row(record: AuditRecord) -> dict[str, Any]:
    actor = actor_of(record.by if isinstance(record.by, str) else None)
    return {
        "kind": "audit",
        "at_ms": record.at,
        "audit_id": record.id,
        "by_name": actor.name,
        "role": actor.role,
        "address": actor.address,
        "batch": actor.batch,
        "action": record.action,
        "subject": record.subject,
        "detail": _json(record.detail),
    }
