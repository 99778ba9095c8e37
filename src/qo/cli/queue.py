"""`qo queue`: the line, and the changes that operators make to it."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from qo.cli.change import show_changed
from qo.cli.group_names import unused_warning
from qo.cli.job_ids import whole_id
from qo.cli.jobs import show_jobs
from qo.cli.lazy import Group
from qo.cli.options import Target, by_option, store_options
from qo.cli.options import priority as parsed_priority
from qo.cli.output import show_json, warn
from qo.cli.running import on_queue, reading
from qo.cli.terminal import say
from qo.job import Job
from qo.policy.analytics import Analytics
from qo.policy.groups import GLOBAL
from qo.policy.words import counted
from qo.queue.queue import Queue
from qo.values import GroupStatus


@click.group(cls=Group)
def queue() -> None:
    """The line: its jobs in their order, and the groups that are paused."""


@queue.command("list")
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="At most so many.")
@store_options
def list_line(target: Target, *, limit: int) -> None:
    """Show the jobs in line, in their order."""

    async def read(line: Queue) -> tuple[list[Job], Analytics, list[GroupStatus]]:
        return await line.jobs(status="queued", limit=limit), await line.analytics(), await line.limits()

    waiting, figures, groups = reading(target, read)
    paused = [group.group for group in groups if group.paused]
    if target.as_json:
        show_json(waiting)
        return
    if waiting:
        show_jobs(waiting)
    workers = f"{counted(figures.workers, 'worker')} with a capacity of {figures.capacity}"
    say(f"{counted(figures.waiting, 'job')} in line, {figures.running} running on {workers}.")
    if paused:
        say(f"Paused: {', '.join(paused)}.")


@queue.command()
@click.argument("job_id", metavar="ID")
@click.option("--before", metavar="OTHER", help="Put it directly before this job.")
@click.option("--after", metavar="OTHER", help="Put it directly behind this job.")
@by_option
@store_options
def move(target: Target, *, job_id: str, before: str | None, after: str | None, by: str | None) -> None:
    """Move the job ID before or after another job in line. It takes on that job's priority."""
    if before is None and after is None:
        raise click.UsageError("Say where to: --before OTHER, or --after OTHER.", click.get_current_context())
    if before is not None and after is not None:
        raise click.UsageError("--before and --after were both given; give one of them.", click.get_current_context())

    async def moved(line: Queue) -> Job:
        moving = await whole_id(line, job_id)
        if before is not None:
            return await line.move(moving, before=await whole_id(line, before), by=by)
        assert after is not None
        return await line.move(moving, after=await whole_id(line, after), by=by)

    show_changed(target, on_queue(target, moved))


@queue.command()
@click.argument("group", default=GLOBAL)
@by_option
@store_options
def pause(target: Target, *, group: str, by: str | None) -> None:
    """Start no more jobs of GROUP; without GROUP, no jobs at all."""
    _set_paused(target, group, paused=True, by=by)


@queue.command()
@click.argument("group", default=GLOBAL)
@by_option
@store_options
def resume(target: Target, *, group: str, by: str | None) -> None:
    """Start jobs of GROUP again; without GROUP, of all groups that are not paused themselves."""
    _set_paused(target, group, paused=False, by=by)


@queue.command()
@click.argument("job_id", metavar="[ID]", required=False)
@click.argument("priority", type=parsed_priority, required=False)
@click.option("--parent", help="Set it for all unfinished jobs of this parent instead of one job.")
@by_option
@store_options
def priority(target: Target, *, job_id: str | None, priority: int | None, parent: str | None, by: str | None) -> None:
    """Set the PRIORITY of the waiting job ID: 0 (soonest) to 99, or urgent, high, normal, low, background."""
    context = click.get_current_context()
    if parent is not None and priority is None:  # the only argument is the priority
        job_id, priority = None, parsed_priority(job_id) if job_id is not None else None
    if priority is None or (job_id is None) == (parent is None):
        raise click.UsageError("Say `qo queue priority ID PRIORITY`, or `--parent PARENT PRIORITY`.", context)

    async def changed(line: Queue) -> Job | list[Job]:
        if job_id is not None:
            return await line.set_priority(await whole_id(line, job_id), priority, by=by)
        assert parent is not None
        return await line.set_priority(priority=priority, parent=parent, by=by)

    show_changed(target, on_queue(target, changed))


def _set_paused(target: Target, group: str, *, paused: bool, by: str | None) -> None:
    which = "everything" if group == GLOBAL else group

    async def pause(line: Queue) -> tuple[GroupStatus, str]:
        await line.pause(group, by=by)
        if (warning := await unused_warning(line, group)) is not None:
            warn(warning, as_json=target.as_json)
        status = await line.limit(group)
        return status, f"Paused {which}: nobody new starts, {counted(status.active, 'holder')} may finish."

    async def resume(line: Queue) -> tuple[GroupStatus, str]:
        was_paused = (await line.limit(group)).paused
        await line.resume(group, by=by)
        status = await line.limit(group)
        if was_paused:
            return status, f"Resumed {which}."
        others = [other.group for other in await line.limits() if other.paused]
        still = f"paused are {', '.join(others)}" if others else "nothing is"
        return status, f"{group} was not paused; {still}."

    status, sentence = on_queue(target, pause if paused else resume, creates=paused)
    if target.as_json:
        show_json(group_as_json(status))
    else:
        say(sentence)


def group_as_json(status: GroupStatus) -> dict[str, Any]:
    """A group with the name of its limit's source; the source's number has a meaning only inside a store."""
    value: dict[str, Any] = msgspec.to_builtins(status)
    return value | {"source": None if status.source is None else status.source.name.lower()}
