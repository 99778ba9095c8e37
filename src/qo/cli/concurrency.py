"""`qo concurrency`: limits, and who holds which slot."""

from __future__ import annotations

import click

from qo.cli.lazy import Group
from qo.cli.options import Target, by_option, store_options
from qo.cli.output import say, show_json, show_table
from qo.cli.queue import group_as_json
from qo.cli.running import on_queue
from qo.cli.telling import time_told
from qo.policy.words import counted
from qo.runtime.queue import Queue
from qo.store.values import GroupStatus, Source


@click.group(cls=Group)
def concurrency() -> None:
    """Limits: how many slots a group has, where that comes from, and who holds them."""


@concurrency.command()
@click.argument("group", required=False)
@click.option("--all", "every", is_flag=True, help="Also the idle groups of users and projects that a tier limits.")
@store_options
def status(target: Target, *, group: str | None, every: bool) -> None:
    """Show the groups that have a limit, a pause or holders; or GROUP and who holds its slots."""
    if group is None:
        groups = on_queue(target, lambda queue: queue.limits())
        _show_groups(target, [each for each in groups if every or not _is_idle(each)], of=len(groups))
    else:
        name = group
        _show_group(target, on_queue(target, lambda queue: queue.limit(name)))


@concurrency.command("set")
@click.argument("group")
@click.option(
    "--limit", type=click.IntRange(min=0), metavar="N", required=True, help="How many slots it has from now on."
)
@by_option
@store_options
def set_limit(target: Target, *, group: str, limit: int, by: str | None) -> None:
    """Limit GROUP to N slots, as an operator: this wins over the settings, tiers and tasks."""

    async def changed(queue: Queue) -> GroupStatus:
        await queue.set_limit(group, limit, by=by)
        return await queue.limit(group)

    _show_group(target, on_queue(target, changed))


@concurrency.command()
@click.argument("group")
@by_option
@store_options
def remove(target: Target, *, group: str, by: str | None) -> None:
    """Take GROUP's limit away, whoever set it, until somebody sets one again."""

    async def changed(queue: Queue) -> GroupStatus:
        await queue.remove_limit(group, by=by)
        return await queue.limit(group)

    _show_group(target, on_queue(target, changed))


@concurrency.command()
@click.argument("group")
@click.argument("slot", type=click.IntRange(min=0))
@click.option("--force", is_flag=True, help="Also if its lease has not run out: its holder loses all its slots.")
@by_option
@store_options
def release(target: Target, *, group: str, slot: int, force: bool, by: str | None) -> None:
    """Take SLOT of GROUP from its holder; a job goes back to its place with an attempt spent."""
    holder = on_queue(target, lambda queue: queue.release_slot(group, slot, by=by, force=force))
    if target.as_json:
        show_json({"group": group, "slot_id": slot, "holder": holder})
    else:
        say(f"Released slot {slot} of {group}; {holder} held it and has lost its lease.")


def _is_idle(group: GroupStatus) -> bool:
    """Nothing happens in it, and nobody in particular has limited it: every past user of a tier has such a group."""
    return group.source is Source.TIER and not (group.active or group.waiting or group.paused)


def _show_groups(target: Target, groups: list[GroupStatus], *, of: int) -> None:
    if target.as_json:
        # Their slots are not read for a list, and an empty list would say that nobody holds any.
        show_json([{key: value for key, value in group_as_json(each).items() if key != "slots"} for each in groups])
    elif not groups:
        say(
            "No group has a limit, a pause or holders."
            if of == 0
            else f"All {of} groups are idle; see them with --all."
        )
    else:
        rows = [(each.group, _used(each), _source(each), _state(each), each.waiting) for each in groups]
        show_table(("group", "used", "limit set by", "state", "put aside"), rows, whole=("group", "used"))
        if len(groups) < of:
            say(f"{counted(of - len(groups), 'idle group')} more with --all.")


def _show_group(target: Target, group: GroupStatus) -> None:
    if target.as_json:
        show_json(group_as_json(group))
        return
    limited = "has no limit" if group.limit is None else f"has a limit of {group.limit}, set by the {_source(group)}"
    paused = ", and is paused" if group.paused else ""
    say(f"{group.group} {limited}{paused}; {group.active} in use, {group.waiting} put aside because of it.")
    if group.slots:
        rows = [(slot.slot_id, slot.holder, slot.worker_id, time_told(slot.expires_at)) for slot in group.slots]
        show_table(("slot", "holder", "worker", "lease ends"), rows, whole=("holder",))


def _used(group: GroupStatus) -> str:
    return f"{group.active}" if group.limit is None else f"{group.active} of {group.limit}"


def _source(group: GroupStatus) -> str | None:
    return None if group.source is None else group.source.name.lower()


def _state(group: GroupStatus) -> str:
    if group.paused:
        return "paused"
    return "full" if group.limit is not None and group.active >= group.limit else "open"
