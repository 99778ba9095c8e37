"""`qo why`: the reasons why a job is not running."""

from __future__ import annotations

import click

from qo.cli.job_ids import whole_id
from qo.cli.options import Target, store_options
from qo.cli.output import show_json
from qo.cli.running import reading
from qo.cli.terminal import say
from qo.policy.why import Why
from qo.queue.queue import Queue


@click.command()
@click.argument("job_id", metavar="ID")
@store_options
def why(target: Target, *, job_id: str) -> None:
    """Say why the job ID is not running. ID may be the beginning of an id."""

    async def explained(queue: Queue) -> Why:
        return await queue.why(await whole_id(queue, job_id))

    answer = reading(target, explained)
    if target.as_json:
        show_json(answer)
    else:
        say(answer.sentence)
