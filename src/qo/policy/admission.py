"""Decides what a submit means: turns a caller's `New` and the settings into the `Submission` that a store takes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import timedelta

from qo.errors import InvalidSubmit, InvalidValue, PayloadTooLarge, UnknownTier
from qo.new_job import New
from qo.policy.checks import check_name, check_number
from qo.policy.json_value import encode_json
from qo.policy.ordering import parse_priority
from qo.policy.start_by import latest_start, time_milliseconds
from qo.settings.sections import Settings, Tier
from qo.spans import checked_ms
from qo.values import Limit, Source, Standing, Submission

CAPPED_DELAY_MS = 60_000
"""A submit that is delayed by less than this counts as joining the line now, when the cap is checked."""


def make_submission(new: New, settings: Settings, *, job_id: str, drawn: float, trace: str | None = None) -> Submission:
    """Decide everything about a submit except whether there is room for it, which only the store can.

    `job_id` is the caller's id, or a new one where the caller gave none. `drawn`, evenly from 0 to 1, places the job
    within the quota's jitter. Raises a `SubmitRefused` that names the field.
    """
    _check_concurrency(new)
    standing = None if new.tier is None else standing_of(new.tier, settings.tiers)
    if standing is not None and new.user is None:
        raise InvalidSubmit(
            f"tier is {new.tier!r} but user is not given; name the user whose tier it is, or leave tier out."
        )
    latest = latest_start(new.start_by)
    return Submission(
        id=job_id,
        task=new.task,
        groups=_groups(new),
        payload=encode_payload(new.data, most_bytes=settings.queue.max_payload_bytes),
        priority=_priority(new, settings),
        run_at_ms=_run_at_ms(new),
        delay_ms=None if new.delay is None else milliseconds("delay", new.delay),
        start_by_ms=latest.at_ms,
        start_within_ms=latest.within_ms,
        overdue_message=latest.message,
        timeout_ms=None if new.timeout is None else timeout_milliseconds(new.timeout),
        user=new.user,
        project=new.project,
        standing=standing,
        parent=new.parent,
        phase=new.phase,
        limits=_limits(new),
        unique=new.unique,
        quota_jitter_ms=round(drawn * settings.queue.quota_jitter_secs * 1000),
        cap=_cap(new, settings),
        max_attempts=new.max_attempts,
        trace=trace,
        contact=new.contact,
        by=new.by,
    )


def standing_of(name: str, tiers: Mapping[str, Tier]) -> Standing:
    """What a tier grants, as numbers. Raises `UnknownTier`."""
    tier = find_tier(name, tiers)
    return Standing(
        tier=name,
        boost=tier.boost,
        user_limit=tier.per_user,
        project_limit=tier.per_project,
        daily_quota=tier.jobs_per_day,
        iterations_batch=tier.iterations,
        iterations_max=tier.max_iterations,
    )


def find_tier(name: str, tiers: Mapping[str, Tier]) -> Tier:
    """A tier by name. Raises `UnknownTier`, naming the known tiers."""
    if not isinstance(name, str) or name not in tiers:
        raise UnknownTier(f"tier is {name!r}; use one of {', '.join(sorted(tiers))}, or add it under [tiers.{name}].")
    return tiers[name]


def encode_payload(data: object, *, most_bytes: int) -> bytes:
    """The data as JSON. Raises `InvalidSubmit` where JSON cannot hold it, `PayloadTooLarge` above `most_bytes`."""
    try:
        payload = encode_json("data", data)
    except InvalidValue as error:
        raise InvalidSubmit(str(error)) from error
    if len(payload) > most_bytes:
        raise PayloadTooLarge(
            f"data is {len(payload)} bytes of JSON; at most {most_bytes} are allowed. Store it elsewhere and "
            "submit where it is."
        )
    return payload


def milliseconds(field: str, span: float | timedelta) -> int:
    """A span in seconds or as a timedelta, as whole milliseconds."""
    return checked_ms(field, span, error=InvalidSubmit)


def timeout_milliseconds(span: float | timedelta) -> int:
    """The same for a timeout, which must not be 0."""
    found = milliseconds("timeout", span)
    if found == 0:
        raise InvalidSubmit(f"timeout is {span!r}; use seconds above 0, or a timedelta.")
    return found


def retry_after(*, over: int, average_seconds: float, capacity: int, step_seconds: float) -> timedelta:
    """When a refused caller should try again: once the jobs above the cap have run, rounded up to the next step."""
    seconds = (over + 1) * average_seconds / max(capacity, 1)
    return timedelta(seconds=max(1, math.ceil(seconds / step_seconds)) * step_seconds)


def _check_concurrency(new: New) -> None:
    """Check these two by the names that callers know: the store sees a group among others, and its limit."""
    try:
        if new.concurrency_group is not None:
            check_name("concurrency_group", new.concurrency_group)
        if new.concurrency_limit is not None:
            check_number("concurrency_limit", new.concurrency_limit, 0)
    except InvalidValue as error:
        raise InvalidSubmit(str(error)) from None


def _groups(new: New) -> tuple[str, ...]:
    if not isinstance(new.groups, tuple | list):
        raise InvalidSubmit(f"groups is {new.groups!r}; give a list of names.")
    group = new.concurrency_group
    return tuple(new.groups) if group is None or group == new.task else (*new.groups, group)


def _limits(new: New) -> tuple[Limit, ...]:
    if new.concurrency_limit is None:
        return ()
    group = new.concurrency_group or new.task
    return (Limit(group=group, slots=new.concurrency_limit, source=Source.SUBMIT),)


def _priority(new: New, settings: Settings) -> int | None:
    if new.priority is not None:
        return parse_priority(new.priority)
    # A phase without a priority of its own has its parent's, which only the store knows.
    return parse_priority(settings.queue.default_priority) if new.parent is None else None


def _cap(new: New, settings: Settings) -> int | None:
    return settings.queue.cap if new.tier is not None or settings.queue.cap_applies_to == "all" else None


def _run_at_ms(new: New) -> int | None:
    if new.run_at is None:
        return None
    run_at_ms = time_milliseconds("run_at", new.run_at)
    if new.delay is not None:
        raise InvalidSubmit(f"delay is {new.delay!r} and run_at is {new.run_at.isoformat()}; give one of the two.")
    return run_at_ms
