"""What a worker says in its log of the jobs it runs."""

from __future__ import annotations

import logging
import time

from qo.job import State
from qo.policy.words import span
from qo.store.values import Lease, Outcome

log = logging.getLogger("qo.worker")


def told(outcome: Outcome) -> str:
    if outcome.state is State.QUEUED:
        return "handed back to its place"
    if outcome.state is State.SCHEDULED and outcome.retry_at_ms is not None:
        return f"failed, to be tried again in {span(outcome.retry_at_ms / 1000 - time.time())}"
    return outcome.state.value


def log_start(lease: Lease) -> None:
    job = lease.job
    waited = (
        span((job.started_at - job.joined_at).total_seconds()) if job.started_at and job.joined_at else "not at all"
    )
    slots = " ".join(f"{group}#{number}" for group, number in lease.slots.items())
    log.info(
        "starting %s %s (priority %d, waited %s%s)",
        job.task,
        job.id,
        job.priority,
        waited,
        f", slots {slots}" if slots else "",
    )
