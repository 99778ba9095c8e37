"""What a store refuses at its door, before anything is changed.

Every function returns when its input is allowed and otherwise raises with one sentence: the field, its value,
what is allowed. Stores call these first thing; the queue may call them too, so that one bad submission is
told to its own caller and does not take down the batch it would have travelled in.

A submit has some thirty microseconds in all, so each check is a comparison or two when the value is good, and
the values' types, which msgspec does not look at when they are made in Python, are checked along the way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import isfinite
from reprlib import Repr

import msgspec

from qo.errors import InvalidPriority, InvalidSubmit, InvalidValue, PayloadTooLarge, SubmitRefused
from qo.job import JobError, State
from qo.policy.groups import GLOBAL, KINDS, PROVIDERS
from qo.policy.ordering import HIGHEST_PRIORITY, LOWEST_PRIORITY, MAX_BOOST
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

MAX_NAME_CHARACTERS = 200
MAX_PAYLOAD_BYTES = 1024 * 1024
MAX_QUOTA_JITTER_MS = 3_600_000
MAX_COUNT = 2**31 - 1
"""of slots, places, attempts, …: what every store's plain integer holds"""
MAX_SPAN_MS = 100 * 366 * 86_400_000
MAX_TIME_MS = 253_370_764_800_000
"""the year 9999, the last that Python can tell the time in"""

# A caller may name a provider, which is a thing; the other kinds follow from a job's own fields.
KINDS_OF_THE_STORE = frozenset(KINDS) - {"provider"}
RESERVED_NAMES = frozenset({GLOBAL, PROVIDERS})
OUTCOMES = frozenset({State.SUCCEEDED, State.FAILED, State.SCHEDULED, State.CONFIRMING, State.CANCELLED, State.QUEUED})

CONTROL_OR_SURROGATE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
NOT_STORABLE = re.compile("[\x00\ud800-\udfff]")  # neither PostgreSQL nor UTF-8 can hold these


# --- the operations -----------------------------------------------------------------------------------------


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
        _check_number("phase", submission.phase, 1)
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
        _check_number("run_at_ms", submission.run_at_ms, 0, MAX_TIME_MS)
    if submission.cap is not None:
        _check_number("cap", submission.cap, 0)
    if submission.timeout_ms is not None:
        _check_number("timeout_ms", submission.timeout_ms, 1, MAX_SPAN_MS)
    _check_number("quota_jitter_ms", submission.quota_jitter_ms, 0, MAX_QUOTA_JITTER_MS)
    _check_number("max_attempts", submission.max_attempts, 1)
    check_by(submission.by)


def check_claim(*, worker: str, tasks: Sequence[str], places: int, lease_ms: int, claim_id: str) -> None:
    check_name("worker", worker)
    for task in _listed("tasks", tasks):
        check_task(task)
    _check_number("places", places, 1)
    _check_number("lease_ms", lease_ms, 1, MAX_SPAN_MS)
    check_name("claim_id", claim_id)


def check_renewals(renewals: Sequence[Renewal], *, worker: str | None, tickets: Sequence[str]) -> None:
    for renewal in renewals:
        check_name("holder", renewal.holder)
        check_name("token", renewal.token)
        _check_number("lease_ms", renewal.lease_ms, 0, MAX_SPAN_MS)
        _check_number("extend_ms", renewal.extend_ms, 0, MAX_SPAN_MS)
    if worker is not None:
        check_name("worker", worker)
    for holder in _listed("tickets", tickets):
        check_name("holder", holder)


def check_advance(advance: Advance) -> None:
    check_name("job_id", advance.job_id)
    check_name("token", advance.token)
    if advance.stage is not None:
        check_name("stage", advance.stage)
    if advance.progress is not None:
        _check_finite("progress.done", advance.progress.done)
        if advance.progress.total is not None:
            _check_finite("progress.total", advance.progress.total)
        _check_text("progress.text", advance.progress.text)
    _check_bytes("checkpoint", advance.checkpoint)
    if advance.iteration is not None:
        _check_number("iteration", advance.iteration, 0)
    _check_text("message", advance.message)


