"""`qo tier`: give a user a tier."""

from __future__ import annotations

import click

from qo.cli.options import Target, by_option, store_options
from qo.cli.output import show_json
from qo.cli.running import on_queue
from qo.cli.terminal import say
from qo.job import Usage
from qo.policy.words import counted
from qo.queue.queue import Queue


@click.command()
@click.argument("user")
@click.argument("tier")
@by_option
@store_options
def tier(target: Target, *, user: str, tier: str, by: str | None) -> None:
    """Give USER the tier TIER, from now on and for their jobs that wait: limits and quota change at once.

    A place in line that was drawn stays, and a later submit that names another tier changes it again.
    """

    async def changed(queue: Queue) -> Usage:
        await queue.set_tier(user, tier, by=by)
        return await queue.usage(user)

    usage = on_queue(target, changed, creates=True)
    if target.as_json:
        show_json({"user": user, "tier": tier, "usage": usage})
        return
    remain = "" if usage.jobs_remaining is None else f"; {counted(usage.jobs_remaining, 'job')} remain today"
    say(f"{user} has the tier {tier}{remain}.")
