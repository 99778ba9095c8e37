"""`qo workers`: the workers that run now."""

from __future__ import annotations

import click

from qo.cli.options import Target, store_options
from qo.cli.output import show_json, show_table
from qo.cli.running import reading
from qo.cli.table import LEAST, Column
from qo.cli.terminal import say
from qo.cli.wording import brief_age
from qo.policy.words import counted
from qo.values import WorkerInfo


@click.command()
@store_options
def workers(target: Target) -> None:
    """Show the workers that run now: how busy they are, their tasks, and when they were last heard of."""
    found = reading(target, lambda queue: queue.workers())
    if target.as_json:
        show_json(found)
    elif not found:
        say("No worker runs. Start one: `qo worker module:worker`.")
    else:
        _show(found)
        busy, capacity = sum(each.running for each in found), sum(each.capacity for each in found)
        say(f"{counted(len(found), 'worker')}, {busy} of a capacity of {capacity} in use.")


def _show(found: list[WorkerInfo]) -> None:
    show_table(
        [
            Column("name", [each.name for each in found], least=LEAST),
            Column("running", [f"{each.running}/{each.capacity}" for each in found], is_number=True),
            Column("heard of", [f"{brief_age(each.heard_at)} ago" for each in found], leaves=1),
            Column("up", [brief_age(each.registered_at) for each in found], leaves=2),
            Column("process", ["" if each.pid is None else f"{each.pid}" for each in found], leaves=4, is_number=True),
            Column("host", [each.host or "" for each in found], leaves=3, least=LEAST),
            Column("tasks", [", ".join(sorted(each.tasks)) for each in found], least=LEAST),
        ]
    )
