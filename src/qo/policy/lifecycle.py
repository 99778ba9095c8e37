"""The states that may follow each state. Every store uses this table."""

from __future__ import annotations

from enum import StrEnum

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


class Change(StrEnum):
    """What a person wants of a job."""

    RETRY = "retried"
    CONFIRM = "confirmed"
    CANCEL = "cancelled"
    MOVE = "moved"
    PRIORITY = "given another priority"


POSSIBLE_FOR = {
    Change.RETRY: "a failed job",
    Change.CONFIRM: "a job that asked for a confirmation",
    Change.CANCEL: "a job that has not ended",
    Change.MOVE: "a job in line",
    Change.PRIORITY: "a waiting job",
}


def refusal(job_id: str, present: str, change: Change) -> InvalidTransition:
    """The error for a person's change that the job's state does not allow: "only a failed job can be retried"."""
    rule = f"only {POSSIBLE_FOR[change]} can be {change}"
    return InvalidTransition(f"Job {job_id!r}", present, change, rule=rule)


def refused_retry(job_id: str, present: str, *, until: str) -> InvalidTransition:
    """The error for the retry of a failed job that would get in the way of another one."""
    return InvalidTransition(f"Job {job_id!r}", present, Change.RETRY, rule=f"it can be retried when {until}")


def key_is_free(job_id: str, unique_key: str) -> str:
    return f"job {job_id!r}, which has the same unique key {unique_key!r}, has ended"


def phase_succeeded(phase: int, parent: str | None) -> str:
    return f"phase {phase} of parent {parent!r} has succeeded"


def allowed_after(present: State) -> str:
    return ", ".join(sorted(state.value for state in NEXT[present])) or "nothing, it has ended"