def check_outcome(outcome: Outcome) -> None:
    check_name("job_id", outcome.job_id)
    check_name("token", outcome.token)
    _check_outcome_state(outcome.state)
    if outcome.state is State.SCHEDULED and outcome.retry_at_ms is None:
        raise InvalidValue("retry_at_ms is not given; the state scheduled needs the time of next attempt.")
    if outcome.retry_at_ms is not None:
        _check_number("retry_at_ms", outcome.retry_at_ms, 0, MAX_TIME_MS)
    if outcome.result is not None:
        _check_result(outcome.result)
    if outcome.error is not None:
        check_job_error(outcome.error)
    _check_text("message", outcome.message)
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


def check_move(job_id: str, *, before: str | None, after: str | None, by: str | None) -> None:
    check_name("job_id", job_id)
    if (before is None) == (after is None):
        given = "neither" if before is None else "both"
        raise InvalidValue(f"{given} of before and after are given; name exactly one of them.")
    field, neighbour = ("before", before) if before is not None else ("after", after)
    check_name(field, neighbour)
    if neighbour == job_id:
        raise InvalidValue(f"{field} is {_shown(neighbour)}, the job itself; name another job in line.")
    check_by(by)


def check_tier(user: str, standing: Standing, *, by: str | None) -> None:
    check_name("user", user)
    check_standing(standing)
    check_by(by)


def check_revoke(group: str, slot_id: int, *, by: str | None) -> None:
    check_group(group)
    _check_number("slot_id", slot_id, 0)
    check_by(by)


def check_ticket(ticket: Ticket) -> None:
    check_name("holder", ticket.holder)
    groups = _listed("groups", ticket.groups)
    if not groups:
        raise InvalidValue("groups is empty; name at least one group to take a slot in.")
    for group in groups:
        check_group(group)
    if len(set(groups)) < len(groups):
        raise InvalidValue(f"groups is {_shown(groups)}; name each once, a caller takes one slot in each.")
    _check_number("lease_ms", ticket.lease_ms, 1, MAX_SPAN_MS)
    _check_number("wait_ms", ticket.wait_ms, 0, MAX_SPAN_MS)
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
    named = set()
    for task in registration.tasks:
        check_task(task.name)
        if task.name in named:
            raise InvalidValue(f"tasks names {_shown(task.name)} twice; give each task of a worker once.")
        named.add(task.name)
        check_own_groups(task.groups)
        if task.limit is not None:
            _check_number("limit of task", task.limit, 0, of=task.name)
    # A worker that says goodbye has no tasks, and then its places mean nothing.
    _check_number("places", registration.places, 1 if named else 0)
    _check_number("lifetime_ms", registration.lifetime_ms, 1, MAX_SPAN_MS)
    if registration.host is not None:
        check_name("host", registration.host)
    if registration.pid is not None:
        _check_number("pid", registration.pid, 0)


def check_limits(limits: Sequence[Limit]) -> None:
    for limit in limits:
        check_group(limit.group)
        _check_number("limit of group", limit.slots, 0, of=limit.group)
        _check_source(limit.source)


def check_upkeep(**numbers: int) -> None:
    """Spans (`..._ms`) and counts that upkeep is called with; only what is kept may be 0."""
    for field, value in numbers.items():
        lowest = 0 if field.startswith("keep") else 1
        _check_number(field, value, lowest, MAX_SPAN_MS if field.endswith("_ms") else MAX_TIME_MS)


def check_reminder_ages(ages_ms: Sequence[int]) -> None:
    for age in ages_ms:
        _check_number("ages_ms", age, 0, MAX_SPAN_MS)
    if list(ages_ms) != sorted(set(ages_ms)):
        raise InvalidValue(f"ages_ms is {_shown(ages_ms)}; give each age once, the shortest first.")


def check_page(limit: int) -> None:
    """How much a reading operation may answer."""
    _check_number("limit", limit, 1)


def check_cursor(after: int) -> None:
    _check_number("after", after, 0, 2**63 - 1)


def check_observations(observations: Sequence[tuple[Average, float]]) -> None:
    for average, value in observations:
        check_average(average)
        _check_finite("value", value)


def check_estimate_errors(task: str, ratios: Sequence[float], *, keep: int) -> None:
    check_task(task)
    for ratio in ratios:
        _check_finite("ratios", ratio)
    _check_number("keep", keep, 1)


