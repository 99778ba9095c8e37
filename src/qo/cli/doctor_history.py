"""The part of `qo doctor` that is about the history: a recorder that is behind, and jobs that the store has lost."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from qo.cli.finding import Finding
from qo.errors import QoError
from qo.policy.words import counted
from qo.queue.queue import Queue
from qo.store.outbox import OutboxStatus

if TYPE_CHECKING:
    from qo.history.reading import Unended

BEHIND_SECONDS = 60
MANY_RECORDS = 100_000
SETTLED = timedelta(minutes=1)
"""A younger job may have been accepted since the store was read."""
JOBS_AT_ONCE = 500
NAMED = 5


async def about_the_history(queue: Queue) -> list[Finding]:
    if queue.store.outbox is None:
        return []
    status = await queue.store.outbox.status()
    findings = _about_the_recorder(status)
    url = queue.settings.history.url
    if url is not None:
        try:
            lost = await _lost_jobs(queue, url)
        except QoError as error:
            findings.append(Finding("history", str(error), "See docs/history.md for the url and the rights it needs."))
        else:
            findings += _about_lost_jobs(lost)
    return findings


def _about_the_recorder(status: OutboxStatus) -> list[Finding]:
    found = []
    if status.length >= MANY_RECORDS or status.age_seconds > BEHIND_SECONDS:
        then = "they are dropped" if status.options.drops else "submits are refused"
        wait = "waits" if status.length == 1 else "wait"
        found.append(
            Finding(
                "history",
                f"{counted(status.length, 'record')} {wait} for the recorder, the oldest for "
                f"{status.age_seconds:.0f} s; at {status.options.most} {then}.",
                "Look whether `qo record`, or a `qo serve` with [history] url, runs and reaches PostgreSQL.",
            )
        )
    if status.dropped:
        found.append(
            Finding(
                "history",
                f"{counted(status.dropped, 'record')} {'was' if status.dropped == 1 else 'were'} dropped by a full "
                "outbox, so the history has gaps.",
                'Keep a recorder running, raise outbox_max, or set on_full = "refuse" under [history].',
            )
        )
    return found


def _about_lost_jobs(lost: list[Unended]) -> list[Finding]:
    if not lost:
        return []
    names = ", ".join(f"{job.id} ({job.task}, {job.submitted_at:%Y-%m-%d %H:%M} UTC)" for job in lost[:NAMED])
    more = f" and {len(lost) - NAMED} more" if len(lost) > NAMED else ""
    return [
        Finding(
            "history",
            f"{counted(len(lost), 'job')} stayed accepted in the history and are not in the store: {names}{more}.",
            "The store has lost them, as in a failover without replication; submit them again if they still matter.",
        )
    ]


async def _lost_jobs(queue: Queue, url: str) -> list[Unended]:
    """Jobs without an end in the history that the store does not know, the oldest first."""
    from qo.history.reading import HistoryReader

    reader = HistoryReader(url)
    lost: list[Unended] = []
    try:
        before, last = queue.system.now() - SETTLED, None
        while portion := await reader.unended(before=before, limit=JOBS_AT_ONCE, after=last):
            found = (await queue.store.jobs(ids=[each.id for each in portion])).jobs
            known = {(job.id, job.submitted_at) for job in found}
            lost += [each for each in portion if (each.id, each.submitted_at) not in known]
            last = portion[-1]
    finally:
        await reader.close()
    # One that ended and was forgotten while its end waited in the outbox has its end by now, or gets it soon.
    waiting = (await queue.store.outbox.status()).age_seconds if queue.store.outbox is not None else 0
    return lost if waiting < BEHIND_SECONDS else []
