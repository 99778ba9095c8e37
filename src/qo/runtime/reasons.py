"""From what a store knows of a job's way to its start to what `policy/why.py` explains."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from qo.job import moment
from qo.policy.why import Blocked, Facts, Holder
from qo.store.values import Blockers, GroupStatus


def facts_of(
    blockers: Blockers, *, visible: Collection[str] | None, now: datetime, daily_quota: int | None = None
) -> Facts:
    """`visible` are the holders whose names the asker may see; None: all."""
    return Facts(
        job=blockers.job,
        ahead=blockers.ahead,
        blocked_by=tuple(_blocked(group) for group in blockers.groups),
        holders=tuple(holder for group in blockers.groups for holder in _holders(group, visible)),
        waits_for=blockers.waits_for,
        waits_for_state=blockers.waits_for_state,
        has_worker=blockers.has_worker,
        now=now,
        daily_quota=daily_quota,
        worker=blockers.worker,
        heard_at=blockers.heard_at,
    )


def _blocked(group: GroupStatus) -> Blocked:
    return Blocked(
        group=group.group,
        limit=group.limit,
        active=group.active,
        paused=group.paused,
        closed_until=group.closed_until,
    )


def _holders(group: GroupStatus, visible: Collection[str] | None) -> list[Holder]:
    return [
        Holder(
            group=group.group,
            slot_id=slot.slot_id,
            holder=slot.holder if visible is None or slot.holder in visible else None,
            since=moment(int(slot.token) // 1000),  # a token is the microsecond at which it was given
        )
        for slot in group.slots
    ]
