"""A user's daily quota: charge it, defer a job to a later day, move deferred jobs forward when there is room."""

from __future__ import annotations

from qo.event import RESCHEDULED
from qo.policy.days import add_due_time, day_of, midnight
from qo.store.sqlite.shared import sql
from qo.store.sqlite.shared.line import join_all
from qo.store.sqlite.shared.rows import JobRow, find, save, select
from qo.store.sqlite.shared.step import Step

CHARGE = sql.Insert("quota", columns=3, on_conflict="ON CONFLICT DO UPDATE SET used = used + excluded.used")


def used_on(step: Step, user: str, day: int) -> int:
    used = step.quota_used.get((user, day))
    if used is None:
        used = sql.value(step.db, "SELECT used FROM quota WHERE user = ? AND day = ?", (user, day)) or 0
        step.quota_used[user, day] = used
    return used


def charge(step: Step, user: str, day: int, change: int = 1) -> None:
    step.writes.add("quota", CHARGE, (user, day, change))
    if change > 0 and (user, day) in step.quota_used:
        step.quota_used[user, day] += change
    if change < 0:
        step.quota_used.pop((user, day), None)
        step.db.execute("DELETE FROM quota WHERE user = ? AND day = ? AND used <= 0", (user, day))


def first_day_with_room(step: Step, user: str, day: int, quota: int) -> int:
    """The first day from `day` on that has room."""
    for charged, used in step.db.execute(
        "SELECT day, used FROM quota WHERE user = ? AND day >= ? ORDER BY day", (user, day)
    ):
        if charged > day or used < quota:
            break
        day += 1
    return day


def defer(step: Step, row: JobRow, day: int, time: int) -> None:
    """Give a job a due time on this day, after all other deferred jobs of the user."""
    others = list(select(step.db, "deferred AND user = ? AND quota_day = ? ORDER BY run_at", (row.user, day)))
    times = add_due_time([other.run_at for other in others if other.run_at is not None], time)
    for other, dealt in zip(others, times, strict=False):
        if other.run_at != dealt:
            other.run_at = dealt
            other.due_at = None if other.due_at is None else dealt
            save(step.writes, other, "run_at", "due_at")
    row.run_at = times[-1]
    row.steady_at = None
    row.quota_day = day
    row.deferred = True


def move_forward(step: Step, user: str, quota: int | None) -> None:
    """Move the user's deferred jobs forward into days that have room, the earliest job first."""
    if not quota:
        return
    today = day = day_of(step.now)
    while True:
        day = first_day_with_room(step, user, day, quota)
        row = find(step.db, "deferred AND user = ? AND quota_day > ? ORDER BY run_at", (user, day))
        if row is None:
            return
        assert row.quota_day is not None
        charge(step, user, row.quota_day, -1)
        charge(step, user, day)
        if day == today:
            _bring_to_today(step, row, today)
        else:
            _bring_to_day(step, row, day)


def _bring_to_today(step: Step, row: JobRow, today: int) -> None:
    row.quota_day = today
    row.run_at = step.now
    row.deferred = False
    if row.due_at is None:
        save(step.writes, row, "quota_day", "run_at", "deferred")
        step.event(RESCHEDULED, row.id, {"run_at": row.run_at})
    else:
        save(step.writes, row, "quota_day", "run_at")
        join_all(step, [row])


def _bring_to_day(step: Step, row: JobRow, day: int) -> None:
    assert row.run_at is not None
    assert row.quota_day is not None
    defer(step, row, day, midnight(day) + row.run_at - midnight(row.quota_day))
    row.due_at = None if row.due_at is None else row.run_at
    save(step.writes, row, "quota_day", "run_at", "due_at")
    step.event(RESCHEDULED, row.id, {"run_at": row.run_at})
