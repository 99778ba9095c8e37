"""revoke: end the lease of a slot's holder by hand.

Writes   as for a lease that has run out
Answers  the holder
Events   lease_lost and the job's new state. Audit "release"
"""

from __future__ import annotations

from qo.errors import LeaseAlive, SlotNotFound
from qo.store.sqlite.shared import sql
from qo.store.sqlite.shared.counted_time import counted_now
from qo.store.sqlite.shared.hand_over import hand_over
from qo.store.sqlite.shared.lease import lose_leases
from qo.store.sqlite.shared.step import Step


def revoke(step: Step, group: str, slot_id: int, *, force: bool = False, by: str | None = None) -> str:
    lease = sql.row(
        step.db,
        "SELECT lease.token, holder, job, expires_at FROM slot JOIN lease USING (token) WHERE grp = ? AND number = ?",
        (group, slot_id),
    )
    if lease is None:
        raise SlotNotFound(group, slot_id)
    token, holder, number, expires_at = lease
    if expires_at > counted_now(step) and not force:
        raise LeaseAlive(group, slot_id, holder)
    lose_leases(step, [(token, holder, number)], "revoked")
    step.audit(by, "release", group, {"slot": slot_id, "holder": holder, "force": force})
    hand_over(step)
    return str(holder)
