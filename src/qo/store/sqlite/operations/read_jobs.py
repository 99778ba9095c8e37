"""Reading jobs and the line.

Each function takes a connection that sees one consistent state; none of them waits for a writer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self, Unpack

import apsw

from qo.errors import JobNotFound, ParentNotFound
from qo.job import Job, State
from qo.policy.groups import groups_of
from qo.policy.ordering import FIRST_SEQUENCE
from qo.store.paging import Cursor, EndedCursor
from qo.store.sqlite.operations.positions import position, ranks_of
from qo.store.sqlite.shared import sql
from qo.store.sqlite.shared.rows import JobRow, by_id, names, row_groups, select, to_job, to_json
from qo.store.sqlite.shared.step import Step
from qo.store.sqlite.shared.view import View
from qo.values import InLine, JobsPage, LinePage, ParentStatus, Suspicion, Wanted


def job(view: View, job_id: str) -> Job:
    return job_now(view.db, job_id, with_history=True)


def counts(view: View) -> dict[State, int]:
    rows = view.db.execute("SELECT substr(name, 7), value FROM counter WHERE name LIKE 'state:%' AND value > 0")
    return {State(state): count for state, count in rows}


def job_now(db: apsw.Connection, job_id: str, *, with_history: bool = False) -> Job:
    return _job(db, by_id(db, job_id), _TaskGroups(db), with_history=with_history)


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
    ids: Sequence[str] | None = None,
    limit: int = 100,
    newest_first: bool = False,
    after: str | None = None,
    **wanted: Unpack[Wanted],
) -> JobsPage:
    db, page = view.db, view.bounds.page
    task_groups = _TaskGroups(db)
    if ids is not None:
        rows = {row.id: row for row in select(db, "id IN (SELECT value FROM json_each(?))", (to_json(ids),))}
        known = (rows[job_id] for job_id in dict.fromkeys(ids) if job_id in rows)
        return JobsPage(jobs=tuple(_job(db, row, task_groups, with_history=True) for row in known))
    search = _Search.of(wanted)
    if wanted.get("ended"):
        return _ended(db, search, EndedCursor.read(after), limit, page, newest_first)
    cursor = Cursor.read(after)
    found: list[Job] = []
    if cursor.in_line and search.may_be_in_line:
        found, ended_at, looked_at = _in_line(db, search, cursor.last, limit, page, task_groups)
        if ended_at is not None:
            return JobsPage(jobs=tuple(found), next=Cursor(True, ended_at).text())
        page -= looked_at
    if not search.may_be_elsewhere:
        return JobsPage(jobs=tuple(found))
    last = None if cursor.in_line else cursor.last
    if page <= 0:
        return JobsPage(jobs=tuple(found), next=Cursor(False, last).text())
    others, ended_at = _others(db, search, last, limit - len(found), page, newest_first)
    found += (_job(db, row, task_groups, with_history=True) for row in others)
    return JobsPage(jobs=tuple(found), next=None if ended_at is None else Cursor(False, ended_at).text())


class _Search(NamedTuple):
    """Which rows are wanted, as SQL. Those of a user and of a parent are found by an index (`owner`)."""

    conditions: tuple[str, ...]
    bindings: tuple[Any, ...]
    owner: tuple[str, str] | None
    may_be_in_line: bool
    may_be_elsewhere: bool

    @classmethod
    def of(cls, wanted: Wanted) -> Self:
        given = {name: value for name in EQUAL if (value := wanted.get(name)) is not None}
        conditions, bindings = [f"{name} = ?" for name in given], list(given.values())
        prefix, status = wanted.get("id_prefix"), wanted.get("status")
        if prefix:
            conditions.append("substr(id, 1, ?) = ?")
            bindings += [len(prefix), prefix]
        if status is not None:
            conditions.append(HAS_STATUS)
            bindings += [status] * 3
        owners = [(name, str(given[name])) for name in ("user", "parent") if name in given]
        return cls(
            conditions=tuple(conditions),
            bindings=tuple(bindings),
            owner=owners[0] if owners else None,
            may_be_in_line=status in (None, State.QUEUED),
            may_be_elsewhere=status != State.QUEUED,
        )


EQUAL = ("user", "task", "parent", "project", "tier", "priority")
HAS_STATUS = (
    "(state = ? OR state = 'running' AND stage = ? OR state = 'succeeded' AND stage IS NOT NULL AND ? = 'ready')"
)
"""A status is a state, the stage of a running job, or `ready` for a staged one that succeeded."""


def _in_line(
    db: apsw.Connection, search: _Search, last: int | None, limit: int, page: int, task_groups: _TaskGroups
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
    where = " AND ".join(["state = 'queued' AND key BETWEEN ? AND ?", *_conditions_in_line(db, search, page)])
    rows = list(select(db, f"{where} ORDER BY key LIMIT ?", (first, keys[-1], *search.bindings, limit)))
    ranks = ranks_of(db, [row.key for row in rows if row.key is not None])
    found = [
        to_job(row, groups=task_groups(row), position=rank, with_history=True)
        for rank, row in zip(ranks, rows, strict=True)
    ]
    if len(rows) == limit:
        return found, rows[-1].key, len(keys)
    return found, keys[-1] if len(keys) == page else None, len(keys)


def _conditions_in_line(db: apsw.Connection, search: _Search, page: int) -> list[str]:
    """SQLite would always take the index of the owner, and look at all jobs of an owner that has very many. With a plus
    before a condition it takes the line's; the owner's only where that is shorter than a page."""
    by_index = f"{search.owner[0]} = ?" if search.owner is not None and _has_few(db, search.owner, page) else None
    return [each if each == by_index else f"+{each}" for each in search.conditions]


def _has_few(db: apsw.Connection, owner: tuple[str, str], page: int) -> bool:
    """Whether all jobs of an owner are less than a page."""
    column, name = owner
    counting = f"SELECT count(*) FROM (SELECT 1 FROM job WHERE {column} = ? LIMIT ?)"
    return bool(sql.value(db, counting, (name, page)) < page)


def _others(
    db: apsw.Connection, search: _Search, last: int | None, limit: int, page: int, newest_first: bool
) -> tuple[list[JobRow], int | None]:
    """Those that are not in line, and where the search ended before the last of them."""
    order, beyond = ("DESC", "<") if newest_first else ("ASC", ">")
    looked_through: list[str] = []
    bindings: list[Any] = []
    conditions = search.conditions
    # The index of a user's jobs has them in order. That of a parent's has them by phase, so all of them would be sorted
    # for each page: of a parent that has very many, a page looks at the jobs of all parents instead.
    if search.owner is not None and (search.owner[0] == "user" or _has_few(db, search.owner, page)):
        looked_through.append(f"{search.owner[0]} = ?")
        bindings.append(search.owner[1])
    else:
        conditions = tuple(f"+{each}" for each in conditions)
    if last is not None:
        looked_through.append(f"number {beyond} ?")
        bindings.append(last)
    numbers = sql.rows(
        db,
        f"SELECT number FROM job {'WHERE ' if looked_through else ''}{' AND '.join(looked_through)}"
        f" ORDER BY number {order} LIMIT ?",
        (*bindings, page),
    )
    if not numbers:
        return [], None
    ends = sorted((numbers[0][0], numbers[-1][0]))
    where = " AND ".join(["number BETWEEN ? AND ?", "state != 'queued'", *conditions])
    rows = list(select(db, f"{where} ORDER BY number {order} LIMIT ?", (*ends, *search.bindings, limit)))
    if len(rows) == limit:
        return rows, rows[-1].number
    return rows, numbers[-1][0] if len(numbers) == page else None


def _ended(
    db: apsw.Connection, search: _Search, cursor: EndedCursor | None, limit: int, page: int, newest_first: bool
) -> JobsPage:
    """Those that have ended, found by an index of their ends."""
    order, beyond = ("DESC", "<") if newest_first else ("ASC", ">")
    ended, bindings = "finished_at IS NOT NULL", tuple[int, ...]()
    if cursor is not None:
        ended, bindings = f"{ended} AND (finished_at, number) {beyond} (?, ?)", tuple(cursor)
    ends = sql.rows(
        db,
        f"SELECT finished_at, number FROM job WHERE {ended} ORDER BY finished_at {order}, number {order} LIMIT ?",
        (*bindings, page),
    )
    if not ends:
        return JobsPage()
    numbers = to_json([number for _, number in (ends if search.conditions else ends[:limit])])
    # With a plus before each condition, because else SQLite looks at all jobs of a user that has very many.
    where = " AND ".join(["number IN (SELECT value FROM json_each(?))", *(f"+{each}" for each in search.conditions)])
    rows = list(
        select(
            db,
            f"{where} ORDER BY finished_at {order}, number {order} LIMIT ?",
            (numbers, *search.bindings, limit),
        )
    )
    last = None
    if len(rows) == limit:
        last = EndedCursor(rows[-1].finished_at or 0, rows[-1].number)
    elif len(ends) == page:
        last = EndedCursor(*ends[-1])
    task_groups = _TaskGroups(db)
    return JobsPage(
        jobs=tuple(_job(db, row, task_groups, with_history=True) for row in rows),
        next=None if last is None else last.text(),
    )


def line(view: View, *, limit: int, after: str | None = None, around: str | None = None) -> LinePage:
    db, ended_at = view.db, None
    if around is not None:
        jobs = _neighbours(db, by_id(db, around), limit)
    else:
        cursor, at_most = Cursor.read(after), min(limit, view.bounds.page)
        last = -1 if cursor.last is None else cursor.last
        jobs = _lean(db, "key > ? ORDER BY key LIMIT ?", (last, at_most if cursor.in_line else 0))
        ended_at = jobs[-1].key if jobs and len(jobs) == at_most else None
    return LinePage(
        jobs=tuple(jobs),
        queued=sql.value(db, "SELECT coalesce(sum(waiting), 0) FROM line_count"),
        next_sequence=sql.value(db, "SELECT value FROM counter WHERE name = 'next_sequence'") or FIRST_SEQUENCE,
        task_groups={
            task: names(groups) for task, groups in sql.rows(db, "SELECT name, groups FROM task WHERE groups != '[]'")
        },
        next=None if ended_at is None else Cursor(True, ended_at).text(),
    )


def _neighbours(db: apsw.Connection, row: JobRow, limit: int) -> list[InLine]:
    if row.state != State.QUEUED:
        return []
    ahead = _lean(db, "key < ? ORDER BY key DESC LIMIT ?", (row.key, limit))
    return [*reversed(ahead), *_lean(db, "key >= ? ORDER BY key LIMIT ?", (row.key, limit + 1))]


def _lean(db: apsw.Connection, where: str, bindings: Sequence[Any]) -> list[InLine]:
    """Jobs in line with only what they compete for."""
    task_groups = _TaskGroups(db)
    rows = sql.rows(
        db,
        "SELECT id, task, priority, user, project, tier, parent, own_groups, passed, turn, suspicion, key,"
        " undisturbed_key FROM job"
        f" WHERE state = 'queued' AND {where}",
        bindings,
    )
    return [
        InLine(
            id=id_,
            task=task,
            key=key,
            undisturbed_key=undisturbed_key,
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
        for id_, task, priority, user, project, tier, parent, own, passed, turn, suspicion, key, undisturbed_key in rows
    ]


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


def _job(
    db: apsw.Connection,
    row: JobRow,
    task_groups: Callable[[JobRow], tuple[str, ...]],
    *,
    with_history: bool = False,
) -> Job:
    rank = position(db, row.key) if row.state == State.QUEUED and row.key is not None else None
    result = None
    if row.state == State.SUCCEEDED:
        result = sql.value(db, "SELECT result FROM content WHERE number = ?", (row.number,))
    return to_job(row, groups=task_groups(row), position=rank, result=result, with_history=with_history)
