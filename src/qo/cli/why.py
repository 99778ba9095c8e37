"""`qo why`: the reasons why a job is not running."""

from __future__ import annotations

import click

from qo.cli.options import Target, store_options
from qo.cli.output import say, show_json
from qo.cli.running import reading


@click.command()
@click.argument("job_id", metavar="ID")
@store_options
def why(target: Target, *, job_id: str) -> None:
    """Say why the job ID is not running."""
    answer = reading(target, lambda queue: queue.why(job_id))
    if target.as_json:
        show_json(answer)
    else:
        say(answer.sentence)
