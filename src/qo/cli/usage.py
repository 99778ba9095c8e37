"""`qo usage`: how much of the daily quota a user has used."""

from __future__ import annotations

import click

from qo.cli.options import Target, store_options
from qo.cli.output import show_json
from qo.cli.running import reading
from qo.cli.terminal import say
from qo.cli.wording import time_text
from qo.policy.words import counted


@click.command()
@click.argument("user")
@click.option("--tier", help="The tier whose quota counts, for a user without one.")
@store_options
def usage(target: Target, *, user: str, tier: str | None) -> None:
    """Show how much of the daily quota USER has used, and how much is left."""
    used = reading(target, lambda queue: queue.usage(user, tier))
    if target.as_json:
        show_json(used)
        return
    jobs = counted(used.jobs_used, "job")
    if used.jobs_remaining is None:
        say(f"{user} has used {jobs} today; nothing limits how many.")
    else:
        resets = time_text(used.daily_limit_resets_at)
        say(f"{user} has used {jobs} today, {used.jobs_remaining} remain; the count starts anew at {resets}.")