def check_record(name: str, value: object, *, version: int) -> None:
    check_name("name", name)
    _check_number("version", version, 0, 2**63 - 2)
    try:
        msgspec.json.encode(value)
    except (TypeError, ValueError, UnicodeError) as error:
        raise InvalidValue(f"value is {_shown(value)}, which is not JSON ({error}); use what JSON can hold.") from None


# --- the values they share ----------------------------------------------------------------------------------


def check_name(field: str, value: object) -> None:
    """An id or a name that somebody made: of a job, user, project, parent, worker, holder, claim, …"""
    if type(value) is str and 0 < len(value) <= MAX_NAME_CHARACTERS and value.isprintable():
        return
    if not isinstance(value, str):
        raise InvalidValue(f"{field} is {_shown(value)}; use text of 1 to {MAX_NAME_CHARACTERS} characters.")
    if not value:
        raise InvalidValue(f"{field} is empty; use 1 to {MAX_NAME_CHARACTERS} characters.")
    if len(value) > MAX_NAME_CHARACTERS:
        raise InvalidValue(
            f"{field} is {_shown(value)}, which has {len(value)} characters; use 1 to {MAX_NAME_CHARACTERS}."
        )
    if wrong := CONTROL_OR_SURROGATE.search(value):
        raise InvalidValue(
            f"{field} is {_shown(value)}, which has a control character or half a surrogate pair "
            f"at index {wrong.start()}; use 1 to {MAX_NAME_CHARACTERS} characters without those."
        )


def check_by(by: str | None) -> None:
    if by is not None:
        check_name("by", by)


def check_task(task: str) -> None:
    check_name("task", task)
    if ":" in task or task in RESERVED_NAMES:
        raise InvalidValue(
            f"task is {_shown(task)}; use a name without a colon that is not {GLOBAL} or {PROVIDERS}, "
            "because those name groups that are not a task's."
        )


def check_group(group: str) -> None:
    """Any group, as an operator or a limiter may name it, also one that follows from a job's fields."""
    if not isinstance(group, str) or ":" not in group:
        check_name("group", group)
        return
    kind, _, name = group.partition(":")
    if kind not in KINDS:
        check_name("group", group)
        return
    # The kind comes on top: whatever is allowed as a user's name must also be allowed as that user's group.
    check_name(f"name in group {kind}:", name)
    if kind == "priority" and not _is_priority(name):
        raise InvalidPriority(
            f"group is {_shown(group)}; use priority:{HIGHEST_PRIORITY} to priority:{LOWEST_PRIORITY}."
        )


def check_own_groups(groups: Sequence[str]) -> None:
    """Groups that a task or a submit adds of its own accord."""
    for group in _listed("groups", groups):
        check_group(group)
        kind, colon, _ = group.partition(":")
        if (colon and kind in KINDS_OF_THE_STORE) or group in RESERVED_NAMES:
            prefixes = ", ".join(sorted(f"{kind}:" for kind in KINDS_OF_THE_STORE))
            raise InvalidValue(
                f"group is {_shown(group)}, which is reserved; use a name of your own, which is not "
                f"{GLOBAL} or {PROVIDERS} and begins with none of {prefixes} (jobs get those by themselves)."
            )


def check_priority(priority: int) -> None:
    if type(priority) is int and HIGHEST_PRIORITY <= priority <= LOWEST_PRIORITY:
        return
    if not _is_number(priority, HIGHEST_PRIORITY, LOWEST_PRIORITY):
        raise InvalidPriority(
            f"priority is {_shown(priority)}; "
            f"use a whole number from {HIGHEST_PRIORITY} (soonest) to {LOWEST_PRIORITY}."
        )


def check_payload(payload: bytes) -> None:
    if type(payload) is bytes and len(payload) <= MAX_PAYLOAD_BYTES:
        return
    if not isinstance(payload, bytes):
        raise InvalidValue(f"payload is {_shown(payload)}; give the JSON as bytes.")
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise PayloadTooLarge(
            f"payload has {len(payload)} bytes; at most {MAX_PAYLOAD_BYTES} are allowed. "
            "Keep the data elsewhere and submit where to find it."
        )


