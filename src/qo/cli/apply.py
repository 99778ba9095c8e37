"""`qo apply`: write the limits of the settings to the store."""

from __future__ import annotations

import click

from qo.cli.limit_plan import LimitPlan, plan_limits
from qo.cli.options import Target, by_option, store_options
from qo.cli.output import show_json
from qo.cli.running import on_queue
from qo.cli.terminal import say
from qo.queue.queue import Queue
from qo.values import Source


@click.command()
@click.option("--dry-run", is_flag=True, help="Only say what would be changed.")
@by_option
@store_options
def apply(target: Target, *, dry_run: bool, by: str | None) -> None:
    """Make the store's configured limits exactly those of the settings here: .qo.toml and the environment.

    An operator's limits stay, and so do those of tiers and tasks in groups that the settings do not name. A worker that
    starts adds and changes limits in the same way, but removes none.
    """
    _refuse_without_settings(target)

    async def make_so(queue: Queue) -> None:
        plan = plan_limits(queue.configured_limits(), await queue.limits())
        _show(target, plan, queue.store.location, dry_run=dry_run)
        if not dry_run:
            await queue.store.set_limits(queue.configured_limits(), exactly=Source.CONFIGURATION, by=by)

    on_queue(target, make_so, creates=not dry_run)


def _refuse_without_settings(target: Target) -> None:
    """Raise when there are no settings: in the wrong folder, `qo apply` would remove every configured limit."""
    from pathlib import Path

    from qo.settings import FILE_NAME, find_settings_file, load_settings

    if find_settings_file(Path.cwd()) is None and not load_settings(target.overrides()).concurrency.limits:
        raise click.UsageError(
            f"There is no {FILE_NAME} in {Path.cwd()} or above it, so there is nothing to apply; call it where that "
            "file is, or write one with qo init.",
            click.get_current_context(),
        )


def _show(target: Target, plan: LimitPlan, location: str, *, dry_run: bool) -> None:
    if target.as_json:
        show_json({"dry_run": dry_run, "store": location, **plan.as_json()})
        return
    add, change, remove = ("Would add", "Would change", "Would remove") if dry_run else ("Adds", "Changes", "Removes")
    for limit in plan.added:
        say(f"{add} {limit.group}: {limit.slots}.")
    for each in plan.changed:
        assert each.before is not None
        before, slots = each.before, each.limit.slots
        set_by = "" if before.source is Source.CONFIGURATION else f", which the {before.source.name.lower()} had set,"
        say(f"{change} {each.limit.group} from {before.slots}{set_by} to {slots}.")
    for limit in plan.removed:
        say(f"{remove} the limit of {limit.group}, which was {limit.slots}.")
    for kept in plan.kept_out:
        say(f"Leaves {kept.in_force.group} at {kept.in_force.slots}: an operator's wins over {kept.wanted.slots}.")
    if not plan.wanted:
        say("The settings name no limits, so none of the configuration is left.")
    if plan.changes_nothing:
        say(f"Nothing to change: {location} has the limits of the settings.")
