"""`qo concurrency`: limits and the holders of slots, in a store or in a bucket."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

import click

from qo.cli.job_ids import id_column
from qo.cli.lazy import Group
from qo.cli.options import Target, by_option, span, store_options
from qo.cli.output import show_json, show_table
from qo.cli.queue import group_as_json
from qo.cli.running import on_bucket, on_queue, reading
from qo.cli.table import LEAST, Column
from qo.cli.terminal import say
from qo.cli.wording import time_text
from qo.limits.by_hand import ConcurrencyManager
from qo.policy.words import counted
from qo.policy.words import span as span_text
from qo.queue.queue import Queue
from qo.store.open import is_bucket
from qo.values import GroupStatus, Source

if TYPE_CHECKING:
    from qo.store.bucket import BucketSlots

T = TypeVar("T")
Configured = dict[str, int]
"""The limits of the settings, by group."""
PAUSED, FULL, OPEN = "paused", "full", "open"
COLOURS_OF_STATES = {PAUSED: "yellow", FULL: "red"}


@click.group(cls=Group)
def concurrency() -> None:
    """Limits: how many slots a group has, the source of that limit, and the holders of the slots.

    With --url s3://bucket/prefix (gs://, az://), the groups that are kept in a bucket.
    """


@concurrency.command()
@click.argument("group", required=False)
@click.option("--all", "every", is_flag=True, help="Also the idle groups of users and projects that a tier limits.")
@store_options
def status(target: Target, *, group: str | None, every: bool) -> None:
    """Show the groups that have a limit, a pause or holders; or GROUP and the holders of its slots.

    Also says where the settings here and the store differ. On a bucket, without GROUP, only the groups' names.
    """
    if group is not None:
        name = group
        if _is_bucket(target):
            _show_group(target, on_bucket(target, lambda bucket: bucket.get_status(name)))
        else:
            found, configured = reading(target, lambda queue: _group_and_file(queue, name))
            _show_group(target, found, configured)
    elif _is_bucket(target):
        _show_names(target, on_bucket(target, lambda bucket: bucket.groups()))
    else:
        groups, file = reading(target, _groups_and_file)
        shown = [each for each in groups if every or not _is_idle(each)]
        _show_groups(target, shown, of=len(groups), configured=file)


@concurrency.command("set")
@click.argument("group")
@click.option(
    "--limit", type=click.IntRange(min=0), metavar="N", required=True, help="How many slots it has from now on."
)
@by_option
@store_options
def set_limit(target: Target, *, group: str, limit: int, by: str | None) -> None:
    """Limit GROUP to N slots, as an operator: this wins over the settings, tiers and tasks."""

    async def changed(slots: Queue | BucketSlots) -> GroupStatus:
        await slots.set_limit(group, limit, by=by)
        return await _status(slots, group)

    _show_group(target, _on(target, changed, creates=True))


@concurrency.command()
@click.argument("group")
@by_option
@store_options
def remove(target: Target, *, group: str, by: str | None) -> None:
    """Remove GROUP's limit, whatever its source. The group is unlimited until a limit is set again."""

    async def changed(slots: Queue | BucketSlots) -> GroupStatus:
        await slots.remove_limit(group, by=by)
        return await _status(slots, group)

    _show_group(target, _on(target, changed))


@concurrency.command()
@click.argument("group")
@click.argument("slot", type=click.IntRange(min=0))
@click.option("--force", is_flag=True, help="Also if its lease has not run out: its holder loses all its slots.")
@by_option
@store_options
def release(target: Target, *, group: str, slot: int, force: bool, by: str | None) -> None:
    """Take SLOT of GROUP from its holder; a job goes back to its place with an attempt spent.

    On a bucket a release needs --force, because a command has not watched the lease for long enough to know that it
    ran out. The holder loses this one slot, and notices when it next renews.
    """
    if _is_bucket(target):
        holder = on_bucket(target, lambda bucket: bucket.release_slot(group, slot, force=force))
        outcome = "will find it gone when it next renews its lease"
    else:
        holder = on_queue(target, lambda queue: queue.release_slot(group, slot, by=by, force=force))
        outcome = "has lost its lease"
    if target.as_json:
        show_json({"group": group, "slot_id": slot, "holder": holder})
    else:
        say(f"Released slot {slot} of {group}; {holder} held it and {outcome}.")


@concurrency.command()
@click.argument("group")
@click.option(
    "--wait", type=span, metavar="SPAN", help="On a bucket: how long to watch, at least as long as leases last there."
)
@store_options
def cleanup(target: Target, *, group: str, wait: timedelta | None) -> None:
    """Free the slots of GROUP whose leases have run out. It is never necessary: every acquire does the same.

    On a bucket a lease has run out when it was seen unchanged for as long as it lasts. --wait says how long to watch.
    """
    if _is_bucket(target) == (wait is None):
        raise click.UsageError(
            "On a bucket, say how long to watch: --wait 5m, at least as long as leases last there."
            if wait is None
            else "--wait is for a bucket; a store knows by itself which leases have run out.",
            click.get_current_context(),
        )

    async def watch(bucket: BucketSlots) -> int:
        assert wait is not None
        held = (await bucket.get_status(group)).active
        if held:
            if not target.as_json:
                say(f"Watching {counted(held, 'holder')} of {group} for {span_text(wait.total_seconds())}.")
            await asyncio.sleep(wait.total_seconds())
        return await bucket.cleanup_expired(group)

    if wait is not None:
        freed = on_bucket(target, watch)
    else:
        freed = on_queue(target, lambda queue: ConcurrencyManager(queue).cleanup_expired(group))
    if target.as_json:
        show_json({"group": group, "freed": freed})
    else:
        say(f"Freed {counted(freed, 'slot')} of {group}.")


