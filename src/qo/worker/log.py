"""The lines that a worker logs about its jobs, its name and its limits."""

from __future__ import annotations

import logging

from qo.job import State
from qo.policy.words import short_span
from qo.values import Finished, Lease, LimitChange, Outcome, WorkerInfo

log = logging.getLogger("qo.worker")


def log_start(lease: Lease) -> None:
    """Log a start. The last position in line is left out: the store would have to count for it."""
    job = lease.job
    about = [f"priority {job.priority}"]
    if job.position_original is not None:
        about.append(f"joined as #{job.position_original}")
    if job.started_at is not None and job.joined_at is not None:
        about.append(f"waited {short_span((job.started_at - job.joined_at).total_seconds())}")
    if lease.slots:
        about.append("slots " + " ".join(f"{group}#{number}" for group, number in lease.slots.items()))
    log.info("starting %s %s (%s)", job.task, job.id, ", ".join(about))


def log_end(task: str, outcome: Outcome, finished: Finished) -> None:
    """Log how the run ended. The store may have decided otherwise than the worker proposed."""
    if finished.lost:
        log.warning("the result of %s %s was refused: its lease %s was given away", task, outcome.job_id, outcome.token)
    elif log.isEnabledFor(logging.INFO):
        log.info("%s %s: %s", task, outcome.job_id, _end_in_words(outcome, finished))


def _end_in_words(outcome: Outcome, finished: Finished) -> str:
    match finished.state:
        case State.QUEUED:
            return "handed back to its place"
        case State.SCHEDULED if outcome.retry_after_ms is not None:
            return f"failed, to be tried again in {short_span(outcome.retry_after_ms / 1000)}"
        case State.FAILED if outcome.state is State.SCHEDULED:
            return "failed, all its attempts are used"
        case state:
            return str(state)


def log_taken_name(taken_by: WorkerInfo, own: str) -> None:
    process = "an unknown process" if taken_by.pid is None else f"process {taken_by.pid}"
    log.warning(
        "the name %r is taken by a live worker (%s on %s, last heard of at %s UTC), so this worker is %r; give each "
        "worker a name of its own, or none",
        taken_by.name,
        process,
        taken_by.host or "an unknown host",
        f"{taken_by.heard_at:%H:%M:%S}",
        own,
    )


def log_changed_limit(change: LimitChange, worker: str) -> None:
    group, slots, before = change.limit.group, change.limit.slots, change.before
    if before is None:
        log.info("the configuration of worker %s has limited %s to %d", worker, group, slots)
    else:
        log.warning(
            "the configuration of worker %s has changed the limit of %s from %d, which the %s had set, to %d",
            worker,
            group,
            before.slots,
            before.source.name.lower(),
            slots,
        )
