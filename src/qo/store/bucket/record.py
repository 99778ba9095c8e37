"""The JSON that the objects contain. Every body has a unique mark, so no two writes are equal.

A process recognises its own writes by the mark. Also, S3 makes an ETag from the content: if two bodies could be equal,
a condition on an old record could hold again.
"""

from __future__ import annotations

from datetime import datetime
from typing import TypeVar

import msgspec

from qo.errors import StoreUnavailable


class SlotRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The state of one slot. It is free when `holder` is None."""

    holder: str | None
    worker_id: str | None
    token: int
    """Greater than the token of any earlier holder of this slot. A free slot keeps the last one."""
    lease_seconds: float
    """The lease that the holder asked for, and that each renewal gives."""
    free_after_seconds: float
    """A process that has seen this record unchanged for this long may take the slot."""
    renewals: int
    expires_at: datetime
    """For people to read: the end of the lease on the writer's wall clock. No code compares it."""
    mark: str
    limit: int | None = None
    """The limit that the holder gave when it took the slot. A limit that was set on the group wins over it."""


class LimitRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A group's limit. `slots` is None when the limit was removed."""

    slots: int | None
    set_at: datetime
    set_by: str | None
    mark: str


Record = TypeVar("Record", SlotRecord, LimitRecord)


def encode(record: SlotRecord | LimitRecord) -> bytes:
    return msgspec.json.encode(record)


def decode(body: bytes, kind: type[Record], *, key: str) -> Record:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as wrong:
        # Taking such a slot might exceed the limit; skipping it would silently lose a slot.
        raise StoreUnavailable(
            f"The object {key!r} was not written by this version of qo ({wrong}); see what it is, then remove it."
        ) from None
