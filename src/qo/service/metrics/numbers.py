"""The numbers of one scrape, before they become text."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from qo.store.outbox import OutboxStatus


class StreamCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The event streams of one server: how many are open, and how many it has ended by itself since it started."""

    open: int = 0
    dropped: Mapping[str, int] = {}
    """By reason. A reason that has appeared stays, and its count never goes down."""


class FigureSum(msgspec.Struct, frozen=True, kw_only=True):
    """A figure over all minutes."""

    count: int = 0
    total_ms: int = 0
    highest_ms: int = 0
    """The highest `total_ms` there was, at least 0. A clock that is set back while a job waits or runs makes the
    store's total smaller, and a counter must not go down."""


class Slots(msgspec.Struct, frozen=True, kw_only=True):
    """The slots of all groups that share a label: how many are held, and how many there are."""

    active: int = 0
    limit: int = 0


class QueueNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of a queue."""

    queued: int
    running: int
    figures: Mapping[str, FigureSum]
    """By the name of the figure, with the label of a group in the place of its name."""
    slots: Mapping[str, Slots]
    """By the label of the group."""
    streams: StreamCounts
    outbox: OutboxStatus | None = None
    """None where nothing is recorded elsewhere."""
