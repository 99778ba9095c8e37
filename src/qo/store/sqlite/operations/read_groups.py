"""Reading, continued: groups and their holders, workers, usage, and what blocks a job."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import apsw

from qo.job import HELD, Job, State, moment
from qo.policy.days import day_of
from qo.policy.turns import Kept
from qo.store.sqlite.operations import read_jobs as reading
from qo.store.sqlite.shared import sql
from qo.store.sqlite.shared.rows import decode
from qo.store.sqlite.shared.rows import names as names_in
from qo.store.sqlite.shared.step import Step
from qo.store.sqlite.shared.turns import keep_slots, kept_now
from qo.store.sqlite.shared.view import View
from qo.values import Blockers, Bounds, GroupStatus, Lease, SlotInfo, Source, Suspicion, UserUsage, WorkerInfo


def _with_slots(db: apsw.Connection, name: str, kept: Kept) -> GroupStatus:
    rows = db.execute(
        "SELECT slot.number, holder, worker, expires_at + ?, lease.token FROM slot JOIN lease USING (token)"
        " WHERE grp = ? ORDER BY slot.number",
        (uncounted_ms(db), name),
    )
    slots = tuple(
        SlotInfo(slot_id=number, holder=holder, worker_id=worker, expires_at=moment(expires_at), token=str(token))
        for number, holder, worker, expires_at, token in rows
    )
    return _status(db, name, kept, active=len(slots), slots=slots)


def groups(view: View, names: Sequence[str] | None = None) -> tuple[GroupStatus, ...]:
    db, kept = view.db, kept_now(looking(view.db, view.now))
    if names is not None:
        return tuple(_with_slots(db, name, kept) for name in names)
    active = dict(db.execute("SELECT grp, count(*) FROM slot WHERE token IS NOT NULL GROUP BY grp"))
    stored = [name for (name,) in db.execute("SELECT name FROM grp")]
    return tuple(_status(db, name, kept, active=active.get(name, 0)) for name in sorted({*active, *stored}))


def _status(
    db: apsw.Connection, name: str, kept: Kept, *, active: int, slots: tuple[SlotInfo, ...] = ()
) -> GroupStatus:
    row = sql.row(db, "SELECT slots, source, paused, closed_until FROM grp WHERE name = ?", (name,))
    limit, source, paused, closed_until = row or (None, None, 0, None)
    waiting: int = sql.value(
        db,
        "SELECT (SELECT count(*) FROM job WHERE lane IN (SELECT lane FROM job WHERE parked = ?1))"
        " + (SELECT count(*) FROM ticket WHERE groups IN (SELECT groups FROM ticket WHERE parked = ?1))",
        (name,),
    )
    return GroupStatus(
        group=name,
        limit=limit,
        source=None if source is None else Source(source),
        paused=bool(paused),
        closed_until=None if closed_until is None else moment(closed_until + fallen_ms(db)),
        active=active,
        waiting=waiting,
        kept=None if (keeper := kept.first(name)) is None else keeper.name,
        slots=slots,
    )


def blockers(view: View, job_id: str) -> Blockers:
    db = view.db
    found = reading.job_now(view.db, job_id)
    standing = _standing(view, found)
    waits_for = waits_for_state = None
    if found.state is State.WAITING and found.phase is not None:
        state = reading.state_of_phase(db, found.parent, found.phase - 1)
        if state is not State.SUCCEEDED:
            waits_for, waits_for_state = found.phase - 1, state
    worker, heard_at = _heard_last(db, found)
    start_by = _start_by(db, job_id)
    return Blockers(
        job=found,
        ahead=None if found.position is None else found.position - 1,
        groups=groups(view, standing.without_room),
        kept_for=standing.kept_for,
        turn=standing.turn,
        waits_for=waits_for,
        waits_for_state=waits_for_state,
        has_worker=any(found.task in live.tasks for live in workers(view)),
        worker=worker,
        heard_at=heard_at,
        start_by=None if start_by is None else moment(start_by),
        suspicion=_suspicion_in_line(db, job_id),
    )


class _Standing(NamedTuple):
    """How a job stands to its groups."""

    without_room: list[str]
    kept_for: dict[str, tuple[str, ...]]
    turn: tuple[str, ...]


def _standing(view: View, job: Job) -> _Standing:
    step = looking(view.db, view.now)
    if job.state is not State.QUEUED:
        return _Standing([name for name in job.groups if not step.groups.has_room(name)], {}, ())
    keep_slots(step)
    kept = step.groups.kept
    key: int = sql.value(view.db, "SELECT key FROM job WHERE id = ?", (job.id,))
    keepers = {name: kept.first(name) for name in job.groups}
    turn = tuple(name for name, keeper in keepers.items() if keeper is not None and keeper.key == key)
    without_room = [name for name in job.groups if not step.groups.has_room_for(name, key)]
    kept_for = {}
    for name in without_room:
        keeper = keepers[name]
        if keeper is not None and step.groups.has_room(name):
            kept_for[keeper.name] = tuple(each for each in keeper.groups if not step.groups.has_room(each))
    return _Standing(without_room, kept_for, turn)


def looking(db: apsw.Connection, now: int) -> Step:
    """A step that only looks, and is never written."""
    return Step(db, now, Bounds())


def _start_by(db: apsw.Connection, job_id: str) -> int | None:
    """When a job that has never started fails, on the store's clock."""
    latest: int | None = sql.value(
        db,
        "SELECT coalesce(steady_start_by + ?2, start_by) FROM job"
        " WHERE id = ?1 AND started_at IS NULL AND finished_at IS NULL",
        (job_id, fallen_ms(db)),
    )
    return latest


