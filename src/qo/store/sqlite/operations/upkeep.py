"""upkeep: what time does to jobs that wait, and the removal of what is past its retention.

Writes   order keys; confirming jobs that fail; reminders handed out; what `forget.py` removes
Answers  what was done, and whether there is more
Events   aged; failed
"""

from __future__ import annotations

from collections.abc import Sequence

from qo.event import AGED
from qo.job import JobError, State, moment
from qo.policy.ordering import aged_priority, order_key, place_of, priority_of
from qo.store.sqlite.operations.forget import forget
from qo.store.sqlite.shared import sql
from qo.store.sqlite.shared.hand_over import hand_over
from qo.store.sqlite.shared.lease import end_job
from qo.store.sqlite.shared.line import LINE_FIELDS, enter_again
from qo.store.sqlite.shared.rows import JobRow, save, select
from qo.store.sqlite.shared.share import Share
from qo.store.sqlite.shared.step import Step
from qo.values import Reminder, UpkeepDone, UpkeepRules


def upkeep(step: Step, rules: UpkeepRules) -> UpkeepDone:
    share = Share(step.bounds.portion)
    aged = [] if rules.aging_period_ms is None else _age_jobs(step, rules.aging_period_ms, share)
    failed: list[str] = []
    if rules.unconfirmed_after_ms is not None and rules.unconfirmed_error is not None:
        failed = _fail_unconfirmed(step, rules.unconfirmed_after_ms, rules.unconfirmed_error, share)
    reminders = _take_reminders(step, rules.reminder_ages_ms, share) if rules.reminder_ages_ms else []
    forgotten = [] if rules.keep is None else forget(step, rules.keep, share)
    hand_over(step)
    return UpkeepDone(
        aged=tuple(aged),
        failed=tuple(failed),
        reminders=tuple(reminders),
        forgotten=tuple(forgotten),
        more=share.more,
    )


def _age_jobs(step: Step, period_ms: int, share: Share) -> list[str]:
    rows = list(
        select(
            step.db,
            "aged_at IS NOT NULL AND aged_at <= ? ORDER BY aged_at, number LIMIT ?",
            (step.now - period_ms, share.and_one),
        )
    )
    return [row.id for row in share.take(rows, lambda row: len(step.groups_of(row))) if _age(step, row)]


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


def _fail_unconfirmed(step: Step, after_ms: int, error: JobError, share: Share) -> list[str]:
    rows = list(
        select(
            step.db,
            "confirming_at IS NOT NULL AND confirming_at <= ? ORDER BY confirming_at, number LIMIT ?",
            (step.now - after_ms, share.and_one),
        )
    )
    late = share.take(rows)
    for row in late:
        end_job(step, row, State.FAILED, error=error)
    return [row.id for row in late]


def _take_reminders(step: Step, ages_ms: Sequence[int], share: Share) -> list[Reminder]:
    due_since = [step.now - age_ms for age_ms in ages_ms]
    # The reminder that follows those that the job has had is due.
    is_due = " OR ".join(f"(reminded = {had} AND confirming_at <= ?)" for had in range(len(due_since)))
    rows = select(
        step.db,
        f"confirming_at IS NOT NULL AND ({is_due}) ORDER BY confirming_at, number LIMIT ?",
        (*due_since, share.and_one),
    )
    due = [(row, number) for row in rows for number in _due_reminders(row, due_since)]
    reminders = []
    for row, number in share.take(due):
        assert row.confirming_at is not None
        row.reminded = number
        save(step.writes, row, "reminded")
        reminders.append(
            Reminder(
                job_id=row.id,
                number=number,
                confirmation_required_at=moment(row.confirming_at),
                contact=sql.value(step.db, "SELECT contact FROM content WHERE number = ?", (row.number,)),
            )
        )
    return reminders


def _due_reminders(row: JobRow, due_since: Sequence[int]) -> range:
    assert row.confirming_at is not None
    last = row.reminded
    while last < len(due_since) and row.confirming_at <= due_since[last]:
        last += 1
    return range(row.reminded + 1, last + 1)
