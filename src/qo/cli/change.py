"""`qo cancel`, `qo retry`, `qo confirm`: decisions of people about a job."""

from __future__ import annotations

import click

from qo.cli.options import Target, by_option, store_options
from qo.cli.output import say, show_json
from qo.cli.running import on_queue
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
    """Cancel the job ID, or all unfinished ones of a parent: at once if waiting, within a second if running."""

    async def cancelled(queue: Queue) -> Job | list[Job]:
        if job_id is not None:
            return await queue.cancel(job_id, message=message, by=by)
        assert parent is not None
        return await queue.cancel(parent=parent, message=message, by=by)

    if (job_id is None) == (parent is None):
        raise click.UsageError("Say what to cancel: the ID of a job, or --parent.", click.get_current_context())
    show_changed(target, on_queue(target, cancelled))


@click.command()
@click.argument("job_id", metavar="ID")
@by_option
@store_options
def retry(target: Target, *, job_id: str, by: str | None) -> None:
    """Put the failed job ID in line again, with all its attempts."""
    show_changed(target, on_queue(target, lambda queue: queue.retry(job_id, by=by)))


@click.command()
@click.argument("job_id", metavar="ID")
@by_option
@store_options
def confirm(target: Target, *, job_id: str, by: str | None) -> None:
    """Let the job ID, which waits for a confirmation, go on for another batch of iterations."""
    show_changed(target, on_queue(target, lambda queue: queue.confirm(job_id, by=by)))


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
