"""Jobs that have not started by their `start_by`. The rule is in `policy/start_by.py`.

A counter for each of the two scales is a time before which no job is overdue. So most steps read nothing for this.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from qo.job import JobError, State
from qo.policy.days import day_of
from qo.policy.lifecycle import check_transition
from qo.store.sqlite.shared import sql
from qo.store.sqlite.shared.counted_time import steady_now
from qo.store.sqlite.shared.lease import end_job
from qo.store.sqlite.shared.quota import charge, move_forward
from qo.store.sqlite.shared.rows import JobRow, save, select
from qo.store.sqlite.shared.step import NEVER, Step

Scale = Literal["start_by", "steady_start_by"]
"""The column, which also names the scale."""


def note_start_by(step: Step, row: JobRow) -> None:
    """Note that the job waits and has never started."""
    _note(step, "start_by", row.start_by)
    _note(step, "steady_start_by", row.steady_start_by)


def _note(step: Step, scale: Scale, at: int | None) -> None:
    if at is not None and at < step.number(f"soonest_{scale}"):
        step.set_counter(f"soonest_{scale}", at)


def drop_start_by(step: Step, row: JobRow) -> None:
    if row.start_by is not None or row.steady_start_by is not None:
        row.start_by = row.steady_start_by = None
        save(step.writes, row, "start_by", "steady_start_by")
        step.writes.add("content", "UPDATE content SET overdue_message = NULL WHERE number = ?", (row.number,))


def is_overdue(step: Step, row: JobRow) -> bool:
    """Whether a job in line must not start any more."""
    if row.steady_start_by is not None:
        return row.started_at is None and row.steady_start_by <= steady_now(step)
    return row.start_by is not None and row.started_at is None and row.start_by <= step.now


def fail_overdue(step: Step, row: JobRow) -> None:
    """Fail a job that has not started in time. The caller then gives its quota back, together with that of others."""
    check_transition(row.id, State(row.state), State.FAILED)
    message = sql.value(step.db, "SELECT overdue_message FROM content WHERE number = ?", (row.number,))
    end_job(step, row, State.FAILED, error=JobError(message=message))


def give_quota_back(step: Step, rows: Iterable[JobRow]) -> bool:
    """Give back the quota of jobs that ended without a start, if their days are not over, and move the deferred jobs of
    their users forward. Returns whether there was any."""
    refunded: set[str] = set()
    for row in rows:
        if row.user is not None and row.quota_day is not None and row.quota_day >= day_of(step.now):
            charge(step, row.user, row.quota_day, -1)
            row.quota_day = None
            save(step.writes, row, "quota_day")
            refunded.add(row.user)
    for user in sorted(refunded):
        move_forward(step, user, _daily_quota(step, user))
    return bool(refunded)


def _daily_quota(step: Step, user: str) -> int | None:
    quota: int | None = sql.value(step.db, "SELECT standing ->> 'daily_quota' FROM user WHERE name = ?", (user,))
    return quota


def fail_overdue_jobs(step: Step) -> tuple[list[str], bool]:
    """Fail one portion of the overdue jobs; their ids, and whether that was all."""
    found = [
        *((row.start_by or 0, row.number, row) for row in _overdue(step, "start_by", step.now)),
        *((_on_the_clock(step, row), row.number, row) for row in _overdue(step, "steady_start_by", steady_now(step))),
    ]
    if not found:
        return [], True
    portion = [row for _, _, row in sorted(found, key=lambda each: each[:2])][: step.bounds.portion]
    for row in portion:
        fail_overdue(step, row)
    give_quota_back(step, portion)
    return [row.id for row in portion], len(portion) == len(found)


def _overdue(step: Step, scale: Scale, now: int) -> list[JobRow]:
    if now < step.number(f"soonest_{scale}"):
        return []
    waits = f"{scale} IS NOT NULL AND started_at IS NULL AND finished_at IS NULL"
    portion = step.bounds.portion + 1
    found = list(select(step.db, f"{waits} AND {scale} <= ? ORDER BY {scale}, number LIMIT ?", (now, portion)))
    if not found:
        soonest = sql.value(step.db, f"SELECT min({scale}) FROM job WHERE {waits}")
        step.set_counter(f"soonest_{scale}", NEVER if soonest is None else soonest)
    return found


def _on_the_clock(step: Step, row: JobRow) -> int:
    return (row.steady_start_by or 0) + step.number("fallen_ms")