def check_standing(standing: Standing) -> None:
    check_name("tier", standing.tier)
    _check_number("boost", standing.boost, 0, MAX_BOOST)
    for field in ("user_limit", "project_limit"):
        slots = getattr(standing, field)
        if slots is not None:
            _check_number(field, slots, 0)
    # With none a day, no day would ever have room; who may run nothing has a limit of 0 or a paused group.
    for field in ("daily_quota", "iterations_batch", "iterations_max"):
        number = getattr(standing, field)
        if number is not None:
            _check_number(field, number, 1)


def check_closed(closed: Mapping[str, int]) -> None:
    for group, until in closed.items():
        check_group(group)
        _check_number("closed until of group", until, 0, MAX_TIME_MS, of=group)


def check_average(average: Average) -> None:
    check_name("name of an average", average.name)
    _check_finite("first", average.first)
    _check_finite("weight", average.weight)
    if not 0 <= average.weight <= 1:
        raise InvalidValue(f"weight is {_shown(average.weight)}; use a number from 0 to 1.")


def check_job_error(error: JobError) -> None:
    _check_text("error.message", error.message)
    _check_text("error.detail", error.detail)
    _check_text("error.debug_id", error.debug_id)


def _check_number(field: str, value: object, lowest: int, highest: int = MAX_COUNT, *, of: str | None = None) -> None:
    if type(value) is int and lowest <= value <= highest:
        return
    if not _is_number(value, lowest, highest):
        whose = "" if of is None else f" {_shown(of)}"
        raise InvalidValue(f"{field}{whose} is {_shown(value)}; use a whole number from {lowest} to {highest}.")


def _is_number(value: object, lowest: int, highest: int) -> bool:
    """True and False are numbers to Python, and never what was meant."""
    return isinstance(value, int) and not isinstance(value, bool) and lowest <= value <= highest


def _is_priority(text: str) -> bool:
    return text.isascii() and text.isdigit() and str(int(text)) == text and int(text) <= LOWEST_PRIORITY


def _check_outcome_state(state: object) -> None:
    if not isinstance(state, State) or state not in OUTCOMES:
        allowed = ", ".join(sorted(OUTCOMES))
        raise InvalidValue(f"state is {_shown(state)}; use a State that a run may end in: {allowed}.")


def _check_source(source: object) -> None:
    if not isinstance(source, Source):
        allowed = ", ".join(one.name for one in Source)
        raise InvalidValue(f"source is {_shown(source)}; use a Source: {allowed}.")


def _check_finite(field: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise InvalidValue(f"{field} is {_shown(value)}; use a finite number.")


def _check_text(field: str, value: object) -> None:
    """Free text, where None stands for none; it may have several lines."""
    if value is None or (type(value) is str and value.isprintable()):
        return
    if not isinstance(value, str):
        raise InvalidValue(f"{field} is {_shown(value)}; use text.")
    if wrong := NOT_STORABLE.search(value):
        raise InvalidValue(
            f"{field} is {_shown(value)}, which has a NUL or half a surrogate pair at index {wrong.start()}; "
            "use text without those."
        )


def _check_result(result: object) -> None:
    """Unlike a payload, a result is decoded whenever its job is read: a bad one would spoil every list it is in."""
    if not isinstance(result, bytes):
        raise InvalidValue(f"result is {_shown(result)}; give the JSON as bytes.")
    try:
        msgspec.json.decode(result)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as wrong:
        raise InvalidValue(f"result is {_shown(result)}, which is not JSON ({wrong}); give JSON as bytes.") from None


def _check_bytes(field: str, value: object) -> None:
    if value is not None and not isinstance(value, bytes):
        raise InvalidValue(f"{field} is {_shown(value)}; give the JSON as bytes.")


def _listed(field: str, names: Sequence[str]) -> Sequence[str]:
    """One name instead of a list of names would be taken letter by letter."""
    if isinstance(names, str | bytes):
        raise InvalidValue(f"{field} is {_shown(names)}; give a list of names.")
    return names


_short = Repr()
_short.maxstring = _short.maxother = 60


def _shown(value: object) -> str:
    return _short.repr(value)
