"""catch_up: deal with what has come due.

Writes   closed groups open, dropped tickets, ended leases, jobs that come back, fail or join
Answers  the jobs whose lease was over, then the overdue ones, then those that joined
Events   lease_lost and the new state of each; failed; queued
"""

from __future__ import annotations

from collections.abc import Iterator

from qo.policy.groups import within_portion
from qo.store.sqlite.shared import sql
from qo.store.sqlite.shared.counted_time import counted_now, note_time, steady_now
from qo.store.sqlite.shared.hand_over import drop_ticket, hand_over
from qo.store.sqlite.shared.lease import RAN_OUT, lose_leases
from qo.store.sqlite.shared.line import in_joining_order, join_all
from qo.store.sqlite.shared.overdue import fail_overdue_jobs
from qo.store.sqlite.shared.rows import JobRow, select
from qo.store.sqlite.shared.step import Step
from qo.values import Portion

ANY_JOB_DUE = (
    "(EXISTS (SELECT 1 FROM job WHERE due_at IS NOT NULL AND steady_at IS NULL AND due_at <= ?1)"
    " OR EXISTS (SELECT 1 FROM job WHERE due_at IS NOT NULL AND steady_at IS NOT NULL AND due_at <= ?2))"
)
"""?1 is the store's time, ?2 the steady one."""


def catch_up(step: Step) -> Portion:
    note_time(step)
    expired: list[str] = []
    all_ended = True
    if _has_anything_ended(step):
        opened_all = _open_closed_groups(step)
        dropped_all = _drop_tickets(step)
        expired, expired_all = _end_leases(step)
        all_ended = opened_all and dropped_all and expired_all
    overdue, failed_all = fail_overdue_jobs(step)
    joined, joined_all = join_due(step)
    hand_over(step)
    return Portion(ids=(*expired, *overdue, *joined), more=not (all_ended and failed_all and joined_all))


def _has_anything_ended(step: Step) -> bool:
    """One look instead of three, because mostly there is nothing."""
    found: int = sql.value(
        step.db,
        "SELECT EXISTS (SELECT 1 FROM lease WHERE expires_at <= ?1) OR EXISTS (SELECT 1 FROM ticket WHERE"
        " expires_at <= ?1) OR EXISTS (SELECT 1 FROM grp WHERE closed_until <= ?2)",
        (counted_now(step), steady_now(step)),
    )
    return bool(found)


def join_due(step: Step) -> tuple[list[str], bool]:
    """Let due jobs join the line, one portion; their ids, and whether that was all."""
    if not _is_any_job_due(step):
        return [], True
    rows = in_joining_order([*_due(step, "steady_at IS NULL", step.now), *_due_by_span(step)])
    portion = rows[: within_portion(step.bounds.portion, (len(step.groups_of(row)) for row in rows))]
    join_all(step, portion)
    return [row.id for row in portion], len(portion) == len(rows)


def _is_any_job_due(step: Step) -> bool:
    found: int = sql.value(step.db, f"SELECT {ANY_JOB_DUE}", (step.now, steady_now(step)))
    return bool(found)


def _due_by_span(step: Step) -> Iterator[JobRow]:
    for row in _due(step, "steady_at IS NOT NULL", steady_now(step)):
        assert row.due_at is not None
        row.due_at += step.number("fallen_ms")  # by the store's clock, as those that wait for a time
        yield row


def _due(step: Step, kind: str, now: int) -> Iterator[JobRow]:
    return select(
        step.db,
        f"due_at IS NOT NULL AND {kind} AND due_at <= ? ORDER BY due_at, parent_order, phase, number LIMIT ?",
        (now, step.bounds.portion + 1),
    )


def _open_closed_groups(step: Step) -> bool:
    closed = sql.rows(
        step.db,
        "SELECT name FROM grp WHERE closed_until <= ? ORDER BY closed_until, name LIMIT ?",
        (steady_now(step), step.bounds.portion + 1),
    )
    for (name,) in closed[: step.bounds.portion]:
        group = step.groups.get(name)
        group.closed_until = None
        step.groups.store(group)
    return len(closed) <= step.bounds.portion


def _drop_tickets(step: Step) -> bool:
    ended = sql.rows(
        step.db,
        "SELECT holder, groups FROM ticket WHERE expires_at <= ? ORDER BY expires_at, key LIMIT ?",
        (counted_now(step), step.bounds.portion + 1),
    )
    for holder, groups in ended[: step.bounds.portion]:
        drop_ticket(step, holder, groups)
    return len(ended) <= step.bounds.portion


def _end_leases(step: Step) -> tuple[list[str], bool]:
    ended = sql.rows(
        step.db,
        "SELECT token, holder, job, (SELECT count(*) FROM slot WHERE slot.token = lease.token) FROM lease"
        " WHERE expires_at <= ? ORDER BY expires_at, token LIMIT ?",
        (counted_now(step), step.bounds.portion + 1),
    )
    portion = ended[: within_portion(step.bounds.portion, (held for *_, held in ended))]
    lost = lose_leases(step, [(token, holder, job) for token, holder, job, _ in portion], RAN_OUT)
    return lost, len(portion) == len(ended)
