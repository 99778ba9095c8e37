"""`qo jobs`: a list of jobs."""

from __future__ import annotations

from typing import Any

import click

from qo.cli.filters import STATES, STATUSES, filters, listed
from qo.cli.job_ids import id_column
from qo.cli.options import Target, store_options
from qo.cli.output import show_json, show_table
from qo.cli.running import reading
from qo.cli.table import LEAST, Column
from qo.cli.terminal import note, say
from qo.cli.wording import COLOURS, brief_age, brief_attempts
from qo.job import READY, Basis, Job
from qo.policy.estimates.base import NOW
from qo.policy.words import brief_range

GUESS = "~"


@click.command()
@click.option("--status", help=f"Only those with this status: {STATUSES}.")
@filters
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="At most so many.")
@store_options
def jobs(target: Target, *, limit: int, **wanted: Any) -> None:
    """List jobs: those in line in their order, then the others, newest first.

    A terminal shows as many columns as fit, and shortened ids, which every command takes. --json, or a pipe, has
    everything.
    """
    found = reading(target, lambda queue: listed(queue, limit=limit, **wanted))
    if target.as_json:
        show_json(found)
    elif not found:
        given = any(value is not None for value in wanted.values())
        say("There are no such jobs." + _about_status(wanted["status"]) if given else "There are no jobs.")
    else:
        show_jobs(found)
        if len(found) == limit:
            say(f"These are the first {limit}; see more with --limit.")


def _about_status(status: str | None) -> str:
    """What to say of a status that is a slip, as far as the command can tell."""
    if status is None or status in (*STATES, READY):
        return ""
    return f" {status!r} is no state, so it was taken for a stage; the states are {', '.join(STATES)} and {READY}."


def show_jobs(found: list[Job]) -> None:
    """Print a table with the columns that are not empty for these jobs, and that fit the terminal."""
    colours = [COLOURS.get(job.state) for job in found]
    show_table(
        [
            Column("#", [_text(job.position) for job in found], is_number=True),
            id_column("id", [job.id for job in found]),
            Column("task", [job.task for job in found], least=LEAST),
            Column("status", [job.status for job in found], least=LEAST, colours=colours),
            Column("starts in", [_start_of(job) for job in found], leaves=2),
            Column("prio", [f"{job.priority}" for job in found], leaves=3, is_number=True),
            Column("user", [job.user or "" for job in found], leaves=4, least=LEAST),
            Column("parent", [_parent_of(job) for job in found], leaves=6, least=LEAST),
            Column("tier", [job.tier or "" for job in found], leaves=7, least=LEAST),
            Column("tries", [brief_attempts(job) for job in found], leaves=5),
            Column("age", [brief_age(job.submitted_at) for job in found], leaves=1, is_number=True),
        ]
    )
    if any(_is_guess(job) for job in found):
        note(f"{GUESS} is a first guess: no such job has ended yet.")


def _start_of(job: Job) -> str:
    """The estimate in short; `qo job` has room for the reason when it is not known."""
    estimate = job.estimate
    if estimate is None:
        return ""
    if estimate.message == NOW:
        return NOW
    if estimate.lower_bound is None or estimate.upper_bound is None:
        return "not known"
    return f"{GUESS if _is_guess(job) else ''}{brief_range(estimate.lower_bound, estimate.upper_bound)}"


def _is_guess(job: Job) -> bool:
    return job.estimate is not None and job.estimate.basis is Basis.FIRST_GUESS


def _parent_of(job: Job) -> str:
    return job.parent or "" if job.phase is None else f"{job.parent}, phase {job.phase}"


def _text(value: object) -> str:
    return "" if value is None else str(value)
