"""Numbers as people say them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from qo.job import Displaced


def span(seconds: float) -> str:
    """A span, rounded down: "45 seconds", "1 minute", "17 minutes", "1h 0m", "2h 5m"."""
    whole = max(int(seconds), 0)  # two clocks may disagree by a little
    if whole < 60:
        return counted(whole, "second")
    minutes = whole // 60
    if minutes < 60:
        return counted(minutes, "minute")
    return f"{minutes // 60}h {minutes % 60}m"


def exact_span(milliseconds: int) -> str:
    """A span that somebody chose, as it is: "30 seconds", "90 seconds", "1 minute", "36 hours", "1.5 seconds"."""
    for unit_ms, noun in ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1000, "second")):
        if milliseconds % unit_ms == 0:
            return counted(milliseconds // unit_ms, noun)
    return f"{milliseconds / 1000:.3f}".rstrip("0") + " seconds"


def short_span(seconds: float) -> str:
    """A span as logs have it, rounded down: "0.3s", "45s", "3m 12s", "2h 5m"."""
    if seconds < 10:
        return f"{int(max(seconds, 0) * 10) / 10}s"
    if seconds < 60:
        return f"{int(seconds)}s"
    minutes = int(seconds) // 60
    return f"{minutes}m {int(seconds) % 60}s" if minutes < 60 else f"{minutes // 60}h {minutes % 60}m"


def ago(seconds: float) -> str:
    """How long ago something was, rounded down: "40 s ago", "3 min ago", "2 h ago", "5 days ago"."""
    whole = max(int(seconds), 0)  # two clocks may disagree by a little
    if whole < 60:
        return f"{whole} s ago"
    if whole < 3600:
        return f"{whole // 60} min ago"
    if whole < 2 * 86_400:
        return f"{whole // 3600} h ago"
    return f"{whole // 86_400} days ago"


def brief_span(seconds: float) -> str:
    """A span for a narrow column, rounded down: "45 s", "90 min", "5 h", "3 d"."""
    number, unit = _in_largest_unit(seconds)
    return f"{number} {unit}"


def brief_range(lower: float, upper: float) -> str:
    """Two spans for a narrow column: "14-26 min", "45 s-3 min"; once where both read alike."""
    (first, first_unit), (last, last_unit) = _in_largest_unit(lower), _in_largest_unit(upper)
    if first_unit != last_unit:
        return f"{first} {first_unit}-{last} {last_unit}"
    return f"{last} {last_unit}" if first == last else f"{first}-{last} {last_unit}"


def _in_largest_unit(seconds: float) -> tuple[int, str]:
    """Of hours and days only from two on: "90 min" says more than "1 h"."""
    whole = max(int(seconds), 0)  # two clocks may disagree by a little
    for unit_seconds, at_least, unit in ((86_400, 2, "d"), (3600, 2, "h"), (60, 1, "min")):
        if whole >= unit_seconds * at_least:
            return whole // unit_seconds, unit
    return whole, "s"


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def position_message(position: int, original: int | None, *, placed_ahead: int | None, displaced: str | None) -> str:
    """The message to a waiting user about their place in line.

    `placed_ahead` is the number of jobs ahead that joined later, None where it was not counted. `displaced` is how a
    person put the job further back.
    """
    if original is None or position <= original:
        return f"You are #{position} in queue. Your position may change as priority jobs are added"
    reason = _why_worse(position - original, placed_ahead, displaced)
    return f"Originally #{original}, now #{position}: {reason}"


def _why_worse(places: int, placed_ahead: int | None, displaced: str | None) -> str:
    if displaced == Displaced.MOVED:
        return "an operator moved your job"
    if displaced == Displaced.PRIORITY:
        return "the priority of your job was lowered"
    if placed_ahead is None:
        return "other jobs went ahead of you"
    # An earlier job gets ahead when it is handed back or its lease runs out, when a person raises its priority or moves
    # it, or when it ages. Which of these happened is not known.
    earlier = "earlier jobs came back or moved up"
    if placed_ahead == 0:
        return earlier
    placed = "1 priority job was" if placed_ahead == 1 else f"{placed_ahead} priority jobs were"
    return f"{placed} placed ahead of you{f', and {earlier}' if placed_ahead < places else ''}"


def scheduled_message(run_at: datetime, *, now: datetime) -> str:
    """The day of a job that the quota deferred: "Scheduled for tomorrow", or the weekday and date, with the year when
    it is not this one."""
    day, today = run_at.astimezone(UTC).date(), now.astimezone(UTC).date()
    if day <= today:
        return "Scheduled for today"
    if day == today + timedelta(days=1):
        return "Scheduled for tomorrow"
    year = "" if day.year == today.year else f" {day.year}"
    return f"Scheduled for {day:%A}, {day.day} {day:%B}{year}"


def clock_time(at: datetime, *, now: datetime) -> str:
    """A time in few words: "14:05 UTC" today, else with the date."""
    at, now = at.astimezone(UTC), now.astimezone(UTC)
    # To the minute, a time that is seconds away would seem to have passed.
    clock = f"{at:%H:%M:%S} UTC" if timedelta(0) < at - now < timedelta(minutes=1) else f"{at:%H:%M} UTC"
    return clock if at.date() == now.date() else f"{clock} on {at:%A}, {at.day} {at:%B %Y}"


def full_time(at: datetime) -> str:
    """A time that is read at any later time: "14:05 UTC on Monday, 5 January 2026", with seconds where it has any."""
    at = at.astimezone(UTC)
    clock = f"{at:%H:%M:%S}" if at.second else f"{at:%H:%M}"
    return f"{clock} UTC on {at:%A}, {at.day} {at:%B %Y}"
