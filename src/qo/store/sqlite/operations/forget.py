"""The part of `upkeep` that removes what is past its retention: ended jobs, events, audit entries, figures, quota,
users, limits and workers, in this order.
"""

from __future__ import annotations

from qo.policy.days import day_of
from qo.policy.figures import DEPTH, figures_of, own_group_of
from qo.store.sqlite.shared import sql
from qo.store.sqlite.shared.rows import JobRow, by_number
from qo.store.sqlite.shared.share import Share
from qo.store.sqlite.shared.step import MINUTE_MS, Step
from qo.values import Keep, Source


def forget(step: Step, keep: Keep, share: Share) -> list[str]:
    """Answers the jobs."""
    forgotten = _forget_jobs(step, step.now - keep.ms, keep.jobs, share)
    _forget_events(step, keep.events, share)
    _delete(step, share, "audit", "id", "id <= ?", (step.number("last_audit") - keep.audit,))
    _sum_up_figures(step, (step.now - keep.ms) // MINUTE_MS, share)
    _delete(step, share, "quota", "day, user", "day < ?", (day_of(step.now),))
    oldest_kept = sql.value(step.db, "SELECT min(number) FROM job") or step.number("last_job") + 1
    _forget_users(step, oldest_kept, share)
    _forget_limits(step, oldest_kept, share)
    _delete(step, share, "worker", "name", "expires_at <= ?", (step.now - keep.ms,))
    return forgotten


def _forget_jobs(step: Step, ended_before: int, keep_jobs: int, share: Share) -> list[str]:
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
        (*horizon, share.and_one),
    )
    rows = [by_number(step.db, number) for (number,) in share.take(numbers)]
    for row in rows:
        _forget_job(step, row)
    return [row.id for row in rows]


def _forget_job(step: Step, row: JobRow) -> None:
    step.count_state(row.state, -1)
    step.db.execute("DELETE FROM job WHERE number = ?", (row.number,))
    step.db.execute("DELETE FROM content WHERE number = ?", (row.number,))
    if row.parent is not None:
        step.db.execute(
            "DELETE FROM parent WHERE name = ?1 AND NOT EXISTS (SELECT 1 FROM job WHERE parent = ?1)", (row.parent,)
        )


def _forget_events(step: Step, keep_events: int, share: Share) -> None:
    newest: int = sql.value(step.db, "SELECT coalesce(max(id), 0) FROM event")
    _delete(step, share, "event", "id", "id <= ?", (newest - max(keep_events, 1),))


def _sum_up_figures(step: Step, before_minute: int, share: Share) -> None:
    rows = sql.rows(
        step.db,
        "SELECT minute, name, count, total_ms FROM figure WHERE minute > 0 AND minute < ?"
        " ORDER BY minute, name LIMIT ?",
        (before_minute, share.and_one),
    )
    for minute, name, count, total_ms in share.take(rows):
        step.db.execute("DELETE FROM figure WHERE minute = ? AND name = ?", (minute, name))
        if name == DEPTH:
            continue
        group = own_group_of(name)
        if group is not None and step.groups.get(group).limit is None:
            continue
        step.db.execute(
            "INSERT INTO figure VALUES (0, ?, ?, ?) ON CONFLICT DO UPDATE"
            " SET count = count + excluded.count, total_ms = total_ms + excluded.total_ms",
            (name, count, total_ms),
        )


def _forget_users(step: Step, oldest_kept: int, share: Share) -> None:
    _delete(
        step,
        share,
        "user",
        "last_job, name",
        "NOT pinned AND last_job < ? AND NOT EXISTS (SELECT 1 FROM quota WHERE quota.user = user.name)",
        (oldest_kept,),
    )


def _forget_limits(step: Step, oldest_kept: int, share: Share) -> None:
    names = sql.rows(
        step.db,
        "SELECT name FROM grp WHERE source IN (?, ?) AND last_job < ?"
        " AND NOT EXISTS (SELECT 1 FROM slot WHERE slot.grp = grp.name AND token IS NOT NULL)"
        " AND NOT EXISTS (SELECT 1 FROM job WHERE parked = grp.name)"
        " AND NOT EXISTS (SELECT 1 FROM ticket WHERE parked = grp.name) ORDER BY last_job, name LIMIT ?",
        (int(Source.TIER), int(Source.SUBMIT), oldest_kept, share.and_one),
    )
    for (name,) in share.take(names):
        group = step.groups.get(name)
        group.limit = group.source = None
        step.groups.store(group)
        step.db.executemany(
            "DELETE FROM figure WHERE minute = 0 AND name = ?", [(figure,) for figure in figures_of(name)]
        )


def _delete(step: Step, share: Share, table: str, key: str, where: str, bindings: tuple[int, ...]) -> None:
    """Delete rows in the order of their key, as many as the step's share allows."""
    keys = sql.rows(step.db, f"SELECT {key} FROM {table} WHERE {where} ORDER BY {key} LIMIT {share.and_one}", bindings)
    columns = " AND ".join(f"{column} = ?" for column in key.split(", "))
    step.db.executemany(f"DELETE FROM {table} WHERE {columns}", share.take(keys))
