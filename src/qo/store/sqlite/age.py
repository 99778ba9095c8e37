"""age, fail_unconfirmed, take_reminders: what time does to jobs that wait.

Writes   order keys; confirming jobs that fail; reminders handed out
Answers  the jobs dealt with, at most one portion
Events   aged; failed
"""

from __future__ import annotations

from collections.abc import Sequence

from qo.event import AGED
from qo.job import JobError, State, moment
from qo.policy.groups import within_portion
from qo.policy.ordering import aged_priority, order_key, place_of, priority_of
from qo.store.sqlite.hand_over import hand_over
from qo.store.sqlite.lease import end_job
from qo.store.sqlite.line import LINE_FIELDS, enter_again
from qo.store.sqlite.rows import JobRow, save, select
from qo.store.sqlite.step import Step
from qo.store.values import Portion, Reminder


def age(step: Step, *, period_ms: int) -> Portion:
    rows = list(
        select(
            step.db,
            "aged_at IS NOT NULL AND aged_at <= ? ORDER BY aged_at, number LIMIT ?",
            (step.now - period_ms, step.bounds.portion + 1),
        )
    )
    portion = rows[: within_portion(step.bounds.portion, (len(step.groups_of(row)) for row in rows))]
    aged = [row.id for row in portion if _age(step, row)]
    hand_over(step)
    return Portion(ids=tuple(aged), more=len(portion) < len(rows))


def _age(step: Step, row: JobRow) -> bool:
    assert row.key is not None
    priority = aged_priority(priority_of(row.key))
    row.aged_at = step.now
    if priority is None:
        save(step.writes, row, "aged_at")
        return False
    enter_again(step, row, order_key(priority, place_of(row.key)))
    save(step.writes, row, *LINE_FIELDS)
    step.event(AGED, row.id, {"priority": priority})
    return True


def fail_unconfirmed(step: Step, *, after_ms: int, error: JobError) -> Portion:
    rows = list(
        select(
            step.db,
            "confirming_at IS NOT NULL AND confirming_at <= ? ORDER BY confirming_at, number LIMIT ?",
            (step.now - after_ms, step.bounds.portion + 1),
        )
    )
    portion = rows[: step.bounds.portion]
    for row in portion:
        end_job(step, row, State.FAILED, error=error)
    hand_over(step)
    return Portion(ids=tuple(row.id for row in portion), more=len(rows) > step.bounds.portion)


def take_reminders(step: Step, *, ages_ms: Sequence[int]) -> tuple[Reminder, ...]:
    if not ages_ms:
        return ()
    due_since = [step.now - age_ms for age_ms in sorted(ages_ms)]
    # The one that follows those it has had is due.
    is_due = " OR ".join(f"(reminded = {had} AND confirming_at <= ?)" for had in range(len(due_since)))
    rows = select(
        step.db,
        f"confirming_at IS NOT NULL AND ({is_due}) ORDER BY confirming_at, number LIMIT ?",
        (*due_since, step.bounds.portion),
    )
    reminders: list[Reminder] = []
    for row in rows:
        assert row.confirming_at is not None
        while row.reminded < len(due_since) and row.confirming_at <= due_since[row.reminded]:
            if len(reminders) == step.bounds.portion:
                return tuple(reminders)
            row.reminded += 1
            save(step.writes, row, "reminded")
            at = moment(row.confirming_at)
            reminders.append(Reminder(job_id=row.id, number=row.reminded, confirmation_required_at=at))
    return tuple(reminders)
