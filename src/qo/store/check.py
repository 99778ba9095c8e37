"""What a store refuses before anything is changed: a check for each operation, with the operation's own parameters.

A check returns when the input is allowed. Otherwise it raises with one sentence: the field, its value, what is allowed.

A submit has some thirty microseconds in all, so a check is a comparison or two when the value is good. It also looks at
the types of the values, which msgspec does not do when they are made in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Unpack

import msgspec

from qo.errors import InvalidValue
from qo.policy.checks import (
    MAX_SPAN_MS,
    MAX_TIME_MS,
    READINESS_TASK,
    check_average,
    check_by,
    check_finite,
    check_group,
    check_job_error,
    check_name,
    check_number,
    check_priority,
    check_source,
    check_standing,
    check_task,
    check_text,
    listed,
    shown,
)
from qo.store.check_values import (
    check_advance,
    check_instance,
    check_limits,
    check_outcome,
    check_registration,
    check_submission,
    check_ticket,
)
from qo.store.paging import Cursor, EndedCursor
from qo.values import (
    Advance,
    Audited,
    Average,
    Limit,
    Outcome,
    Renewal,
    Source,
    Standing,
    Submission,
    Ticket,
    Unlimited,
    UpkeepRules,
    Wanted,
)

IDS_AT_MOST = 1000


def check_claim(
    *, worker: str, tasks: Sequence[str], capacity: int, lease_ms: int, claim_id: str, suspects: int | None = None
) -> None:
    check_name("worker", worker)
    for task in listed("tasks", tasks):
        if task != READINESS_TASK:  # no job has it, but a server claims it
            check_task(task)
    check_number("capacity", capacity, 1)
    check_number("lease_ms", lease_ms, 1, MAX_SPAN_MS)
    check_name("claim_id", claim_id)
    if suspects is not None:
        check_number("suspects", suspects, 0)


def check_renewals(
    renewals: Sequence[Renewal], *, worker: str | None = None, instance: str = "", tickets: Sequence[str] = ()
) -> None:
    for renewal in renewals:
        check_name("holder", renewal.holder)
        check_name("token", renewal.token)
        check_number("lease_ms", renewal.lease_ms, 0, MAX_SPAN_MS)
        check_number("extend_ms", renewal.extend_ms, 0, MAX_SPAN_MS)
    if worker is not None:
        check_name("worker", worker)
    check_instance("instance", instance)
    for holder in listed("tickets", tickets):
        check_name("holder", holder)


def check_target(*, job_id: str | None, parent: str | None, by: str | None) -> None:
    """Whom a change is for: one job, or a parent as a whole."""
    if (job_id is None) == (parent is None):
        given = "neither" if job_id is None else "both"
        raise InvalidValue(f"{given} of job_id and parent are given; name exactly one of them.")
    if job_id is not None:
        check_name("job_id", job_id)
    if parent is not None:
        check_name("parent", parent)
    check_by(by)


def check_job(job_id: str, *, by: str | None = None) -> None:
    """Which job a person decides about."""
    check_name("job_id", job_id)
    check_by(by)


def check_set_priority(
    priority: int,
    *,
    job_id: str | None = None,
    parent: str | None = None,
    by: str | None = None,
    undoes: int | None = None,
) -> None:
    check_priority(priority)
    check_target(job_id=job_id, parent=parent, by=by)
    if parent is not None and undoes is not None:
        raise InvalidValue(f"undoes is {undoes}, which is the entry of one job; name that job instead of its parent.")
    check_undoes(undoes)


def check_undoes(undoes: int | None) -> None:
    if undoes is not None:
        check_number("undoes", undoes, 0, 2**53)


def check_cancel(
    *, job_id: str | None = None, parent: str | None = None, message: str | None = None, by: str | None = None
) -> None:
    check_target(job_id=job_id, parent=parent, by=by)
    check_text("message", message)


def check_move(
    job_id: str,
    *,
    before: str | None = None,
    after: str | None = None,
    by: str | None = None,
    undoes: int | None = None,
) -> None:
    check_name("job_id", job_id)
    if (before is None) == (after is None):
        given = "neither" if before is None else "both"
        raise InvalidValue(f"{given} of before and after are given; name exactly one of them.")
    field, neighbour = ("before", before) if before is not None else ("after", after)
    check_name(field, neighbour)
    if neighbour == job_id:
        raise InvalidValue(f"{field} is {shown(neighbour)}, the job itself; name another job in line.")
    check_by(by)
    check_undoes(undoes)


def check_tier(user: str, standing: Standing, *, by: str | None = None) -> None:
    check_name("user", user)
    check_standing(standing)
    check_by(by)


def check_set_paused(group: str, paused: bool, *, by: str | None = None, undoes: int | None = None) -> None:
    check_group(group)
    check_by(by)
    check_undoes(undoes)


def check_revoke(group: str, slot_id: int, *, force: bool = False, by: str | None = None) -> None:
    check_group(group)
    check_number("slot_id", slot_id, 0)
    check_by(by)


def check_release(holders: Sequence[tuple[str, str | None]]) -> None:
    for holder, token in holders:
        check_name("holder", holder)
        if token is not None:
            check_name("token", token)


def check_set_limits(
    limits: Sequence[Limit | Unlimited],
    *,
    exactly: Source | None = None,
    by: str | None = None,
    undoes: int | None = None,
) -> None:
    check_limits([limit for limit in limits if isinstance(limit, Limit)], exactly=exactly)
    for limit in limits:
        if isinstance(limit, Unlimited):
            check_group(limit.group)
            if limit.only is not None:
                check_source(limit.only)
    check_by(by)
    check_undoes(undoes)


def check_upkeep(rules: UpkeepRules) -> None:
    if rules.aging_period_ms is not None:
        check_number("aging_period_ms", rules.aging_period_ms, 1, MAX_SPAN_MS)
    if rules.unconfirmed_after_ms is not None:
        check_number("unconfirmed_after_ms", rules.unconfirmed_after_ms, 1, MAX_SPAN_MS)
        if rules.unconfirmed_error is None:
            raise InvalidValue("unconfirmed_error is not given; jobs that nobody confirms fail with it.")
        check_job_error(rules.unconfirmed_error)
    ages = rules.reminder_ages_ms
    for age in ages:
        check_number("reminder_ages_ms", age, 0, MAX_SPAN_MS)
    if list(ages) != sorted(set(ages)):
        raise InvalidValue(f"reminder_ages_ms is {shown(ages)}; give each age once, the shortest first.")
    if rules.keep is not None:
        check_number("keep.ms", rules.keep.ms, 0, MAX_SPAN_MS)
        check_number("keep.jobs", rules.keep.jobs, 0, MAX_TIME_MS)
        check_number("keep.events", rules.keep.events, 0, MAX_TIME_MS)
        check_number("keep.audit", rules.keep.audit, 0, MAX_TIME_MS)


def check_page(limit: int) -> None:
    """How much a reading operation may answer."""
    check_number("limit", limit, 1)


def check_jobs(
    *,
    ids: Sequence[str] | None = None,
    limit: int = 100,
    newest_first: bool = False,
    after: str | None = None,
    **wanted: Unpack[Wanted],
) -> None:
    check_page(limit)
    if wanted.get("ended"):
        EndedCursor.read(after)
    else:
        Cursor.read(after)
    if ids is None:
        return
    for job_id in listed("ids", ids):
        check_name("ids", job_id)
    if len(ids) > IDS_AT_MOST:
        raise InvalidValue(f"ids has {len(ids)} ids; name at most {IDS_AT_MOST} in one call.")


def check_line(*, limit: int, after: str | None = None, around: str | None = None) -> None:
    check_number("limit", limit, 0)
    Cursor.read(after)
    if around is not None:
        check_name("around", around)


def check_audit(*, subject: str | None = None, limit: int = 100, after: int | None = None) -> None:
    check_page(limit)
    if after is not None:
        check_cursor(after)


def check_events(
    after: int | None,
    *,
    kinds: Collection[str] | None = None,
    subjects: Collection[str] | None = None,
    limit: int = 1000,
    timeout_seconds: float = 0,
) -> None:
    if after is not None:
        check_cursor(after)
    check_page(limit)


def check_cursor(after: int) -> None:
    check_number("after", after, 0, 2**63 - 1)


def check_observe(
    observations: Sequence[tuple[Average, float]] = (),
    *,
    errors: Mapping[str, Sequence[float]] = MappingProxyType({}),
    keep_errors: int = 500,
) -> None:
    for average, value in observations:
        check_average(average)
        check_finite("value", value)
    for task, ratios in errors.items():
        check_task(task)
        for ratio in ratios:
            check_finite("errors", ratio)
    check_number("keep_errors", keep_errors, 1)


def check_promises(ranges: Mapping[str, tuple[int, int]]) -> None:
    for job_id, (lower_ms, upper_ms) in ranges.items():
        check_name("job_id", job_id)
        check_number("lower_ms", lower_ms, 0, MAX_SPAN_MS)
        check_number("upper_ms", upper_ms, lower_ms, MAX_SPAN_MS)


def check_record(name: str, value: object, *, version: int, audited: Audited | None = None) -> None:
    check_name("name", name)
    check_number("version", version, 0, 2**63 - 2)
    try:
        msgspec.json.encode(value)
    except (TypeError, ValueError, UnicodeError) as error:
        raise InvalidValue(f"value is {shown(value)}, which is not JSON ({error}); use what JSON can hold.") from None
    if audited is not None:
        check_name("action", audited.action)
        check_name("subject", audited.subject)
        check_by(audited.by)


# --- the table ------------------------------------------------------------------------------------------------


def check_submit(submissions: Sequence[Submission]) -> None:
    for submission in submissions:
        check_submission(submission)


def check_advances(advances: Sequence[Advance]) -> None:
    for advance in advances:
        check_advance(advance)


def check_finish(outcomes: Sequence[Outcome]) -> None:
    for outcome in outcomes:
        check_outcome(outcome)


def check_acquire(tickets: Sequence[Ticket]) -> None:
    for ticket in tickets:
        check_ticket(ticket)


CHECKS: Mapping[str, Callable[..., None]] = {
    "submit": check_submit,
    "claim": check_claim,
    "renew": check_renewals,
    "advance": check_advances,
    "finish": check_finish,
    "set_priority": check_set_priority,
    "move": check_move,
    "cancel": check_cancel,
    "retry": check_job,
    "confirm": check_job,
    "set_tier": check_tier,
    "set_limits": check_set_limits,
    "set_paused": check_set_paused,
    "revoke": check_revoke,
    "acquire": check_acquire,
    "release": check_release,
    "register": check_registration,
    "upkeep": check_upkeep,
    "observe": check_observe,
    "note_promises": check_promises,
    "put_record": check_record,
    "jobs": check_jobs,
    "line": check_line,
    "audit": check_audit,
    "events": check_events,
}
"""The check of each operation, with the operation's own parameters. An operation that is missing takes any input."""
