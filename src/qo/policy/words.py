"""Numbers as people say them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


def span(seconds: float) -> str:
    """A span, rounded down: "45 seconds", "1 minute", "17 minutes", "1h 0m", "2h 5m"."""
    whole = max(int(seconds), 0)  # two clocks may disagree by a little
    if whole < 60:
        return counted(whole, "second")
    minutes = whole // 60
    if minutes < 60:
        return counted(minutes, "minute")
    return f"{minutes // 60}h {minutes % 60}m"


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


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def position_message(position: int, original: int | None) -> str:
    """What a waiting user reads of their place in line."""
    if original is not None and position > original:
        ahead = position - original
        placed = "1 priority job was" if ahead == 1 else f"{ahead} priority jobs were"
        return f"Originally #{original}, now #{position}: {placed} placed ahead of you"
    return f"You are #{position} in line. Your position may change as priority jobs are added"


def scheduled_message(run_at: datetime, *, now: datetime) -> str:
    """When a job that was deferred by the quota has its turn: "Scheduled for tomorrow", or the weekday and date."""
    day, today = run_at.astimezone(UTC).date(), now.astimezone(UTC).date()
    if day <= today:
        return "Scheduled for today"
    if day == today + timedelta(days=1):
        return "Scheduled for tomorrow"
    return f"Scheduled for {day:%A}, {day.day} {day:%B}"


def clock_time(at: datetime, *, now: datetime) -> str:
    """A time as short as it can be said: "14:05 UTC" today, else with the date."""
    at, now = at.astimezone(UTC), now.astimezone(UTC)
    # To the minute, a time that is seconds away would seem to have passed.
    clock = f"{at:%H:%M:%S} UTC" if timedelta(0) < at - now < timedelta(minutes=1) else f"{at:%H:%M} UTC"
    return clock if at.date() == now.date() else f"{clock} on {at:%A}, {at.day} {at:%B %Y}"
