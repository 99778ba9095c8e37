"""Spans of time: callers give seconds or a timedelta; qo checks them once and counts in whole milliseconds."""

from __future__ import annotations

from datetime import timedelta
from math import inf

from qo.errors import LONGEST_SPAN_SECS, InvalidValue

Span = float | timedelta
"""Seconds, or a timedelta."""


def checked_ms(field: str, span: Span, *, error: type[InvalidValue] = InvalidValue) -> int:
    """The whole milliseconds of a span that a caller gave as `field`. Raises `error` unless it is a span of 0 to a
    hundred years."""
    seconds = _seconds(span)
    if seconds is None or not 0 <= seconds <= LONGEST_SPAN_SECS:
        raise error(f"{field} is {span!r}; use seconds of 0 or more (at most a hundred years), or a timedelta.")
    return whole_ms(seconds)


def checked_seconds(field: str, span: Span) -> float:
    """The seconds of a span that has to be longer than nothing. Raises `InvalidValue`."""
    seconds = _seconds(span)
    if seconds is None or not 0 < seconds < inf:
        raise InvalidValue(f"{field} is {span!r}; use seconds above 0, or a timedelta.")
    return seconds


def whole_ms(span: Span) -> int:
    """A span that is known to be valid, in whole milliseconds."""
    return round((span.total_seconds() if isinstance(span, timedelta) else span) * 1000)


def _seconds(span: object) -> float | None:
    seconds = span.total_seconds() if isinstance(span, timedelta) else span
    return seconds if isinstance(seconds, int | float) and not isinstance(seconds, bool) else None
