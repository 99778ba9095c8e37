"""Reading: what a store can be asked without changing anything.

Each function takes a connection that sees one consistent state; none of them waits for a writer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import apsw

from qo.errors import JobNotFound, ParentNotFound
from qo.event import AuditEntry, Event, Feed
from qo.job import Job, State, moment
from qo.policy.groups import groups_of
from qo.store.sqlite import sql
from qo.store.sqlite.places import position, ranks_of
from qo.store.sqlite.rows import JobRow, by_id, decode, names, row_groups, select, to_job, to_json
from qo.store.sqlite.step import Step
from qo.store.values import InLine, Mean, ParentStatus, Record, SeriesPoint


def job(db: apsw.Connection, job_id: str) -> Job:
    return _job(db, by_id(db, job_id), _TaskGroups(db))


def with_position(step: Step, job_id: str) -> Job:
    """A job as it is within a step, whose counts may not be written yet."""
    step.write()
    return job(step.db, job_id)


def payload(db: apsw.Connection, job_id: str) -> tuple[bytes, bytes | None]:
    found: tuple[bytes, bytes | None] | None = sql.row(
        db, "SELECT payload, checkpoint FROM content JOIN job USING (number) WHERE id = ?", (job_id,)
    )
    if found is None:
        raise JobNotFound(job_id)
    return found


def jobs(
    db: apsw.Connection,
    *,
    status: str | None,
    user: str | None,
    task: str | None,
    parent: str | None,
    limit: int,
    newest_first: bool,
) -> tuple[Job, ...]:
    wanted = {"user": user, "task": task, "parent": parent}
    filters = [f"{column} = ?" for column, value in wanted.items() if value is not None]
    bindings = [value for value in wanted.values() if value is not None]
    task_groups = _TaskGroups(db)
    in_line = _in_line(db, filters, bindings, limit, task_groups) if status in (None, State.QUEUED) else []
    if status == State.QUEUED or len(in_line) >= limit:
        return tuple(in_line)
    others = select(
        db,
        " AND ".join(["state != 'queued'", *filters, *_status_filter(status)])
        + f" ORDER BY number {'DESC' if newest_first else ''} LIMIT ?",
        (*bindings, *_status_bindings(status), limit - len(in_line)),
    )
    return (*in_line, *(_job(db, row, task_groups) for row in others))


def _status_filter(status: str | None) -> list[str]:
    """A status is a state, the stage of a running job, or `ready` for a staged one that succeeded."""
    if status is None:
        return []
    return [
        "(state = ? OR state = 'running' AND stage = ? OR state = 'succeeded' AND stage IS NOT NULL AND ? = 'ready')"
    ]


def _status_bindings(status: str | None) -> list[str]:
    return [] if status is None else [status] * 3


def _in_line(
    db: apsw.Connection, filters: list[str], bindings: list[str], limit: int, task_groups: _TaskGroups
) -> list[Job]:
    where = " AND ".join(["state = 'queued'", *filters])
    rows = list(select(db, f"{where} ORDER BY key LIMIT ?", (*bindings, limit)))
    if not filters:
        return [to_job(row, groups=task_groups(row), position=index) for index, row in enumerate(rows, start=1)]
    ranks = ranks_of(db, [row.key for row in rows if row.key is not None])
    return [to_job(row, groups=task_groups(row), position=rank) for rank, row in zip(ranks, rows, strict=True)]


def line(db: apsw.Connection, *, limit: int) -> tuple[InLine, ...]:
    task_groups = _TaskGroups(db)
    rows = sql.rows(
        db,
        "SELECT id, task, priority, user, project, tier, parent, own_groups FROM job"
        " WHERE state = 'queued' ORDER BY key LIMIT ?",
        (limit,),
    )
    return tuple(
        InLine(
            id=id_,
            task=task,
            tier=tier,
            groups=groups_of(
                task=task,
                priority=priority,
                user=user,
                project=project,
                tier=tier,
                parent=parent,
                task_groups=task_groups.of(task),
                own=names(own),
            ),
        )
        for id_, task, priority, user, project, tier, parent, own in rows
    )


def waiting_count(db: apsw.Connection) -> int:
    count: int = sql.value(db, "SELECT coalesce(sum(waiting), 0) FROM line_count")
    return count


def parent(db: apsw.Connection, name: str) -> ParentStatus:
    priority = sql.value(db, "SELECT priority FROM parent WHERE name = ?", (name,))
    if priority is None:
        raise ParentNotFound(name)
    rows = select(db, "parent = ? ORDER BY phase IS NULL, phase, number", (name,))
    task_groups = _TaskGroups(db)
    return ParentStatus(parent=name, priority=priority, jobs=tuple(_job(db, row, task_groups) for row in rows))


def state_of_phase(db: apsw.Connection, parent: str | None, phase: int) -> State | None:
    """The state of the phase's newest job (those before it were cancelled); None where there is none."""
    state = sql.value(
        db, "SELECT state FROM job WHERE parent = ? AND phase = ? ORDER BY number DESC LIMIT 1", (parent, phase)
    )
    return None if state is None else State(state)


