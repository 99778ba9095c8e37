"""What a holder knows of its own slot."""

from __future__ import annotations

import msgspec

from qo.store.bucket.objects import Stored
from qo.store.bucket.record import SlotRecord

CLOCK_DRIFT = 0.01
"""Two clocks that nobody sets still do not run at quite the same speed. A hundredth is far more than they differ by,
and leaves a holder a moment to stop in."""


class SlotLease(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A slot that was held when this was made. Nobody else takes it before `deadline`, so the work must stop by then.

    `sent_at` is when the last write that succeeded was *sent*, by the elapsed clock of the `BucketSlots` it is from.
    A contender begins to count when it has received that write, which is later on every clock: so a holder that
    cannot renew gives up first, whatever the clocks on the walls say.
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
        """Larger than that of every earlier holding of this slot: what guards a resource may refuse smaller ones."""
        return self.record.token

    @property
    def ends_at(self) -> float:
        return self.sent_at + self.record.free_after_seconds

    @property
    def deadline(self) -> float:
        return self.sent_at + self.record.free_after_seconds * (1 - CLOCK_DRIFT)

    def still_held(self, now: float) -> bool:
        return now < self.deadline
