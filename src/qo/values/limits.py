"""Limits, slots and the state of a group."""

from __future__ import annotations

from datetime import datetime
from enum import IntEnum

import msgspec


class Source(IntEnum):
    """Where a group's limit comes from; the smaller number wins."""

    OPERATOR = 1
    CONFIGURATION = 2
    TIER = 3
    TASK = 4
    SUBMIT = 5


class Limit(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    group: str
    slots: int
    source: Source


class Unlimited(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Removes a group's limit; with `only`, a limit of another source stays."""

    group: str
    only: Source | None = None


class LimitIgnored(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A limit that was not set because a stronger one of another value is in force."""

    wanted: Limit
    in_force: Limit


class LimitChange(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A limit that was set, and the limit before it; None where the group had none."""

    limit: Limit
    before: Limit | None = None


class SlotInfo(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    slot_id: int
    holder: str
    worker_id: str | None
    expires_at: datetime
    token: str


class GroupStatus(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`active` counts the live holders, `waiting` the jobs and callers that were put aside because of this group."""

    group: str
    limit: int | None = None
    source: Source | None = None
    paused: bool = False
    closed_until: datetime | None = None
    active: int = 0
    waiting: int = 0
    kept: str | None = None
    """The job or caller that a slot of this group is kept for, because it is its turn."""
    slots: tuple[SlotInfo, ...] = ()

    @property
    def has_room(self) -> bool:
        has_slot = self.limit is None or self.active < self.limit
        return has_slot and not self.paused and self.closed_until is None
