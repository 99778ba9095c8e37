"""`qo history`: jobs that have ended, and the figures of each day."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

import click

from qo.cli.job_ids import id_column
from qo.cli.options import Target, store_options
from qo.cli.output import show_json, show_table
from qo.cli.running import reading
from qo.cli.table import LEAST, Column
from qo.cli.terminal import say
from qo.cli.wording import COLOURS, brief_age, brief_attempts
from qo.job import Job
from qo.policy.daily import DailyFigures, daily_figures
from qo.policy.words import brief_span, counted
from qo.queue.queue import Queue
from qo.store.paging import read_jobs
from qo.values import Wanted

if TYPE_CHECKING:
    from qo.history.reading import HistoryReader

JOBS_OF_A_STORE = 2000
"""Where no database keeps the history, daily figures are those of so many newest ended jobs."""


@click.command()
@click.option("--status", help="Only those with this end: succeeded, failed or cancelled.")
@click.option("--user", help="Only this user's.")
@click.option("--task", help="Only those of this task.")
@click.option("--tier", help="Only those of this tier.")
@click.option("--project", help="Only those of this project.")
@click.option("--parent", help="Only those of this parent.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="At most so many.")
@click.option("--daily", is_flag=True, help="Instead of jobs: the figures of each day.")
@click.option(
    "--days", type=click.IntRange(1, 400), default=30, show_default=True, help="With --daily: of the last so many days."
)
@store_options
def history(target: Target, *, daily: bool, days: int, limit: int, **filters: Any) -> None:
    """List jobs that have ended, the newest first: from PostgreSQL where [history] names one, else from the store."""
    wanted = cast(Wanted, filters)
    if daily:
        figures = reading(target, lambda queue: _read_daily(queue, days, wanted))
        if target.as_json:
            show_json(figures)
        else:
            _show_daily(figures)
        return
    found = reading(target, lambda queue: _read_jobs(queue, limit, wanted))
    if target.as_json:
        show_json(found)
    elif not found:
        say("The history has no such jobs.")
    else:
        _show_jobs(found)
        if len(found) == limit:
            say(f"These are the newest {counted(limit, 'job')}; see more with --limit.")


@asynccontextmanager
async def _reader(queue: Queue) -> AsyncIterator[HistoryReader | None]:
    url = queue.settings.history.url
    if url is None or queue.store.outbox is None:
        yield None
        return
    from qo.history.reading import HistoryReader

    reader = HistoryReader(url)
    try:
        yield reader
    finally:
        await reader.close()


async def _read_jobs(queue: Queue, limit: int, wanted: Wanted) -> list[Job]:
    async with _reader(queue) as reader:
        if reader is not None:
            return list((await reader.page(limit=limit, **wanted)).jobs)
    wanted["ended"] = True
    return await read_jobs(queue.store, limit=limit, newest_first=True, **wanted)


async def _read_daily(queue: Queue, days: int, wanted: Wanted) -> list[DailyFigures]:
    since = queue.system.now().replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=days - 1)
    async with _reader(queue) as reader:
        if reader is not None:
            return await reader.daily(since=since, **wanted)
    wanted["ended"] = True
    jobs = await read_jobs(queue.store, limit=JOBS_OF_A_STORE, newest_first=True, **wanted)
    return daily_figures(job for job in jobs if job.submitted_at >= since)


def _show_jobs(found: list[Job]) -> None:
    colours = [COLOURS.get(job.state) for job in found]
    show_table(
        [
            id_column("id", [job.id for job in found]),
            Column("task", [job.task for job in found], least=LEAST),
            Column("end", [job.status for job in found], least=LEAST, colours=colours),
            Column("waited", [_between(job.joined_at, job.started_at) for job in found], leaves=2, is_number=True),
            Column("ran", [_between(job.started_at, job.finished_at) for job in found], leaves=3, is_number=True),
            Column("user", [job.user or "" for job in found], leaves=4, least=LEAST),
            Column("tier", [job.tier or "" for job in found], leaves=6, least=LEAST),
            Column("tries", [brief_attempts(job) for job in found], leaves=5),
            Column("age", [brief_age(job.submitted_at) for job in found], leaves=1, is_number=True),
        ]
    )


def _between(first: datetime | None, last: datetime | None) -> str:
    return "" if first is None or last is None else brief_span((last - first).total_seconds())


def _show_daily(figures: list[DailyFigures]) -> None:
    if not figures:
        say("The history has nothing of these days.")
        return
    counts = {
        "succeeded": [each.succeeded for each in figures],
        "failed": [each.failed for each in figures],
        "cancelled": [each.cancelled for each in figures],
        "unfinished": [each.unfinished for each in figures],
    }
    spans = dict(
        zip(
            ("waited p50", "waited p95", "ran p50", "ran p95"),
            zip(*map(_seconds_of, figures), strict=True),
            strict=True,
        )
    )
    show_table(
        [
            Column("day", [str(each.day) for each in figures]),
            *(Column(name, [str(count) for count in of_days], is_number=True) for name, of_days in counts.items()),
            *(
                Column(name, ["" if each is None else brief_span(each) for each in of_days], leaves=1, is_number=True)
                for name, of_days in spans.items()
            ),
        ]
    )


def _seconds_of(figures: DailyFigures) -> tuple[float | None, ...]:
    return figures.wait_p50, figures.wait_p95, figures.run_p50, figures.run_p95
