"""Limits, slots and the state of a group."""

from __future__ import annotations

from datetime import datetime
from enum import IntEnum

import msgspec


class Source(IntEnum):
    """Where a group's limit comes from; the smaller number wins."""

    OPERATOR = 1
    """A person, by `queue.set_limit`, the command or the dashboard."""
    CONFIGURATION = 2
    """`[concurrency.limits]` of the settings."""
    TIER = 3
    """The tier of the user or project."""
    TASK = 4
    """`max_concurrent` of the task."""
    SUBMIT = 5
    """`concurrency_limit` of a submit."""


class Limit(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How many slots a group has, and who says so."""

    group: str
    """The group."""
    slots: int
    """How many slots it has."""
    source: Source
    """Who says so."""


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
    """A held slot of a group, its holder, and when the holder's lease ends unless it is renewed."""

    slot_id: int
    """Its number, from 0."""
    holder: str
    """The id of a job, or the name of a caller."""
    worker_id: str | None
    """The worker that runs the job."""
    expires_at: datetime
    """When the lease ends, unless it is renewed."""
    token: str
    """The token of the lease."""


class GroupStatus(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`active` counts the live holders, `waiting` the jobs and callers that were put aside because of this group."""

    group: str
    """The group."""
    limit: int | None = None
    """How many slots it has. None: unlimited."""
    source: Source | None = None
    """Where the limit comes from."""
    paused: bool = False
    """Whether nobody new starts in it."""
    closed_until: datetime | None = None
    """When a group that is kept in a bucket, and was full there, is tried again."""
    active: int = 0
    """How many hold a slot now."""
    waiting: int = 0
    """How many were put aside because of it."""
    kept: str | None = None
    """The job or caller that a slot of this group is kept for, because it is its turn."""
    slots: tuple[SlotInfo, ...] = ()
    """The held slots, by number."""

    @property
    def has_room(self) -> bool:
        has_slot = self.limit is None or self.active < self.limit
        return has_slot and not self.paused and self.closed_until is None
