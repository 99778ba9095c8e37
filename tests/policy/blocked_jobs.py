"""Jobs that are not running, what a store knows of their blockers, and the explanation of that."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from qo.job import Job, State
from qo.policy.why import Why, explain
from qo.values import Blockers, GroupStatus, SlotInfo

NOW = datetime(2026, 3, 11, 12, 0, tzinfo=UTC)
QUARTER_TO = NOW - timedelta(minutes=15)
FIVE_PAST = NOW + timedelta(minutes=5)
TOMORROW = NOW + timedelta(hours=12, minutes=7)
HIDDEN = "a-job-of-another-user"


def job(state: State = State.QUEUED, **fields: Any) -> Job:
    values: dict[str, Any] = {
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


def explained(
    of: Job, *groups: GroupStatus, daily_quota: int | None = None, has_worker: bool = True, **facts: Any
) -> Why:
    """The explanation of a job that these groups block, for a reader who may see all holders but `HIDDEN`."""
    blockers = Blockers(job=of, groups=groups, has_worker=has_worker, **facts)
    visible = {slot.holder for group in groups for slot in group.slots} - {HIDDEN}
    return explain(blockers, now=NOW, visible=visible, daily_quota=daily_quota)


def full(group: str = "gpu", limit: int = 1, *, slots: tuple[SlotInfo, ...] = ()) -> GroupStatus:
    return GroupStatus(group=group, limit=limit, active=limit, slots=slots)


def held_by(*holders: str, minutes: int = 17) -> tuple[SlotInfo, ...]:
    """A slot for each holder, the first taken so many minutes ago, each next one a minute earlier."""
    return tuple(
        held_since(NOW - timedelta(minutes=minutes + number), holder, slot_id=number)
        for number, holder in enumerate(holders)
    )


def held_since(since: datetime, holder: str, *, slot_id: int = 0) -> SlotInfo:
    token = str(round(since.timestamp() * 1_000_000))
    return SlotInfo(slot_id=slot_id, holder=holder, worker_id=None, expires_at=FIVE_PAST, token=token)
