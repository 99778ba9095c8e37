"""`qo retry --all-failed`: every job that has failed, in one call."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any

import msgspec

from qo.cli.options import Target
from qo.cli.output import show_json
from qo.cli.progress import Progress
from qo.cli.running import on_queue, reading
from qo.cli.terminal import say
from qo.errors import InvalidTransition, JobNotFound
from qo.job import State
from qo.policy.words import counted
from qo.queue.queue import Queue

AT_ONCE = 500
SKIPPED_SHOWN = 10


class Skipped(msgspec.Struct, frozen=True):
    id: str
    reason: str


class Retried(msgspec.Struct, frozen=True):
    retried: Sequence[str]
    skipped: Sequence[Skipped]


def retry_all_failed(target: Target, *, dry_run: bool, by: str | None, **wanted: Any) -> None:
    """Retry the failed jobs that fit and that failed before this call began, and print how many those were."""
    if dry_run:
        _show_count(target, len(reading(target, lambda queue: _failed(queue, wanted))))
        return

    async def work(queue: Queue) -> Retried:
        return await _retry(queue, await _failed(queue, wanted), by=by, shows_progress=not target.as_json)

    _show(target, on_queue(target, work))


async def _failed(queue: Queue, wanted: dict[str, Any]) -> list[str]:
    """All ids are read before the first job is retried, because a job that fails again must not be met twice."""
    now = queue.system.now()
    return [job_id async for job_id in _pages(queue, wanted, before=now)]


async def _pages(queue: Queue, wanted: dict[str, Any], *, before: datetime) -> AsyncIterator[str]:
    after = None
    while True:
        page = await queue.store_here.jobs(status=State.FAILED, limit=AT_ONCE, after=after, **wanted)
        for job in page.jobs:
            if job.state is State.FAILED and (job.finished_at is None or job.finished_at <= before):
                yield job.id
        after = page.next
        if after is None:
            return


async def _retry(queue: Queue, ids: Sequence[str], *, by: str | None, shows_progress: bool) -> Retried:
    retried, skipped = [], []
    with Progress("retried", total=len(ids), shown=shows_progress) as progress:
        for job_id in ids:
            try:
                await queue.store_here.retry(job_id, by=by)
                retried.append(job_id)
            except (InvalidTransition, JobNotFound) as error:
                skipped.append(Skipped(job_id, str(error)))
            progress.add(1)
    return Retried(retried, skipped)


def _show_count(target: Target, count: int) -> None:
    if target.as_json:
        show_json({"dry_run": True, "count": count})
    else:
        say(f"{counted(count, 'failed job')} would be retried." if count else "There are no such failed jobs.")


def _show(target: Target, done: Retried) -> None:
    if target.as_json:
        show_json(done)
        return
    if not done.retried and not done.skipped:
        say("There are no such failed jobs, so nothing was changed.")
        return
    say(f"Retried {counted(len(done.retried), 'job')}.")
    for each in done.skipped[:SKIPPED_SHOWN]:
        say(f"Skipped: {each.reason}")
    if len(done.skipped) > SKIPPED_SHOWN:
        say(f"{len(done.skipped) - SKIPPED_SHOWN} more were skipped; --json has them all.")
