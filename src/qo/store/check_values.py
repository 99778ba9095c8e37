"""The checks of the values that operations are given: submissions, advances, outcomes, tickets, registrations, limits.

The queue and the worker call them too, so that one bad value fails its own caller and not the batch it would have
travelled in.
"""

from __future__ import annotations

from collections.abc import Sequence

from qo.errors import InvalidSubmit, InvalidValue, SubmitRefused
from qo.job import State
from qo.policy.checks import (
    MAX_QUOTA_JITTER_MS,
    MAX_SPAN_MS,
    MAX_TIME_MS,
    check_average,
    check_by,
    check_bytes,
    check_closed,
    check_contact,
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
from qo.values import (
    Advance,
    Limit,
    Outcome,
    Registration,
    Source,
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
    if submission.start_by_ms is not None or submission.start_within_ms is not None:
        _check_latest_start(submission)
    if submission.cap is not None:
        check_number("cap", submission.cap, 0)
    if submission.timeout_ms is not None:
        check_number("timeout_ms", submission.timeout_ms, 1, MAX_SPAN_MS)
    check_number("quota_jitter_ms", submission.quota_jitter_ms, 0, MAX_QUOTA_JITTER_MS)
    if submission.max_attempts is not None:
        check_number("max_attempts", submission.max_attempts, 1)
    if submission.trace is not None:
        check_name("trace", submission.trace)
    if submission.contact is not None:
        check_contact(submission.contact)
    check_by(submission.by)


def _check_latest_start(submission: Submission) -> None:
    at_ms, within_ms = submission.start_by_ms, submission.start_within_ms
    if at_ms is not None:
        check_number("start_by_ms", at_ms, 0, MAX_TIME_MS)
    if within_ms is not None:
        check_number("start_within_ms", within_ms, 1, MAX_SPAN_MS)
        if at_ms is not None:
            raise InvalidValue(f"start_by_ms is {at_ms} and start_within_ms is {within_ms}; give one of the two.")
    if submission.overdue_message is None:
        raise InvalidValue("overdue_message is not given; a job that has not started in time fails with it.")
    check_text("overdue_message", submission.overdue_message)


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
    # A worker that says goodbye has no tasks, and then its capacity means nothing.
    check_number("capacity", registration.capacity, 1 if named else 0)
    check_limits(registration.limits, exactly=Source.CONFIGURATION)
    check_number("lifetime_ms", registration.lifetime_ms, 1, MAX_SPAN_MS)
    check_number("lease_ms", registration.lease_ms, 1, MAX_SPAN_MS)
    check_number("turn_after", registration.turn_after, 0)
    if registration.host is not None:
        check_name("host", registration.host)
    if registration.pid is not None:
        check_number("pid", registration.pid, 0)


def check_instance(field: str, instance: str) -> None:
    """The id of one worker among all that ever had its name. It may be empty."""
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
