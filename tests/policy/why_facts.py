"""Facts about a job that is not running, from which its reason is told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from qo.job import Job, State
from qo.policy.why import Blocked, Facts, Holder

NOW = datetime(2026, 3, 11, 12, 0, tzinfo=UTC)
QUARTER_TO = NOW - timedelta(minutes=15)
FIVE_PAST = NOW + timedelta(minutes=5)
TOMORROW = NOW + timedelta(hours=12, minutes=7)


def job(state: State = State.QUEUED, **fields) -> Job:
    values = {
        "id": "j1",
        "task": "build",
        "status": state.value,
        "priority": 50,
        "groups": ("global", "build", "priority:50"),
        "submitted_at": QUARTER_TO,
        "attempts": 0,
        "max_attempts": 3,
    }
    return Job(state=state, **{**values, **fields})


def facts(of: Job, **fields) -> Facts:
    values = {
        "ahead": None,
        "blocked_by": (),
        "holders": (),
        "waits_for": None,
        "waits_for_state": None,
        "has_worker": True,
        "now": NOW,
    }
    return Facts(job=of, **{**values, **fields})


def full(group: str = "gpu", limit: int = 1) -> Blocked:
    return Blocked(group=group, limit=limit, active=limit)


def held(*names: str | None, group: str = "gpu", minutes: int = 17) -> tuple[Holder, ...]:
    """Holders of a group's slots, the first since so many minutes, each next one a minute longer."""
    return tuple(
        Holder(group=group, slot_id=slot, holder=name, since=NOW - timedelta(minutes=minutes + slot))
        for slot, name in enumerate(names)
    )