def _suspicion_in_line(db: apsw.Connection, job_id: str) -> Suspicion:
    return Suspicion(sql.value(db, "SELECT suspicion FROM job WHERE id = ? AND state = 'queued'", (job_id,)) or 0)


def workers(view: View) -> tuple[WorkerInfo, ...]:
    return _workers(view.db, "expires_at > ? ORDER BY name", (view.now,))


def worker_named(db: apsw.Connection, name: str, *, now: int) -> WorkerInfo | None:
    """The live worker of this name."""
    return next(iter(_workers(db, "expires_at > ? AND name = ?", (now, name))), None)


def _workers(db: apsw.Connection, where: str, bindings: tuple[object, ...]) -> tuple[WorkerInfo, ...]:
    rows = sql.rows(
        db,
        "SELECT name, instance, tasks, capacity,"
        " (SELECT count(*) FROM lease WHERE lease.worker = worker.name AND job IS NOT NULL),"
        f" registered_at, heard_at, expires_at, host, pid FROM worker WHERE {where}",
        bindings,
    )
    return tuple(
        WorkerInfo(
            name=name,
            instance=instance,
            tasks=names_in(tasks),
            capacity=capacity,
            running=running,
            registered_at=moment(registered_at),
            heard_at=moment(heard_at),
            expires_at=moment(expires_at),
            host=host,
            pid=pid,
        )
        for name, instance, tasks, capacity, running, registered_at, heard_at, expires_at, host, pid in rows
    )


def _heard_last(db: apsw.Connection, job: Job) -> tuple[str | None, datetime | None]:
    """The worker that holds the job, else that of those that handle its task which was heard of last; and when."""
    rows = sql.rows(db, "SELECT name, tasks, heard_at FROM worker ORDER BY heard_at DESC, name")
    for name, tasks, heard_at in rows:
        if name == job.worker if job.state in HELD else job.task in names_in(tasks):
            return name, moment(heard_at)
    return None, None


def leases(view: View, *, worker: str | None = None) -> tuple[Lease, ...]:
    db = view.db
    rows = sql.rows(
        db,
        "SELECT token, holder, expires_at + ?2, (SELECT suspicion FROM job WHERE number = job) FROM lease"
        " WHERE job IS NOT NULL AND (?1 IS NULL OR worker = ?1) ORDER BY token",
        (worker, uncounted_ms(db)),
    )
    return tuple(
        Lease.of(
            reading.job_now(db, job_id),
            token=str(token),
            expires_at_ms=expires_at,
            slots=dict(
                db.execute(
                    "SELECT grp, number FROM slot JOIN grp ON grp.name = slot.grp"
                    " WHERE token = ? AND grp.slots IS NOT NULL",
                    (token,),
                )
            ),
            suspicion=Suspicion(suspicion),
        )
        for token, job_id, expires_at, suspicion in rows
    )


def usage(view: View, user: str) -> UserUsage:
    db, now = view.db, view.now
    text = sql.value(db, "SELECT standing FROM user WHERE name = ?", (user,))
    standing = {} if text is None else decode(text)
    used = sql.value(db, "SELECT used FROM quota WHERE user = ? AND day = ?", (user, day_of(now)))
    # Without the name of the index, SQLite would look at all jobs of the user.
    counting = "SELECT count(*) FROM job INDEXED BY job_deferred WHERE deferred AND user = ?"
    deferred: int = sql.value(db, counting, (user,))
    return UserUsage(
        user=user,
        tier=standing.get("tier"),
        daily_quota=standing.get("daily_quota"),
        used_today=used or 0,
        deferred=deferred,
        today=day_of(now),
    )


def uncounted_ms(db: apsw.Connection) -> int:
    """The store's clock less this is counted time."""
    return counter(db, "uncounted_ms")


def fallen_ms(db: apsw.Connection) -> int:
    """The store's clock less this is steady time."""
    return counter(db, "fallen_ms")


def counter(db: apsw.Connection, name: str) -> int:
    return sql.value(db, "SELECT value FROM counter WHERE name = ?", (name,)) or 0
