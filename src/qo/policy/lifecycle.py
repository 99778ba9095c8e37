"""The states that may follow each state. Every store uses this table."""

from __future__ import annotations

from qo.errors import InvalidTransition
from qo.job import ENDED, HELD, State

NEXT: dict[State, frozenset[State]] = {
    # The first three fail only because of `start_by`.
    State.SCHEDULED: frozenset({State.QUEUED, State.CANCELLED, State.FAILED}),
    State.WAITING: frozenset({State.QUEUED, State.CANCELLED, State.FAILED}),
    State.QUEUED: frozenset({State.STARTING, State.SCHEDULED, State.CANCELLED, State.FAILED}),
    State.STARTING: frozenset({State.RUNNING, State.QUEUED, State.SCHEDULED, State.FAILED, State.CANCELLED}),
    State.RUNNING: frozenset(
        {State.SUCCEEDED, State.FAILED, State.CONFIRMING, State.QUEUED, State.SCHEDULED, State.CANCELLED}
    ),
    State.CONFIRMING: frozenset({State.QUEUED, State.FAILED, State.CANCELLED}),
    State.FAILED: frozenset({State.QUEUED}),
    State.SUCCEEDED: frozenset(),
    State.CANCELLED: frozenset(),
}

WAITS = frozenset(State) - HELD - ENDED
"""The states of a job that has not ended and that no worker holds."""
PASSES_THROUGH_RUNNING = frozenset({State.SUCCEEDED, State.CONFIRMING})
"""Outcomes for which a job counts as having run, also when its worker never reported that it started."""
GIVES_WAY_TO_CANCEL = frozenset({State.SCHEDULED, State.QUEUED, State.CONFIRMING})
"""Outcomes that would continue a job. Where a cancel is wanted, the job is cancelled instead."""


def check_transition(job_id: str, present: State, wanted: State) -> None:
    """Raises `InvalidTransition`, which names the allowed states, when `wanted` may not follow `present`."""
    if wanted not in NEXT[present]:
        raise InvalidTransition(f"Job {job_id!r}", present.value, wanted.value, allowed_after(present))


def allowed_after(present: State) -> str:
    return ", ".join(sorted(state.value for state in NEXT[present])) or "nothing, it has ended"
