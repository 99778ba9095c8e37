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
from qo.store.paging import Cursor
from qo.store.sqlite.operations.positions import position, ranks_of
from qo.store.sqlite.shared import sql
from qo.store.sqlite.shared.rows import JobRow, by_id, decode, names, row_groups, select, to_job, to_json
from qo.store.sqlite.shared.step import Step
from qo.store.sqlite.shared.view import View
from qo.values import InLine, JobsPage, LinePage, Mean, Observed, ParentStatus, Record, SeriesPoint, Suspicion


def job(view: View, job_id: str) -> Job:
    return job_now(view.db, job_id)


def job_now(db: apsw.Connection, job_id: str) -> Job:
    return _job(db, by_id(db, job_id), _TaskGroups(db))


def with_position(step: Step, job_id: str) -> Job:
    """A job as it is within a step, whose counts may not be written yet."""
    step.write()
    return job_now(step.db, job_id)


def payload(view: View, job_id: str) -> tuple[bytes, bytes | None]:
    found: tuple[bytes, bytes | None] | None = sql.row(
        view.db, "SELECT payload, checkpoint FROM content JOIN job USING (number) WHERE id = ?", (job_id,)
    )
    if found is None:
        raise JobNotFound(job_id)
    return found


def jobs(
    view: View,
    *,
    status: str | None = None,
    user: str | None = None,
    task: str | None = None,
    parent: str | None = None,
    limit: int = 100,
    newest_first: bool = False,
    after: str | None = None,
) -> JobsPage:
    db, page = view.db, view.bounds.page
    wanted = {"user": user, "task": task, "parent": parent}
    given = {column: value for column, value in wanted.items() if value is not None}
    task_groups = _TaskGroups(db)
    cursor = Cursor.read(after)
    found: list[Job] = []
    if cursor.in_line and status in (None, State.QUEUED):
        found, ended_at, looked_at = _in_line(db, given, cursor.last, limit, page, task_groups)
        if ended_at is not None:
            return JobsPage(jobs=tuple(found), next=Cursor(True, ended_at).text())
        page -= looked_at
    if status == State.QUEUED:
        return JobsPage(jobs=tuple(found))
    last = None if cursor.in_line else cursor.last
    if page <= 0:
        return JobsPage(jobs=tuple(found), next=Cursor(False, last).text())
    others, ended_at = _others(db, given, status, last, limit - len(found), page, newest_first)
    found += (_job(db, row, task_groups) for row in others)
    return JobsPage(jobs=tuple(found), next=None if ended_at is None else Cursor(False, ended_at).text())


def _in_line(
    db: apsw.Connection, given: dict[str, str], last: int | None, limit: int, page: int, task_groups: _TaskGroups
) -> tuple[list[Job], int | None, int]:
    """The jobs, where the search ended before the end of the line, and how many rows it looked at."""
    first = 0 if last is None else last + 1
    # By the keys alone, which are in an index: a page of them takes a fraction of a millisecond.
    keys = [
        key
        for (key,) in sql.rows(
            db, "SELECT key FROM job WHERE state = 'queued' AND key >= ? ORDER BY key LIMIT ?", (first, page)
        )
    ]
    if not keys:
        return [], None, 0
    where = " AND ".join(["state = 'queued' AND key BETWEEN ? AND ?", *(f"{column} = ?" for column in given)])
    rows = list(select(db, f"{where} ORDER BY key LIMIT ?", (first, keys[-1], *given.values(), limit)))
    ranks = ranks_of(db, [row.key for row in rows if row.key is not None])
    found = [to_job(row, groups=task_groups(row), position=rank) for rank, row in zip(ranks, rows, strict=True)]
    if len(rows) == limit:
        return found, rows[-1].key, len(keys)
    return found, keys[-1] if len(keys) == page else None, len(keys)


def _others(
    db: apsw.Connection,
    given: dict[str, str],
    status: str | None,
    last: int | None,
    limit: int,
    page: int,
    newest_first: bool,
) -> tuple[list[JobRow], int | None]:
    """Those that are not in line, and where the search ended before the last of them."""
    order, beyond = ("DESC", "<") if newest_first else ("ASC", ">")
    # The jobs of a user and of a parent are found by an index; of all others a page of numbers is looked through.
    owner = {column: given[column] for column in [one for one in ("user", "parent") if one in given][:1]}
    looked_through = [*(f"{column} = ?" for column in owner), *([] if last is None else [f"number {beyond} ?"])]
    numbers = sql.rows(
        db,
        f"SELECT number FROM job {'WHERE ' + ' AND '.join(looked_through) if looked_through else ''}"
        f" ORDER BY number {order} LIMIT ?",
        (*owner.values(), *([] if last is None else [last]), page),
    )
    if not numbers:
        return [], None
    ends = sorted((numbers[0][0], numbers[-1][0]))
    where = ["number BETWEEN ? AND ?", "state != 'queued'", *(f"{column} = ?" for column in given)]
    rows = list(
        select(
            db,
            " AND ".join([*where, *_status_filter(status)]) + f" ORDER BY number {order} LIMIT ?",
            (*ends, *given.values(), *_status_bindings(status), limit),
        )
    )
    if len(rows) == limit:
        return rows, rows[-1].number
    return rows, numbers[-1][0] if len(numbers) == page else None


