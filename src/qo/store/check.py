"""What a store refuses at its door, before anything is changed.

Every function returns when its input is allowed and otherwise raises with one sentence: the field, its value,
what is allowed. Stores call these first thing; the queue may call them too, so that one bad submission is
told to its own caller and does not take down the batch it would have travelled in.

A submit has some thirty microseconds in all, so each check is a comparison or two when the value is good, and
the values' types, which msgspec does not look at when they are made in Python, are checked along the way.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from qo.errors import InvalidSubmit, InvalidValue, SubmitRefused
from qo.job import State
from qo.store.check_value import (
    MAX_QUOTA_JITTER_MS,
    MAX_SPAN_MS,
    MAX_TIME_MS,
    check_average,
    check_by,
    check_bytes,
    check_closed,
    check_finite,
    check_group,
    check_group_count,
    check_job_error,
    check_name,
    check_number,
    check_outcome_state,
    check_own_groups,
    check_payload,
    check_priority,
    check_result,
    check_source,
    check_standing,
    check_task,
    check_text,
    listed,
    shown,
)
from qo.store.values import (
    Advance,
    Average,
    Limit,
    Outcome,
    Registration,
    Renewal,
    Source,
    Standing,
    Submission,
    Ticket,
)


def check_submission(submission: Submission) -> None:
    try:
        _check_submission(submission)
    except SubmitRefused:
        raise
    except InvalidValue as error:
        raise InvalidSubmit(str(error)) from None


def _check_submission(submission: Submission) -> None:
    check_name("id", submission.id)
    check_task(submission.task)
    check_payload(submission.payload)
    if submission.priority is not None:
        check_priority(submission.priority)
    if submission.user is not None:
        check_name("user", submission.user)
    if submission.project is not None:
        check_name("project", submission.project)
    if submission.standing is not None:
        check_standing(submission.standing)
    if submission.parent is not None:
        check_name("parent", submission.parent)
    if submission.phase is not None:
        check_number("phase", submission.phase, 1)
        if submission.parent is None:
            raise InvalidValue(
                f"phase is {submission.phase} but parent is not given; name the parent, or leave phase out."
            )
    if submission.groups:
        check_own_groups(submission.groups)
    if submission.limits:
        check_limits(submission.limits)
    if submission.unique is not None:
        check_name("unique", submission.unique)
    if submission.run_at_ms is not None:
        check_number("run_at_ms", submission.run_at_ms, 0, MAX_TIME_MS)
    if submission.delay_ms is not None:
        check_number("delay_ms", submission.delay_ms, 0, MAX_SPAN_MS)
        if submission.run_at_ms is not None:
            raise InvalidValue(
                f"delay_ms is {submission.delay_ms} and run_at_ms is {submission.run_at_ms}; give one of the two."
            )
    if submission.cap is not None:
        check_number("cap", submission.cap, 0)
    if submission.timeout_ms is not None:
        check_number("timeout_ms", submission.timeout_ms, 1, MAX_SPAN_MS)
    check_number("quota_jitter_ms", submission.quota_jitter_ms, 0, MAX_QUOTA_JITTER_MS)
    if submission.max_attempts is not None:
        check_number("max_attempts", submission.max_attempts, 1)
    check_by(submission.by)


def check_claim(*, worker: str, tasks: Sequence[str], places: int, lease_ms: int, claim_id: str) -> None:
    check_name("worker", worker)
    for task in listed("tasks", tasks):
        check_task(task)
    check_number("places", places, 1)
    check_number("lease_ms", lease_ms, 1, MAX_SPAN_MS)
    check_name("claim_id", claim_id)


def check_renewals(
    renewals: Sequence[Renewal], *, worker: str | None, instance: str = "", tickets: Sequence[str]
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


def check_advance(advance: Advance) -> None:
    check_name("job_id", advance.job_id)
    check_name("token", advance.token)
    if advance.stage is not None:
        check_name("stage", advance.stage)
    if advance.progress is not None:
        check_finite("progress.done", advance.progress.done)
        if advance.progress.total is not None:
            check_finite("progress.total", advance.progress.total)
        check_text("progress.text", advance.progress.text)
    check_bytes("checkpoint", advance.checkpoint)
    if advance.iteration is not None:
        check_number("iteration", advance.iteration, 0)
    check_text("message", advance.message)


def check_outcome(outcome: Outcome) -> None:
    check_name("job_id", outcome.job_id)
    check_name("token", outcome.token)
    check_outcome_state(outcome.state)
    if outcome.state is State.SCHEDULED and outcome.retry_after_ms is None:
        raise InvalidValue("retry_after_ms is not given; the state scheduled needs the span until the next attempt.")
    if outcome.retry_after_ms is not None:
        check_number("retry_after_ms", outcome.retry_after_ms, 0, MAX_SPAN_MS)
    if outcome.result is not None:
        check_result(outcome.result)
    if outcome.error is not None:
        check_job_error(outcome.error)
    check_text("message", outcome.message)
    if outcome.closed:
        check_closed(outcome.closed)
    for average in outcome.averages:
        check_average(average)


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


def check_job(job_id: str, *, by: str | None) -> None:
    """Which job a person decides about."""
    check_name("job_id", job_id)
    check_by(by)


def check_cancel(*, job_id: str | None, parent: str | None, message: str | None, by: str | None) -> None:
    check_target(job_id=job_id, parent=parent, by=by)
    check_text("message", message)


def check_move(job_id: str, *, before: str | None, after: str | None, by: str | None) -> None:
    check_name("job_id", job_id)
    if (before is None) == (after is None):
        given = "neither" if before is None else "both"
        raise InvalidValue(f"{given} of before and after are given; name exactly one of them.")
    field, neighbour = ("before", before) if before is not None else ("after", after)
    check_name(field, neighbour)
    if neighbour == job_id:
        raise InvalidValue(f"{field} is {shown(neighbour)}, the job itself; name another job in line.")
    check_by(by)


def check_tier(user: str, standing: Standing, *, by: str | None) -> None:
    check_name("user", user)
    check_standing(standing)
    check_by(by)


def check_revoke(group: str, slot_id: int, *, by: str | None) -> None:
    check_group(group)
    check_number("slot_id", slot_id, 0)
    check_by(by)


def check_ticket(ticket: Ticket) -> None:
    check_name("holder", ticket.holder)
    groups = listed("groups", ticket.groups)
    if not groups:
        raise InvalidValue("groups is empty; name at least one group to take a slot in.")
    check_group_count("groups", groups)
    for group in groups:
        check_group(group)
    if len(set(groups)) < len(groups):
        raise InvalidValue(f"groups is {shown(groups)}; name each once, a caller takes one slot in each.")
    check_number("lease_ms", ticket.lease_ms, 1, MAX_SPAN_MS)
    check_number("wait_ms", ticket.wait_ms, 0, MAX_SPAN_MS)
    check_priority(ticket.priority)
    if ticket.worker is not None:
        check_name("worker", ticket.worker)


def check_release(holders: Sequence[tuple[str, str | None]]) -> None:
    for holder, token in holders:
        check_name("holder", holder)
        if token is not None:
            check_name("token", token)


def check_registration(registration: Registration) -> None:
    check_name("name", registration.name)
    check_instance("instance", registration.instance)
    if registration.replaces is not None:
        check_instance("replaces", registration.replaces)
    named = set()
    for task in registration.tasks:
        check_task(task.name)
        if task.name in named:
            raise InvalidValue(f"tasks names {shown(task.name)} twice; give each task of a worker once.")
        named.add(task.name)
        check_own_groups(task.groups, of=task.name)
        if task.limit is not None:
            check_number("limit of task", task.limit, 0, of=task.name)
        if task.max_attempts is not None:
            check_number("max_attempts of task", task.max_attempts, 1, of=task.name)
    # A worker that says goodbye has no tasks, and then its places mean nothing.
    check_number("places", registration.places, 1 if named else 0)
    check_limits(registration.limits, exactly=Source.CONFIGURATION)
    check_number("lifetime_ms", registration.lifetime_ms, 1, MAX_SPAN_MS)
    check_number("lease_ms", registration.lease_ms, 1, MAX_SPAN_MS)
    if registration.host is not None:
        check_name("host", registration.host)
    if registration.pid is not None:
        check_number("pid", registration.pid, 0)


def check_instance(field: str, instance: str) -> None:
    """The id of one worker among all that ever had its name; empty for who makes none."""
    if instance != "":
        check_name(field, instance)


def check_limits(limits: Sequence[Limit], *, exactly: Source | None = None) -> None:
    if exactly is not None:
        check_source(exactly)
    for limit in limits:
        check_group(limit.group)
        check_number("limit of group", limit.slots, 0, of=limit.group)
        check_source(limit.source)
        if exactly is not None and limit.source != exactly:
            raise InvalidValue(
                f"limits has one of group {shown(limit.group)} from the source {limit.source.name.lower()}; "
                f"here all of them come from the {exactly.name.lower()}."
            )


def check_removal(group: str, *, only: Source | None, by: str | None) -> None:
    check_group(group)
    if only is not None:
        check_source(only)
    check_by(by)


def check_upkeep(**numbers: int) -> None:
    """Spans (`..._ms`) and counts that upkeep is called with; only what is kept may be 0."""
    for field, value in numbers.items():
        lowest = 0 if field.startswith("keep") else 1
        check_number(field, value, lowest, MAX_SPAN_MS if field.endswith("_ms") else MAX_TIME_MS)


def check_reminder_ages(ages_ms: Sequence[int]) -> None:
    for age in ages_ms:
        check_number("ages_ms", age, 0, MAX_SPAN_MS)
    if list(ages_ms) != sorted(set(ages_ms)):
        raise InvalidValue(f"ages_ms is {shown(ages_ms)}; give each age once, the shortest first.")


def check_page(limit: int) -> None:
    """How much a reading operation may answer."""
    check_number("limit", limit, 1)


def check_cursor(after: int) -> None:
    check_number("after", after, 0, 2**63 - 1)


def check_observations(observations: Sequence[tuple[Average, float]]) -> None:
    for average, value in observations:
        check_average(average)
        check_finite("value", value)


def check_estimate_errors(task: str, ratios: Sequence[float], *, keep: int) -> None:
    check_task(task)
    for ratio in ratios:
        check_finite("ratios", ratio)
    check_number("keep", keep, 1)


def check_record(name: str, value: object, *, version: int) -> None:
    check_name("name", name)
    check_number("version", version, 0, 2**63 - 2)
    try:
        msgspec.json.encode(value)
    except (TypeError, ValueError, UnicodeError) as error:
        raise InvalidValue(f"value is {shown(value)}, which is not JSON ({error}); use what JSON can hold.") from None
