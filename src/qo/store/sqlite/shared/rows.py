"""A job's row in SQLite, as the operations hold it in memory while a step runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any

import apsw
import msgspec

from qo.errors import JobNotFound
from qo.job import Job
from qo.store.row import JobFields, Json, groups_of_row, stored_job
from qo.store.sqlite.shared import sql
from qo.store.sqlite.shared.writes import Writes

_encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode
_decode_names = msgspec.json.Decoder(tuple[str, ...]).decode


class JobRow(JobFields, gc=False):
    """A field for each column of the table. Changed in memory, then written by `save`."""

    number: int = 0
    own_groups: Json = "[]"
    lane: str | None = None
    """What all jobs of its lane have in common: see `lane_of`. None unless the job is queued."""
    first: bool | None = None
    """True for the first job of its lane, else None."""
    parked: str | None = None
    """The group without room that the lane is parked in. Only its first job has it."""
    parent_order: str = ""
    token: int | None = None
    ended_token: int | None = None


COLUMNS = ", ".join(JobRow.__struct_fields__)
SELECT = f"SELECT {COLUMNS} FROM job"
INSERT = sql.Insert(f"job ({COLUMNS})", columns=len(JobRow.__struct_fields__))
_updates: dict[tuple[str, ...], tuple[str, Callable[[JobRow], tuple[Any, ...]]]] = {}


def find(db: apsw.Connection, where: str, bindings: Sequence[Any] = ()) -> JobRow | None:
    """The first job that matches `where`, which may end with ORDER BY."""
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
    """The names in a JSON list. An empty list, by far the most frequent, is not parsed."""
    return () if text == "[]" else _decode_names(text)


def row_groups(row: JobRow, task_groups: tuple[str, ...]) -> tuple[str, ...]:
    return groups_of_row(row, task_groups=task_groups, own=names(row.own_groups))


def lane_of(row: JobRow) -> str:
    """The lane that the job stands in while it is queued. No name is empty or has a control character."""
    own = "" if row.own_groups == "[]" else row.own_groups
    user, project, tier, parent = row.user or "", row.project or "", row.tier or "", row.parent or ""
    # Short, because the row of every job in line and an index have it.
    lane = f"{row.task}\x1f{row.priority}\x1f{user}\x1f{project}\x1f{tier}\x1f{parent}\x1f{own}".rstrip("\x1f")
    return f"\x1f{row.suspicion}{lane}" if row.suspicion else lane


def to_job(
    row: JobRow,
    *,
    groups: tuple[str, ...],
    position: int | None = None,
    result: bytes | None = None,
    with_history: bool = False,
) -> Job:
    token = None if row.token is None else str(row.token)
    return stored_job(row, groups=groups, token=token, position=position, result=result, with_history=with_history)
