"""forget: remove what is past its retention, one portion of each kind.

Writes   ended jobs, events, audit entries, figures, users, limits, quota and workers that nobody can need any more
Answers  the jobs
Events   none
"""

from __future__ import annotations

from qo.policy.days import day_of
from qo.policy.figures import figures_of, own_group_of
from qo.store.sqlite import sql
from qo.store.sqlite.rows import JobRow, by_number
from qo.store.sqlite.step import MINUTE_MS, Step
from qo.store.values import Portion, Source


def forget(step: Step, *, keep_ms: int, keep_jobs: int, keep_events: int, keep_audit: int) -> Portion:
    forgotten, more = _forget_jobs(step, step.now - keep_ms, keep_jobs)
    more |= _forget_events(step, keep_events)
    more |= _delete(step, "audit", "id", "id <= ?", (step.number("last_audit") - keep_audit,))
    more |= _sum_up_figures(step, (step.now - keep_ms) // MINUTE_MS)
    more |= _delete(step, "quota", "day, user", "day < ?", (day_of(step.now),))
    oldest_kept = sql.value(step.db, "SELECT min(number) FROM job") or step.number("last_job") + 1
    more |= _forget_users(step, oldest_kept)
    more |= _forget_limits(step, oldest_kept)
    more |= _delete(step, "worker", "name", "expires_at <= ?", (step.now - keep_ms,))
    return Portion(ids=tuple(forgotten), more=more)


def _forget_jobs(step: Step, ended_before: int, keep_jobs: int) -> tuple[list[str], bool]:
    # Everything that ended before this one (time, number) is past its retention by age or by number.
    newest = sql.row(
        step.db,
        "SELECT finished_at, number FROM job WHERE finished_at IS NOT NULL"
        " ORDER BY finished_at DESC, number DESC LIMIT 1 OFFSET ?",
        (keep_jobs,),
    )
    horizon = max((ended_before, step.number("last_job")), newest or (0, 0))
    # A parent's jobs go when all of them have ended and the last one is past its retention too.
    numbers = sql.rows(
        step.db,
        "SELECT number FROM job WHERE finished_at IS NOT NULL AND (finished_at, number) <= (?1, ?2)"
        " AND (parent IS NULL OR NOT EXISTS (SELECT 1 FROM job AS other WHERE other.parent = job.parent"
        "      AND (other.finished_at IS NULL OR (other.finished_at, other.number) > (?1, ?2))))"
        " ORDER BY finished_at, number LIMIT ?3",
        (*horizon, step.bounds.portion + 1),
    )
    rows = [by_number(step.db, number) for (number,) in numbers[: step.bounds.portion]]
    for row in rows:
        _forget_job(step, row)
    return [row.id for row in rows], len(numbers) > step.bounds.portion


def _forget_job(step: Step, row: JobRow) -> None:
    step.db.execute("DELETE FROM job WHERE number = ?", (row.number,))
    step.db.execute("DELETE FROM content WHERE number = ?", (row.number,))
    if row.parent is not None:
        step.db.execute(
            "DELETE FROM parent WHERE name = ?1 AND NOT EXISTS (SELECT 1 FROM job WHERE parent = ?1)", (row.parent,)
        )


def _forget_events(step: Step, keep_events: int) -> bool:
    newest: int = sql.value(step.db, "SELECT coalesce(max(id), 0) FROM event")
    return _delete(step, "event", "id", "id <= ?", (newest - max(keep_events, 1),))


def _sum_up_figures(step: Step, before_minute: int) -> bool:
    rows = sql.rows(
        step.db,
        "SELECT minute, name, count, total_ms FROM figure WHERE minute > 0 AND minute < ?"
        " ORDER BY minute, name LIMIT ?",
        (before_minute, step.bounds.portion + 1),
    )
    for minute, name, count, total_ms in rows[: step.bounds.portion]:
        step.db.execute("DELETE FROM figure WHERE minute = ? AND name = ?", (minute, name))
        group = own_group_of(name)
        if group is not None and step.groups.get(group).limit is None:
            continue
        step.db.execute(
            "INSERT INTO figure VALUES (0, ?, ?, ?) ON CONFLICT DO UPDATE"
            " SET count = count + excluded.count, total_ms = total_ms + excluded.total_ms",
            (name, count, total_ms),
        )
    return len(rows) > step.bounds.portion


def _forget_users(step: Step, oldest_kept: int) -> bool:
    return _delete(
        step,
        "user",
        "last_job, name",
        "NOT pinned AND last_job < ? AND NOT EXISTS (SELECT 1 FROM quota WHERE quota.user = user.name)",
        (oldest_kept,),
    )


def _forget_limits(step: Step, oldest_kept: int) -> bool:
    names = sql.rows(
        step.db,
        "SELECT name FROM grp WHERE source IN (?, ?) AND last_job < ?"
        " AND NOT EXISTS (SELECT 1 FROM slot WHERE slot.grp = grp.name AND token IS NOT NULL)"
        " AND NOT EXISTS (SELECT 1 FROM job WHERE parked = grp.name)"
        " AND NOT EXISTS (SELECT 1 FROM ticket WHERE parked = grp.name) ORDER BY last_job, name LIMIT ?",
        (int(Source.TIER), int(Source.SUBMIT), oldest_kept, step.bounds.portion + 1),
    )
    for (name,) in names[: step.bounds.portion]:
        group = step.groups.get(name)
        group.limit = group.source = None
        step.groups.store(group)
        step.db.executemany(
            "DELETE FROM figure WHERE minute = 0 AND name = ?", [(figure,) for figure in figures_of(name)]
        )
    return len(names) > step.bounds.portion


def _delete(step: Step, table: str, key: str, where: str, bindings: tuple[int, ...]) -> bool:
    """Delete one portion of the rows that fit, in the order of their key, and tell whether there are more."""
    keys = sql.rows(
        step.db, f"SELECT {key} FROM {table} WHERE {where} ORDER BY {key} LIMIT {step.bounds.portion + 1}", bindings
    )
    columns = " AND ".join(f"{column} = ?" for column in key.split(", "))
    step.db.executemany(f"DELETE FROM {table} WHERE {columns}", keys[: step.bounds.portion])
    return len(keys) > step.bounds.portion