def series(db: apsw.Connection, *, prefix: str, since_minute: int) -> tuple[SeriesPoint, ...]:
    rows = db.execute(
        "SELECT name, minute, count, total_ms FROM figure WHERE minute >= ? AND substr(name, 1, ?) = ?"
        " ORDER BY name, minute",
        (since_minute, len(prefix), prefix),
    )
    return tuple(
        SeriesPoint(name=name, minute=minute, count=count, total_ms=total_ms) for name, minute, count, total_ms in rows
    )


def audit(db: apsw.Connection, *, subject: str | None, limit: int) -> tuple[AuditEntry, ...]:
    where, bindings = ("", (limit,)) if subject is None else ("WHERE subject = ?", (subject, limit))
    rows = db.execute(
        f"SELECT id, at, by, action, subject, detail FROM audit {where} ORDER BY id DESC LIMIT ?", bindings
    )
    return tuple(
        AuditEntry(id=id_, at=moment(at), by=by, action=action, subject=subject_, detail=decode(detail))
        for id_, at, by, action, subject_, detail in rows
    )


def averages(db: apsw.Connection, wanted: Sequence[str]) -> dict[str, Mean]:
    found = {}
    for name in wanted:
        row = sql.row(db, "SELECT value, square, count FROM average WHERE name = ?", (name,))
        if row is not None:
            found[name] = Mean(value=row[0], square=row[1], count=row[2])
    return found


def estimate_errors(db: apsw.Connection, task: str) -> tuple[float, ...]:
    return tuple(
        ratio for (ratio,) in db.execute("SELECT ratio FROM estimate_error WHERE task = ? ORDER BY id", (task,))
    )


def events(
    db: apsw.Connection, after: int, *, kinds: Collection[str] | None, subjects: Collection[str] | None, limit: int
) -> Feed:
    oldest, newest = sql.row(db, "SELECT coalesce(min(id), 1), coalesce(max(id), 0) FROM event")
    if after < oldest - 1 or after > newest:
        return Feed(events=(), cursor=newest, reset=True)
    wanted = [("kind", kinds), ("subject", subjects)]
    conditions = [f" AND {column} IN (SELECT value FROM json_each(?))" for column, names in wanted if names is not None]
    rows = db.execute(
        f"SELECT id, at, kind, subject, detail FROM event WHERE id > ?{''.join(conditions)} ORDER BY id LIMIT ?",
        (after, *(to_json(sorted(names)) for _, names in wanted if names is not None), limit),
    )
    found = tuple(
        Event(id=id_, at=moment(at), kind=kind, subject=subject, detail=decode(detail))
        for id_, at, kind, subject, detail in rows
    )
    return Feed(events=found, cursor=found[-1].id if len(found) == limit else newest)


def has_events(db: apsw.Connection, after: int, *, kinds: Collection[str] | None) -> tuple[bool, int]:
    """Whether there are any of these kinds, and up to where that is known."""
    newest = newest_event(db)
    if newest <= after or kinds is None:
        return newest > after, newest
    statement = "SELECT EXISTS (SELECT 1 FROM event WHERE id > ? AND kind IN (SELECT value FROM json_each(?)))"
    return bool(sql.value(db, statement, (after, to_json(sorted(kinds))))), newest


def newest_event(db: apsw.Connection) -> int:
    newest: int = sql.value(db, "SELECT coalesce(max(id), 0) FROM event")
    return newest


def record(db: apsw.Connection, name: str) -> Record:
    row = sql.row(db, "SELECT version, value FROM record WHERE name = ?", (name,))
    return Record() if row is None else Record(version=row[0], value=decode(row[1]))


def records(db: apsw.Connection, prefix: str) -> dict[str, Record]:
    rows = db.execute(
        "SELECT name, version, value FROM record WHERE substr(name, 1, ?) = ? ORDER BY name", (len(prefix), prefix)
    )
    return {name: Record(version=version, value=decode(value)) for name, version, value in rows}


class _TaskGroups:
    """The groups of jobs, with what their tasks add read once."""

    def __init__(self, db: apsw.Connection) -> None:
        self._db = db
        self._by_task: dict[str, tuple[str, ...]] = {}

    def __call__(self, row: JobRow) -> tuple[str, ...]:
        return row_groups(row, self.of(row.task))

    def of(self, task: str) -> tuple[str, ...]:
        if task not in self._by_task:
            text = sql.value(self._db, "SELECT groups FROM task WHERE name = ?", (task,))
            self._by_task[task] = () if text is None else names(text)
        return self._by_task[task]


def _job(db: apsw.Connection, row: JobRow, task_groups: Callable[[JobRow], tuple[str, ...]]) -> Job:
    rank = position(db, row.key) if row.state == State.QUEUED and row.key is not None else None
    result = None
    if row.state == State.SUCCEEDED:
        result = sql.value(db, "SELECT result FROM content WHERE number = ?", (row.number,))
    return to_job(row, groups=task_groups(row), position=rank, result=result)
