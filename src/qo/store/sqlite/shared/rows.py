"""A job's row, as the operations hold it in memory while a step runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any

import apsw
import msgspec

from qo.errors import JobNotFound
from qo.job import Job
from qo.policy.groups import groups_of
from qo.store.sqlite import sql
from qo.store.sqlite.writes import Writes
from qo.store.stored_job import stored_job

_encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode
_decode_names = msgspec.json.Decoder(tuple[str, ...]).decode


class JobRow(msgspec.Struct, gc=False):
    """Field for column, in the order of the table. Changed in memory, then written by `save`."""

    number: int
    id: str
    task: str
    state: str
    stage: str | None
    priority: int
    boost: int
    user: str | None
    project: str | None
    tier: str | None
    parent: str | None
    phase: int | None
    own_groups: str
    unique_key: str | None
    key: int | None
    parked: str | None
    aged_at: int | None
    joined_at: int | None
    position_original: int | None
    run_at: int | None
    due_at: int | None
    parent_order: str
    quota_day: int | None
    deferred: int
    attempts: int
    max_attempts: int | None
    timeout_ms: int | None
    iterations: int
    iterations_batch: int | None
    iterations_granted: int | None
    iterations_max: int | None
    token: int | None
    ended_token: int | None
    ended_state: str | None
    worker: str | None
    cancel_wanted: int
    progress: str | None
    error: str | None
    message: str | None
    submitted_at: int
    started_at: int | None
    confirming_at: int | None
    reminded: int
    finished_at: int | None
    steady_at: int | None
    undisturbed_key: int | None
    displaced: str | None


SELECT = "SELECT * FROM job"
INSERT = f"INSERT INTO job VALUES ({', '.join('?' * len(JobRow.__struct_fields__))})"
_updates: dict[tuple[str, ...], tuple[str, Callable[[JobRow], tuple[Any, ...]]]] = {}


def find(db: apsw.Connection, where: str, bindings: Sequence[Any] = ()) -> JobRow | None:
    """The first job that fits `where`, which may go on with ORDER BY."""
    row = db.execute(f"{SELECT} WHERE {where} LIMIT 1", bindings).fetchone()
    return None if row is None else JobRow(*row)


def by_number(db: apsw.Connection, number: int) -> JobRow:
    row = find(db, "number = ?", (number,))
    assert row is not None, number
    return row


def by_id(db: apsw.Connection, job_id: str) -> JobRow:
    row = find(db, "id = ?", (job_id,))
    if row is None:
        raise JobNotFound(job_id)
    return row


def select(db: apsw.Connection, where: str, bindings: Sequence[Any] = ()) -> Iterator[JobRow]:
    # Fetched whole, because a statement that is still being read must not see its own step's writes.
    return (JobRow(*row) for row in sql.rows(db, f"{SELECT} WHERE {where}", bindings))


def insert(writes: Writes, row: JobRow) -> None:
    writes.add("job", INSERT, msgspec.structs.astuple(row))


def save(writes: Writes, row: JobRow, *fields: str) -> None:
    """Write these fields. Only these: naming a column makes SQLite rewrite every index that has it."""
    if fields not in _updates:
        assignments = ", ".join(f"{field} = ?" for field in fields)
        _updates[fields] = f"UPDATE job SET {assignments} WHERE number = ?", attrgetter(*fields, "number")
    statement, values = _updates[fields]
    writes.add("job", statement, values(row))


def to_json(value: Any) -> str:
    return _encode(value).decode()


def names(text: str) -> tuple[str, ...]:
    """A JSON list of names; the empty one, by far the most frequent, without parsing."""
    return () if text == "[]" else _decode_names(text)


def row_groups(row: JobRow, task_groups: tuple[str, ...]) -> tuple[str, ...]:
    return groups_of(
        task=row.task,
        priority=row.priority,
        user=row.user,
        project=row.project,
        tier=row.tier,
        parent=row.parent,
        task_groups=task_groups,
        own=names(row.own_groups),
    )


def to_job(row: JobRow, *, groups: tuple[str, ...], position: int | None = None, result: bytes | None = None) -> Job:
    token = None if row.token is None else str(row.token)
    return stored_job(row, groups=groups, token=token, position=position, result=result)
