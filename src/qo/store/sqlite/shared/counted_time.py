"""The scales on which leases and spans end; `store/base.py` says what counts on each ("counted", "steady").

Both are the store's clock less one number, so that a gap or a fall moves all ends at once and rewrites none of them.
"""

from __future__ import annotations

from qo.store.sqlite.step import Step


def counted_now(step: Step) -> int:
    """Now on the scale on which leases and tickets end."""
    return step.now - step.number("uncounted_ms")


def steady_now(step: Step) -> int:
    """Now on the scale on which spans end."""
    return step.now - step.number("fallen_ms")


def on_the_clock(step: Step, counted: int) -> int:
    """When an end on counted time comes by the store's clock, as it stands."""
    return counted + step.number("uncounted_ms")


def note_time(step: Step) -> bool:
    """Whether a gap has just ended."""
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
    """A lease was renewed, so the next gap counts for nothing: somebody lives who could not renew in it.

    But a long lease may be renewed so seldom that each time is a gap, and that would stop time for everybody.
    """
    is_long = renewed_ms * 2 > step.number("lease_ms") * 3
    if not (ends_gap and is_long) and not step.number("renewed_since_gap"):
        step.set_counter("renewed_since_gap", 1)


def _note_gap(step: Step, passed: int) -> None:
    if step.number("renewed_since_gap"):
        step.set_counter("uncounted_ms", step.number("uncounted_ms") + passed)
    else:
        # Whoever held a lease at the gap before has not renewed it since: for those the gap counts. Leases that began
        # since then may not have been due for a renewal yet. They are few: nobody has held one for a third of its time.
        last_token_before = step.number("token_at_gap")
        step.db.execute("UPDATE lease SET expires_at = expires_at + ? WHERE token > ?", (passed, last_token_before))
    step.set_counter("renewed_since_gap", 0)
    step.set_counter("token_at_gap", step.number("last_token"))
