"""Events of a store's feed, and entries of its audit trail."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec


class Event(msgspec.Struct, frozen=True):
    """One entry of a store's feed, appended in the same atomic step as the change it reports.

    `subject` is the id of a job or of a caller in `limiter.acquire`, or the name of a group or user.
    `kind` is the state that a job went into, or one of the constants below.
    """

    id: int
    at: datetime
    kind: str
    subject: str
    detail: dict[str, Any]


STAGE = "stage"
PROGRESS = "progress"
POSITION = "position"
"""The position of a job in line. Only `Queue.watch` makes such an event; a store's feed has none."""
PRIORITY = "priority"
MOVED = "moved"
AGED = "aged"
CANCEL_WANTED = "cancel_wanted"
LEASE_LOST = "lease_lost"
RESCHEDULED = "rescheduled"
GRANTED = "granted"
TURN = "turn"
"""A job or caller was passed so often that it takes a turn."""
LIMIT = "limit"
PAUSED = "paused"
RESUMED = "resumed"
TIER = "tier"

SIGNALS = frozenset({CANCEL_WANTED, LEASE_LOST, GRANTED})
"""Events that a holder has to receive at once. They are few among all events."""


class Feed(msgspec.Struct, frozen=True):
    """Events after a cursor, oldest first.

    `reset` is true when the cursor is older than what is kept: read the present state, then go on from `cursor`.
    """

    events: tuple[Event, ...]
    cursor: int
    reset: bool = False


class AuditEntry(msgspec.Struct, frozen=True):
    """An action of a person: its author, its subject and its time."""

    id: int
    at: datetime
    by: str | None
    action: str
    subject: str
    detail: dict[str, Any]
