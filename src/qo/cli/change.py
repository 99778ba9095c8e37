"""`qo cancel`, `qo retry`, `qo confirm`: decisions of people about a job."""

from __future__ import annotations

from typing import Any

import click

from qo.cli.filters import filters
from qo.cli.job_ids import whole_id
from qo.cli.options import Target, by_option, store_options
from qo.cli.output import show_json
from qo.cli.running import on_queue
from qo.cli.terminal import say
from qo.cli.wording import job_sentence
from qo.job import Job
from qo.queue.queue import Queue


@click.command()
@click.argument("job_id", metavar="[ID]", required=False)
@click.option("--parent", help="Cancel all unfinished jobs of this parent instead of one job.")
@click.option("--message", help="The reason, shown to the user who submitted it.")
@by_option
@store_options
def cancel(target: Target, *, job_id: str | None, parent: str | None, message: str | None, by: str | None) -> None:
    """Cancel the job ID, or all unfinished ones of a parent: at once if waiting, within a second if running.

    ID may be the beginning of an id.
    """

    async def cancelled(queue: Queue) -> Job | list[Job]:
        if job_id is not None:
            return await queue.cancel(await whole_id(queue, job_id), message=message, by=by)
        assert parent is not None
        return await queue.cancel(parent=parent, message=message, by=by)

    if job_id is None and parent is None:
        raise click.UsageError("Say what to cancel: the ID of a job, or --parent.", click.get_current_context())
    if job_id is not None and parent is not None:
        raise click.UsageError(
            f"The ID {job_id!r} and --parent were both given; give one of them.", click.get_current_context()
        )
    show_changed(target, on_queue(target, cancelled))


@click.command()
@click.argument("job_id", metavar="[ID]", required=False)
@click.option("--all-failed", is_flag=True, help="Retry every failed job that fits the options below, instead of one.")
@filters
@click.option("--dry-run", is_flag=True, help="With --all-failed: only say how many there are.")
@by_option
@store_options
def retry(
    target: Target, *, job_id: str | None, all_failed: bool, dry_run: bool, by: str | None, **wanted: Any
) -> None:
    """Put the failed job ID in line again, with all its attempts.

    Or with --all-failed, all jobs that have failed until now and that fit the filters.
    ID may be the beginning of an id.
    """
    _check_retry(job_id, all_failed=all_failed, narrowed=dry_run or any(value is not None for value in wanted.values()))
    if all_failed:
        from qo.cli.retry_all import retry_all_failed

        retry_all_failed(target, dry_run=dry_run, by=by, **wanted)
        return
    named = job_id
    assert named is not None

    async def retried(queue: Queue) -> Job:
        return await queue.retry(await whole_id(queue, named), by=by)

    show_changed(target, on_queue(target, retried))


def _check_retry(job_id: str | None, *, all_failed: bool, narrowed: bool) -> None:
    context = click.get_current_context()
    if job_id is None and not all_failed:
        raise click.UsageError("Say what to retry: the ID of a job, or --all-failed.", context)
    if job_id is not None and all_failed:
        raise click.UsageError(f"The ID {job_id!r} and --all-failed were both given; give one of them.", context)
    if narrowed and not all_failed:
        raise click.UsageError("--dry-run and the filters (--task, --user, …) are for --all-failed; add it.", context)


@click.command()
@click.argument("job_id", metavar="ID")
@by_option
@store_options
def confirm(target: Target, *, job_id: str, by: str | None) -> None:
    """Let the job ID, which waits for a confirmation, go on for another batch of iterations.

    ID may be the beginning of an id.
    """

    async def confirmed(queue: Queue) -> Job:
        return await queue.confirm(await whole_id(queue, job_id), by=by)

    show_changed(target, on_queue(target, confirmed))


def show_changed(target: Target, changed: Job | list[Job]) -> None:
    """Print one or more jobs after they were changed."""
    if target.as_json:
        show_json(changed)
    elif isinstance(changed, Job):
        say(job_sentence(changed))
    else:
        for job in changed:
            say(job_sentence(job))
        if not changed:
            say("It has no unfinished jobs, so nothing was changed.")
