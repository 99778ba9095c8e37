"""What the objects hold, as JSON. Every body has a mark of its own, so no two writes are alike.

That is more than a way to know one's own writes again: S3 makes an ETag from the content, and with the same content
a condition on a record of long ago would hold again.
"""

from __future__ import annotations

from datetime import datetime
from typing import TypeVar

import msgspec

from qo.errors import StoreUnavailable


class SlotRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Who holds a slot. `holder` None: nobody does."""

    holder: str | None
    worker_id: str | None
    token: int
    """of this holding: larger than that of every holding of this slot before. A free record keeps the last one"""
    lease_seconds: float
    """what was asked for, and what a renewal gives"""
    free_after_seconds: float
    """who has seen this very record for so long may take the slot"""
    renewals: int
    expires_at: datetime
    """by the clock of whoever wrote this: for people to read, compared with nothing"""
    mark: str
    limit: int | None = None
    """The limit that the holder gave when it took the slot. A limit that was set on the group counts instead."""


class LimitRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How many slots a group has. None: the limit was removed."""

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
        # Neither free nor held: to take such a slot might over-subscribe, to pass it by would lose it silently.
        raise StoreUnavailable(
            f"The object {key!r} was not written by this version of qo ({wrong}); see what it is, then remove it."
        ) from None
