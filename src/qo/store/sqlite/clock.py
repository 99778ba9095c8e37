"""Noting the time: a gap delays expiry once, a clock that fell back takes all deadlines with it."""

from __future__ import annotations

from qo.store.sqlite.step import Step


def note_time(step: Step, lease_ms: int) -> None:
    noted_at = step.counter("noted_at")
    if noted_at is not None:
        gap = step.now - noted_at
        delayed_already = step.number("no_expiry_before") > noted_at
        if gap * 3 > lease_ms * 2 and not delayed_already:
            # The store was away or its clock jumped: holders could not renew, so give them time to. Once: who has
            # not renewed by the next look is gone, even if everybody looks less often than leases last.
            step.set_counter("no_expiry_before", step.now + lease_ms // 2)
        elif gap < -lease_ms:
            _shift_deadlines(step, gap)
    step.set_counter("noted_at", step.now)


def _shift_deadlines(step: Step, gap: int) -> None:
    step.db.execute("UPDATE lease SET expires_at = expires_at + ?", (gap,))
    step.db.execute("UPDATE ticket SET expires_at = expires_at + ?", (gap,))
    step.db.execute("UPDATE grp SET closed_until = closed_until + ? WHERE closed_until IS NOT NULL", (gap,))
    step.set_counter("no_expiry_before", step.number("no_expiry_before") + gap)
    step.groups.reload()