def _on(target: Target, work: Callable[[Queue | BucketSlots], Awaitable[T]], *, creates: bool = False) -> T:
    return on_bucket(target, work) if _is_bucket(target) else on_queue(target, work, creates=creates)


def _is_bucket(target: Target) -> bool:
    return target.url is not None and is_bucket(target.url)


async def _status(slots: Queue | BucketSlots, group: str) -> GroupStatus:
    return await (slots.limit(group) if isinstance(slots, Queue) else slots.get_status(group))


async def _group_and_file(queue: Queue, group: str) -> tuple[GroupStatus, Configured]:
    limits = {limit.group: limit.slots for limit in queue.configured_limits()}
    return await queue.limit(group), {name: slots for name, slots in limits.items() if name == group}


async def _groups_and_file(queue: Queue) -> tuple[list[GroupStatus], Configured]:
    """The groups of the store and those that only the settings name, with the limits of the settings."""
    configured = {limit.group: limit.slots for limit in queue.configured_limits()}
    groups = {each.group: each for each in await queue.limits()}
    missing = {name: GroupStatus(group=name) for name in configured if name not in groups}
    return sorted([*groups.values(), *missing.values()], key=lambda each: each.group), configured


def _difference(group: GroupStatus, configured: Configured) -> str | None:
    """How the settings and the store differ, in words."""
    wanted = configured.get(group.group)
    if wanted is None:
        from_a_file = group.source is Source.CONFIGURATION
        return "The settings here do not limit it; qo apply would remove the limit." if from_a_file else None
    if group.source is Source.OPERATOR:
        return None if wanted == group.limit else f"The settings here say {wanted}, but the operator's limit counts."
    if (group.limit, group.source) == (wanted, Source.CONFIGURATION):
        return None
    return f"The settings here say {wanted}; qo apply would set that, as would a worker that starts with them."


def _is_idle(group: GroupStatus) -> bool:
    """Whether a group is unused and has only its tier's limit: every past user of a tier has such a group."""
    return group.source is Source.TIER and not (group.active or group.waiting or group.paused)


def _show_names(target: Target, names: list[str]) -> None:
    """Names only: reading the slots would take one request for each."""
    if target.as_json:
        show_json([{"group": name} for name in names])
    elif not names:
        say("No group has ever had a limit or a holder in this bucket.")
    else:
        show_table([Column("group", names)])
        say("See a group's limit and holders with qo concurrency status GROUP.")


def _show_groups(target: Target, groups: list[GroupStatus], *, of: int, configured: Configured) -> None:
    if target.as_json:
        # The slots are not read for a list, and an empty `slots` would mean that there are no holders.
        shown = [group_as_json(each) | {"configured": configured.get(each.group)} for each in groups]
        show_json([{key: value for key, value in each.items() if key != "slots"} for each in shown])
    elif not groups:
        say(
            "No group has a limit, a pause or holders."
            if of == 0
            else f"No group is in use; see the {counted(of, 'idle one')} with --all."
        )
    else:
        states = [_state(each) for each in groups]
        show_table(
            [
                Column("group", [each.group for each in groups], least=LEAST),
                Column("used", [_used(each) for each in groups]),
                Column("limit set by", [_source(each) or "" for each in groups], leaves=2),
                Column("state", states, colours=[COLOURS_OF_STATES.get(state) for state in states]),
                Column("put aside", [f"{each.waiting}" for each in groups], leaves=1, is_number=True),
            ]
        )
        if len(groups) < of:
            say(f"{counted(of - len(groups), 'idle group')} more with --all.")
        for each in groups:
            if each.kept is not None:
                say(f"{each.group}: {_kept(each)}")
            if (difference := _difference(each, configured)) is not None:
                say(f"{each.group}: {difference}")


def _show_group(target: Target, group: GroupStatus, configured: Configured | None = None) -> None:
    if target.as_json:
        shown = group_as_json(group)
        show_json(shown if configured is None else shown | {"configured": configured.get(group.group)})
        return
    limited = "has no limit" if group.limit is None else f"has a limit of {group.limit}, set by the {_source(group)}"
    paused = ", and is paused" if group.paused else ""
    if _is_bucket(target):
        own = " of its own here, so each caller's counts" if group.limit is None else ""
        say(f"{group.group} {limited}{own}; {group.active} in use.")
    else:
        say(f"{group.group} {limited}{paused}; {group.active} in use, {group.waiting} put aside because of it.")
    if group.kept is not None:
        say(_kept(group))
    if group.slots:
        show_table(
            [
                Column("slot", [f"{slot.slot_id}" for slot in group.slots], is_number=True),
                id_column("holder", [slot.holder for slot in group.slots]),
                Column("worker", [slot.worker_id or "" for slot in group.slots], leaves=2, least=LEAST),
                Column("lease ends", [time_text(slot.expires_at) or "" for slot in group.slots], leaves=1),
            ]
        )
    if configured is not None and (difference := _difference(group, configured)) is not None:
        say(difference)


def _kept(group: GroupStatus) -> str:
    return f"A slot is kept for {group.kept}, whose turn it is."


def _used(group: GroupStatus) -> str:
    return f"{group.active}" if group.limit is None else f"{group.active} of {group.limit}"


def _source(group: GroupStatus) -> str | None:
    return None if group.source is None else group.source.name.lower()


def _state(group: GroupStatus) -> str:
    if group.paused:
        return PAUSED
    return FULL if group.limit is not None and group.active >= group.limit else OPEN
