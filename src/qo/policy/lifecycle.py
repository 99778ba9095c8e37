"""Which state may follow which. Drawn once here; every store asks this table."""

from __future__ import annotations

from qo.errors import InvalidTransition
from qo.job import State

NEXT: dict[State, frozenset[State]] = {
    State.SCHEDULED: frozenset({State.QUEUED, State.CANCELLED}),
    State.WAITING: frozenset({State.QUEUED, State.CANCELLED}),
    State.QUEUED: frozenset({State.STARTING, State.SCHEDULED, State.CANCELLED}),
    State.STARTING: frozenset({State.RUNNING, State.QUEUED, State.SCHEDULED, State.FAILED, State.CANCELLED}),
    State.RUNNING: frozenset(
        {State.SUCCEEDED, State.FAILED, State.CONFIRMING, State.QUEUED, State.SCHEDULED, State.CANCELLED}
    ),
    State.CONFIRMING: frozenset({State.QUEUED, State.FAILED, State.CANCELLED}),
    State.FAILED: frozenset({State.QUEUED}),
    State.SUCCEEDED: frozenset(),
    State.CANCELLED: frozenset(),
}


def check_transition(job_id: str, present: State, wanted: State) -> None:
    """Raise `InvalidTransition`, naming what is allowed, when `wanted` may not follow `present`."""
    if wanted not in NEXT[present]:
        raise InvalidTransition(f"Job {job_id!r}", present.value, wanted.value, allowed_after(present))


def allowed_after(present: State) -> str:
    return ", ".join(sorted(state.value for state in NEXT[present])) or "nothing, it has ended"
