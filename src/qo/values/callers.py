"""Slots for callers without a job."""

from __future__ import annotations

from datetime import datetime

import msgspec

from qo.job import NORMAL


class Ticket(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A caller's request for one slot in each of `groups`, all or nothing."""

    holder: str
    groups: tuple[str, ...]
    lease_ms: int
    wait_ms: int = 15_000
    """How long the ticket lives without a renewal. With 0 the caller does not wait."""
    priority: int = NORMAL
    worker: str | None = None


class Grant(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The answer to a ticket. Without a `token` nothing was granted; `waiting` then says whether the ticket is kept.
    `slots` is as in `Lease`."""

    holder: str
    token: str | None = None
    slots: dict[str, int] = {}
    expires_at: datetime | None = None
    waiting: bool = False
