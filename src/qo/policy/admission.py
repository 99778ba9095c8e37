"""From what a caller says of a job, and the settings, to what a store needs to know: plain numbers and names."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import msgspec

from qo.errors import LONGEST_SPAN_SECS, InvalidSubmit, InvalidValue, PayloadTooLarge, UnknownTier
from qo.job import New
from qo.policy.json_value import encode_json
from qo.policy.ordering import parse_priority
from qo.settings import Settings, Tier

CAPPED_DELAY_MS = 60_000
"""A submit that is delayed by less than this counts as joining the line now when the cap is looked at."""
LAST_MOMENT = datetime(9999, 1, 1, tzinfo=UTC)
"""what every store can tell the time until"""


class Admission(msgspec.Struct, frozen=True, kw_only=True):
    """The decided fields of a submission; those a caller's word settles are taken from `New` as they are."""

    payload: bytes
    priority: int | None
    groups: tuple[str, ...]
    limited_group: str | None
    """the group that `concurrency_limit` is for"""
    run_at_ms: int | None
    delay_ms: int | None
    timeout_ms: int | None
    cap: int | None


def admission(new: New, settings: Settings) -> Admission:
    """Decide everything about a submit but who is let in, which only the store can. Raises `InvalidSubmit`."""
    if new.tier is not None:
        find_tier(new.tier, settings.tiers)
        if new.user is None:
            raise InvalidSubmit(
                f"tier is {new.tier!r} but user is not given; name the user whose tier it is, or leave tier out."
            )
    priority = new.priority
    if priority is None and new.parent is None:
        priority = settings.queue.default_priority  # a phase without a priority of its own has its parent's
    group = new.concurrency_group
    if not isinstance(new.groups, tuple | list):
        raise InvalidSubmit(f"groups is {new.groups!r}; give a list of names.")
    return Admission(
        payload=encode_payload(new.data, most_bytes=settings.queue.max_payload_bytes),
        priority=None if priority is None else parse_priority(priority),
        groups=(*new.groups, group) if group is not None and group != new.task else tuple(new.groups),
        limited_group=(group or new.task) if new.concurrency_limit is not None else None,
        run_at_ms=_run_at_ms(new),
        delay_ms=None if new.delay is None else milliseconds("delay", new.delay),
        timeout_ms=None if new.timeout is None else timeout_milliseconds(new.timeout),
        cap=_cap(new, settings),
    )


def find_tier(name: str, tiers: Mapping[str, Tier]) -> Tier:
    """A tier by name. Raises `UnknownTier`, naming those there are."""
    if not isinstance(name, str) or name not in tiers:
        raise UnknownTier(f"tier is {name!r}; use one of {', '.join(sorted(tiers))}, or add it under [tiers.{name}].")
    return tiers[name]


def encode_payload(data: object, *, most_bytes: int) -> bytes:
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
    seconds = span.total_seconds() if isinstance(span, timedelta) else span
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= LONGEST_SPAN_SECS:
        raise InvalidSubmit(f"{field} is {span!r}; use seconds of 0 or more (at most a hundred years), or a timedelta.")
    return round(seconds * 1000)


def timeout_milliseconds(span: float | timedelta) -> int:
    found = milliseconds("timeout", span)
    if found == 0:
        raise InvalidSubmit(f"timeout is {span!r}; use seconds above 0, or a timedelta.")
    return found


def retry_after(*, over: int, average_seconds: float, places: int, step_seconds: float) -> timedelta:
    """When to try again at a full line: its excess worked off, rounded up to the next step, never at once."""
    seconds = (over + 1) * average_seconds / max(places, 1)
    return timedelta(seconds=max(1, math.ceil(seconds / step_seconds)) * step_seconds)


def _cap(new: New, settings: Settings) -> int | None:
    return settings.queue.cap if new.tier is not None or settings.queue.cap_applies_to == "all" else None


def _run_at_ms(new: New) -> int | None:
    if new.run_at is not None and (not isinstance(new.run_at, datetime) or new.run_at.utcoffset() is None):
        raise InvalidSubmit(f"run_at is {new.run_at!r}; use a datetime with a time zone, such as UTC.")
    if new.run_at is not None and not 0 <= new.run_at.timestamp() <= LAST_MOMENT.timestamp():
        raise InvalidSubmit(f"run_at is {new.run_at.isoformat()}; use a time from 1970 to the end of 9998.")
    if new.delay is not None and new.run_at is not None:
        raise InvalidSubmit(f"delay is {new.delay!r} and run_at is {new.run_at.isoformat()}; give one of the two.")
    return None if new.run_at is None else round(new.run_at.timestamp() * 1000)
