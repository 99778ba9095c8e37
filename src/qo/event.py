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
    """The cursor of the event: `queue.watch(job_id, after=id)` goes on behind it."""
    at: datetime
    """When it happened, on the store's clock."""
    kind: str
    """What happened: a state, or one of the kinds on the page about events."""
    subject: str
    """The id of the job, or the name of the group or user."""
    detail: dict[str, Any]
    """More about it, by kind."""


STAGE = "stage"
"""A running job entered a stage. Detail: `stage`, `message`."""
PROGRESS = "progress"
"""The handler reported its progress. Detail: `done`, `total`, `text`."""
POSITION = "position"
"""The position of a job in line. Only `Queue.watch` makes such an event; a store's feed has none.
Detail: `position`, `position_original`, `position_message`, `estimate`."""
PRIORITY = "priority"
"""A person changed the priority of a job. Detail: `priority`, `from`."""
MOVED = "moved"
"""A person moved a job in line. Detail: `before` or `after`, the id of its new neighbour."""
AGED = "aged"
"""A job has waited so long that it moved up a level of priority. Detail: `priority`."""
CANCEL_WANTED = "cancel_wanted"
"""A running job is to stop; its end follows. Detail: none."""
LEASE_LOST = "lease_lost"
"""A lease ran out or was revoked. Detail: `token`, `reason`, `groups` (those in which it held slots, if any)."""
RESCHEDULED = "rescheduled"
"""A job that the quota deferred moved to another day. Detail: `run_at`."""
GRANTED = "granted"
"""A caller that waits in `limiter.acquire` got its slots. Detail: `token`, `slots`, `expires_at`."""
TURN = "turn"
"""A job or caller was passed so often that it takes a turn. Detail: `passed`."""
LIMIT = "limit"
"""The limit of a group changed. Detail: `limit` (null: removed), `source`."""
PAUSED = "paused"
"""A group was paused. Detail: none."""
RESUMED = "resumed"
"""The pause of a group ended. Detail: none."""
TIER = "tier"
"""A user has another tier. Detail: `tier`."""

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
    """An action of a person: its author, its subject and its time.

    Over HTTP there are also the role of the author's key, the address they came from, and the batch: what the entries
    of one action on many jobs, or an action and its undo, have in common.
    """

    id: int
    """Grows with time; `queue.undo` takes it."""
    at: datetime
    """When it was done."""
    by: str | None
    """The name that was given with it."""
    action: str
    """What was done: `submit`, `priority`, `move`, `limit`, `pause`, …"""
    subject: str
    """The id of the job, or the name of the group or user."""
    detail: dict[str, Any]
    """What was changed, such as the old value and the new one."""
    role: str | None = None
    """The role of the author's key. Only over HTTP."""
    address: str | None = None
    """Where the request came from. Only over HTTP."""
    batch: str | None = None
    """What the entries of one action have in common. Only over HTTP."""
