"""What a frame of the operators' stream contains, and the events that carry it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from qo.job import State
from qo.policy.analytics import PromiseFigures
from qo.policy.flow import Flow
from qo.policy.reasons.reason import ChangedReasons, SharedReason
from qo.values import GroupStatus, WorkerInfo

FRAME = "frame"
"""The name of the event that carries what has changed. A reset, in its place, carries the present state."""


class LastHour(msgspec.Struct, frozen=True, kw_only=True):
    """Some of the figures that `GET /api/analytics` has of the last hour."""

    started: list[int]
    """In each of the last minutes; the present one is the last."""
    average_wait_seconds: dict[int, float]
    ended: dict[str, int]
    promise: PromiseFigures


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """What the jobs in line wait for, the reason of most of them first, and how much happened in the last minute."""

    waits_for: tuple[SharedReason, ...]
    """Of the first 10,000 jobs in line."""
    flow: Flow
    last_hour: LastHour
    counts: dict[State, int]


class InFront(msgspec.Struct, frozen=True, array_like=True):
    """A job near the front of the line, as far as it changes without an event of its own."""

    id: str
    seconds: tuple[int, int, int] | None
    """The earliest, the likeliest and the latest start, from now."""
    message: str | None
    """Why there is no estimate."""
    gained: int
    """As in a row of `GET /api/queue`."""


class HeldSlot(msgspec.Struct, frozen=True, array_like=True):
    """A slot of a group that is under pressure. One without a holder is free."""

    number: int
    holder: str | None = None
    worker: str | None = None
    since: int = 0
    expires_at: int = 0
    """Both in milliseconds since 1970."""


class Frame(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What has changed since the frame before it. The first one after connecting has all groups, all workers and the
    overview; a later one has what of them has changed."""

    at: datetime
    waiting: int
    """How many jobs are in line."""
    changed: list[dict[str, Any]]
    """The jobs that changed, as rows of a list; a field that is null or false, and a count of 0, is left out. A job in
    line has its `key` and its `sequence`, as in a row of `GET /api/queue`, and `key_before` if it was in line before. A
    row without `task` has only the fields that changed, with null for those that are no longer there: that of a job
    that stays in its state and does not come further ahead."""
    gone: list[tuple[str, int]]
    """The jobs that left the line: the id, and the key that the job had."""
    groups: list[GroupStatus] | None = None
    """The groups that changed. One that has no limit, pause or holder any more is there once more, empty."""
    workers: list[WorkerInfo] | None = None
    """All live workers, when any of them changed."""
    overview: Overview | None = None
    reasons: list[ChangedReasons] | None = None
    """The jobs near the front of the line that wait for something else than before. In the first frame, all of them."""
    front: list[InFront] | None = None
    """The first jobs in line, except those that have changed since the line was last read."""
    slots: dict[str, list[HeldSlot] | None] | None = None
    """By group, the slots that changed, of the groups that are most wanted. Null: the group is not among them now."""
