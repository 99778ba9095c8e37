"""`qo jobs`: a list of jobs."""

from __future__ import annotations

from typing import Any

import click

from qo.cli.options import Target, store_options
from qo.cli.output import say, show_json, show_table
from qo.cli.running import reading
from qo.cli.wording import age_text, attempts_text
from qo.job import Job
from qo.policy.words import counted

STATUSES = "queued, scheduled, waiting, starting, running, confirming, succeeded, failed, cancelled, ready or a stage"


@click.command()
@click.option("--status", help=f"Only those with this status: {STATUSES}.")
@click.option("--user", help="Only this user's.")
@click.option("--task", help="Only those of this task.")
@click.option("--parent", help="Only those of this parent.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="At most so many.")
@store_options
def jobs(target: Target, **filters: Any) -> None:
    """List jobs: those in line in their order, then the others, newest first."""
    found = reading(target, lambda queue: queue.jobs(newest_first=True, **filters))
    if target.as_json:
        show_json(found)
    elif not found:
        say(
            "There are no such jobs."
            if any(filters[key] for key in filters if key != "limit")
            else "There are no jobs."
        )
    else:
        show_jobs(found)
        if len(found) == filters["limit"]:
            say(f"These are the first {counted(len(found), 'job')}; see more with --limit.")


def _start_of(job: Job) -> str | None:
    """The estimate in a few words; `qo job` has room for the reason when it is not known."""
    if job.estimate is None:
        return None
    return "not known yet" if job.estimate.estimate_seconds is None else job.estimate.message


def show_jobs(found: list[Job]) -> None:
    """Print a table with the columns that are not empty for these jobs."""
    columns: dict[str, list[object]] = {
        "#": [job.position for job in found],
        "id": [job.id for job in found],
        "task": [job.task for job in found],
        "status": [job.status for job in found],
        "starts in": [_start_of(job) for job in found],
        "priority": [job.priority for job in found],
        "user": [job.user for job in found],
        "tier": [job.tier for job in found],
        "parent": [job.parent if job.phase is None else f"{job.parent} phase {job.phase}" for job in found],
        "attempts": [attempts_text(job.attempts, job) for job in found],
        "submitted": [f"{age_text(job.submitted_at)} ago" for job in found],
    }
    filled = {name: cells for name, cells in columns.items() if any(cell is not None for cell in cells)}
    show_table(list(filled), list(zip(*filled.values(), strict=True)))