def _status_filter(status: str | None) -> list[str]:
    """A status is a state, the stage of a running job, or `ready` for a staged one that succeeded."""
    if status is None:
        return []
    return [
        "(state = ? OR state = 'running' AND stage = ? OR state = 'succeeded' AND stage IS NOT NULL AND ? = 'ready')"
    ]


def _status_bindings(status: str | None) -> list[str]:
    return [] if status is None else [status] * 3


def line(view: View, *, limit: int, after: str | None = None) -> LinePage:
    db = view.db
    task_groups = _TaskGroups(db)
    cursor, at_most = Cursor.read(after), min(limit, view.bounds.page)
    rows = sql.rows(
        db,
        "SELECT id, task, priority, user, project, tier, parent, own_groups, passed, turn, suspicion, key FROM job"
        " WHERE state = 'queued' AND key > ? ORDER BY key LIMIT ?",
        (-1 if cursor.last is None else cursor.last, at_most if cursor.in_line else 0),
    )
    jobs = tuple(
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
            passed=passed,
            turn=bool(turn),
            suspicion=Suspicion(suspicion),
        )
        for id_, task, priority, user, project, tier, parent, own, passed, turn, suspicion, _ in rows
    )
    queued = sql.value(db, "SELECT coalesce(sum(waiting), 0) FROM line_count")
    ended_at = rows[-1][-1] if rows and len(rows) == at_most else None
    return LinePage(jobs=jobs, queued=queued, next=None if ended_at is None else Cursor(True, ended_at).text())


def parent(view: View, parent: str) -> ParentStatus:
    db = view.db
    priority = sql.value(db, "SELECT priority FROM parent WHERE name = ?", (parent,))
    if priority is None:
        raise ParentNotFound(parent)
    rows = select(db, "parent = ? ORDER BY phase IS NULL, phase, number", (parent,))
    task_groups = _TaskGroups(db)
    return ParentStatus(parent=parent, priority=priority, jobs=tuple(_job(db, row, task_groups) for row in rows))


def state_of_phase(db: apsw.Connection, parent: str | None, phase: int) -> State | None:
    """The state of the phase's newest job (those before it were cancelled); None where there is none."""
    state = sql.value(
        db, "SELECT state FROM job WHERE parent = ? AND phase = ? ORDER BY number DESC LIMIT 1", (parent, phase)
    )
    return None if state is None else State(state)


def series(view: View, *, prefix: str = "", since_minute: int = 0) -> tuple[SeriesPoint, ...]:
    rows = view.db.execute(
        "SELECT name, minute, count, total_ms FROM figure WHERE minute >= ? AND substr(name, 1, ?) = ?"
        " ORDER BY name, minute",
        (since_minute, len(prefix), prefix),
    )
    return tuple(
        SeriesPoint(name=name, minute=minute, count=count, total_ms=total_ms) for name, minute, count, total_ms in rows
    )


def audit(view: View, *, subject: str | None = None, limit: int = 100) -> tuple[AuditEntry, ...]:
    where, bindings = ("", (limit,)) if subject is None else ("WHERE subject = ?", (subject, limit))
    rows = view.db.execute(
        f"SELECT id, at, by, action, subject, detail FROM audit {where} ORDER BY id DESC LIMIT ?", bindings
    )
    return tuple(
        AuditEntry(id=id_, at=moment(at), by=by, action=action, subject=subject_, detail=decode(detail))
        for id_, at, by, action, subject_, detail in rows
    )


def observed(view: View, names: Sequence[str] = (), *, tasks: Sequence[str] = ()) -> Observed:
    return Observed(averages=_averages(view.db, names), errors={task: _errors(view.db, task) for task in tasks})


def _averages(db: apsw.Connection, names: Sequence[str]) -> dict[str, Mean]:
    found = {}
    for name in names:
        row = sql.row(db, "SELECT value, square, count FROM average WHERE name = ?", (name,))
        if row is not None:
            found[name] = Mean(value=row[0], square=row[1], count=row[2])
    return found


def _errors(db: apsw.Connection, task: str) -> tuple[float, ...]:
    return tuple(
        ratio for (ratio,) in db.execute("SELECT ratio FROM estimate_error WHERE task = ? ORDER BY id", (task,))
    )


def events(
    db: apsw.Connection,
    after: int | None,
    *,
    kinds: Collection[str] | None,
    subjects: Collection[str] | None,
    limit: int,
) -> Feed:
    oldest, newest = sql.row(db, "SELECT coalesce(min(id), 1), coalesce(max(id), 0) FROM event")
    if after is None:
        return Feed(events=(), cursor=newest)
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
    newest: int = sql.value(db, "SELECT coalesce(max(id), 0) FROM event")
    if newest <= after or kinds is None:
        return newest > after, newest
    statement = "SELECT EXISTS (SELECT 1 FROM event WHERE id > ? AND kind IN (SELECT value FROM json_each(?)))"
    return bool(sql.value(db, statement, (after, to_json(sorted(kinds))))), newest


def records(view: View, name: str | None = None, *, prefix: str = "") -> dict[str, Record]:
    where, bindings = ("name = ?", (name,)) if name is not None else ("substr(name, 1, ?) = ?", (len(prefix), prefix))
    rows = view.db.execute(f"SELECT name, version, value FROM record WHERE {where} ORDER BY name", bindings)
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
