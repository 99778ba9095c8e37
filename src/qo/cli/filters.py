"""Which jobs a command is about: the filters of the dashboard and of GET /jobs, as options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from qo.cli.options import priority
from qo.job import Job
from qo.policy.checks import check_name
from qo.queue.queue import Queue

STATES = ("queued", "scheduled", "waiting", "starting", "running", "confirming", "succeeded", "failed", "cancelled")
STATUSES = f"{', '.join(STATES)}, ready or a stage"
MOST_OF_A_PAGE = 500

_OPTIONS = (
    click.option("--task", help="Only those of this task."),
    click.option("--user", help="Only this user's."),
    click.option("--project", help="Only those of this project."),
    click.option("--tier", help="Only those of this tier."),
    click.option("--priority", type=priority, help="Only those of this priority: 0 to 99, or a name such as high."),
    click.option("--parent", help="Only those of this parent."),
    click.option("--id", "id_prefix", metavar="BEGINNING", help="Only those whose id begins so."),
)


def filters(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the filters as options. All that are given have to fit."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


async def listed(queue: Queue, *, limit: int, newest_first: bool = True, **wanted: Any) -> list[Job]:
    """Up to `limit` jobs that fit, those in line first, with their estimates."""
    for name, value in wanted.items():
        if isinstance(value, str):
            check_name(name, value)
    found: dict[str, Job] = {}
    after = None
    while True:
        page = await queue.jobs_page(
            limit=min(limit - len(found), MOST_OF_A_PAGE), newest_first=newest_first, after=after, **wanted
        )
        for job in page.jobs:
            found.setdefault(job.id, job)
        after = page.next
        if after is None or len(found) >= limit:
            return list(found.values())
