"""What a worker says in its log of the jobs it runs."""

from __future__ import annotations

import logging

from qo.job import State
from qo.policy.words import short_span
from qo.store.values import Lease, Outcome

log = logging.getLogger("qo.worker")


def told(outcome: Outcome) -> str:
    if outcome.state is State.QUEUED:
        return "handed back to its place"
    if outcome.state is State.SCHEDULED and outcome.retry_after_ms is not None:
        return f"failed, to be tried again in {short_span(outcome.retry_after_ms / 1000)}"
    return outcome.state.value


def log_start(lease: Lease) -> None:
    """Not where it stood at the end, which a store would have to count its line for."""
    job = lease.job
    about = [f"priority {job.priority}"]
    if job.position_original is not None:
        about.append(f"joined as #{job.position_original}")
    if job.started_at is not None and job.joined_at is not None:
        about.append(f"waited {short_span((job.started_at - job.joined_at).total_seconds())}")
    if lease.slots:
        about.append("slots " + " ".join(f"{group}#{number}" for group, number in lease.slots.items()))
    log.info("starting %s %s (%s)", job.task, job.id, ", ".join(about))
