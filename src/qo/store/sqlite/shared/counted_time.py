"""The two times on which leases and spans end; `store/__init__.py` has the rules ("counted", "steady").

Both are the store's clock less one number, so a gap or a fall of the clock moves all ends without rewriting them.
"""

from __future__ import annotations

from qo.store.sqlite.shared.step import Step


def counted_now(step: Step) -> int:
    """The present time on the scale on which leases and tickets end."""
    return step.now - step.number("uncounted_ms")


def steady_now(step: Step) -> int:
    """The present time on the scale on which spans end."""
    return step.now - step.number("fallen_ms")


def on_the_clock(step: Step, counted: int) -> int:
    """An end on counted time as a time of the store's clock, if no further gap comes."""
    return counted + step.number("uncounted_ms")


def note_time(step: Step) -> bool:
    """Note the present time, and return whether a gap has just ended."""
    noted_at = step.counter("noted_at")
    ends_gap = False
    if noted_at is not None:
        lease_ms, passed = step.number("lease_ms"), step.now - noted_at
        ends_gap = passed * 2 > lease_ms
        if ends_gap:
            _note_gap(step, passed)
        elif passed < -lease_ms:
            step.set_counter("uncounted_ms", step.number("uncounted_ms") + passed)
            step.set_counter("fallen_ms", step.number("fallen_ms") + passed)
    step.set_counter("noted_at", step.now)
    return ends_gap


def note_renewal(step: Step, renewed_ms: int, *, ends_gap: bool) -> None:
    """Note that a lease was renewed, so that the next gap counts for no lease: a live holder could not renew in it.

    A long lease may be renewed so seldom that each time is a gap. It does not count, or no lease would ever run out.
    """
    is_long = renewed_ms * 2 > step.number("lease_ms") * 3
    if not (ends_gap and is_long) and not step.number("renewed_since_gap"):
        step.set_counter("renewed_since_gap", 1)


def _note_gap(step: Step, passed: int) -> None:
    if step.number("renewed_since_gap"):
        step.set_counter("uncounted_ms", step.number("uncounted_ms") + passed)
    else:
        # Leases from before the last gap were not renewed since, so for them this gap counts. Leases that began after
        # it may not have been due for a renewal yet. They are few: none is older than a third of a lease.
        last_token_before = step.number("token_at_gap")
        step.db.execute("UPDATE lease SET expires_at = expires_at + ? WHERE token > ?", (passed, last_token_before))
    step.set_counter("renewed_since_gap", 0)
    step.set_counter("token_at_gap", step.number("last_token"))
