"""A slot that this process holds, and until when."""

from __future__ import annotations

import msgspec

from qo.store.bucket.objects import Stored
from qo.store.bucket.record import SlotRecord

CLOCK_DRIFT = 0.01
"""Clocks of two machines run at slightly different speeds. One percent is far more than they differ, and leaves a
holder some time to stop."""


class SlotLease(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A slot that was held when this was made. No other process takes it before `deadline`; the work must stop by then.

    `sent_at` is when the last successful write was *sent*, on the elapsed clock. A contender starts to count when it
    has received that write, which is always later. So a holder that cannot renew gives up first, whatever the wall
    clocks say.
    """

    group: str
    slot_id: int
    sent_at: float
    record: SlotRecord
    stored: Stored

    @property
    def holder(self) -> str | None:
        return self.record.holder

    @property
    def token(self) -> int:
        """Greater than the token of any earlier holder of this slot, so that a resource can reject late writes."""
        return self.record.token

    @property
    def ends_at(self) -> float:
        return self.sent_at + self.record.free_after_seconds

    @property
    def deadline(self) -> float:
        return self.sent_at + self.record.free_after_seconds * (1 - CLOCK_DRIFT)

    def still_held(self, now: float) -> bool:
        return now < self.deadline
