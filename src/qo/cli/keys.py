"""`qo keys`: the API keys of the HTTP service."""

from __future__ import annotations

from datetime import datetime, timedelta

import click

from qo.cli.lazy import Group
from qo.cli.options import Target, by_option, span_or_moment, store_options
from qo.cli.output import show_json, show_table
from qo.cli.running import on_queue, reading
from qo.cli.table import LEAST, Column
from qo.cli.terminal import say
from qo.cli.wording import time_text
from qo.queue.queue import Queue
from qo.service.access.caller import Role
from qo.service.access.keys import Key, Keys, NewKey


@click.group(cls=Group)
def keys() -> None:
    """API keys of the HTTP service. Once a key was made, the service answers nobody without one."""


@keys.command()
@click.option("--role", type=click.Choice([role.value for role in Role]), required=True, help="What the key may do.")
@click.option("--user", help="The user that a key of role user acts for.")
@click.option("--project", help="The only project that a key of role user may submit to.")
@click.option(
    "--expires",
    type=span_or_moment,
    metavar="SPAN|TIME",
    help="How long it is valid, such as 90d, or until when, such as 2030-12-31T18:00:00Z. Default: until revoked.",
)
@by_option
@store_options
def create(
    target: Target,
    *,
    role: str,
    user: str | None,
    project: str | None,
    expires: timedelta | datetime | None,
    by: str | None,
) -> None:
    """Make a key and print it. It is shown only now: the store keeps no more than a hash of it."""

    async def made(queue: Queue) -> NewKey:
        until = queue.system.now() + expires if isinstance(expires, timedelta) else expires
        return await _keys(queue).create(role, user=user, project=project, expires_at=until, by=by)

    key = on_queue(target, made, creates=True)
    if target.as_json:
        show_json({"id": key.id, "key": key.text})
    else:
        say(key.text)
        click.echo(f"This key is shown only now; keep it safe. Its id is {key.id}.", err=True)


@keys.command("list")
@store_options
def list_keys(target: Target) -> None:
    """Show all keys, also those that expired or were revoked. Their secrets are not stored."""
    found = reading(target, lambda queue: _keys(queue).list())
    if target.as_json:
        show_json(found)
    elif not found:
        say("There are no keys, so the service answers this machine only, and everybody on it is an admin.")
    else:
        show_table(
            [
                Column("id", [key.id for key in found]),
                Column("role", [key.role.value for key in found]),
                Column("user", [key.user or "" for key in found], least=LEAST),
                Column("project", [key.project or "" for key in found], leaves=4, least=LEAST),
                Column("expires", [_day(key.expires_at) or "never" for key in found], leaves=2),
                Column("last used", [_day(key.last_used_at) or "never" for key in found], leaves=3),
                Column("revoked", [_day(key.revoked_at) for key in found], leaves=1, colours=["red"] * len(found)),
            ]
        )


@keys.command()
@click.argument("key_id", metavar="ID")
@by_option
@store_options
def revoke(target: Target, *, key_id: str, by: str | None) -> None:
    """Revoke the key ID. Every server refuses it within 5 seconds, and open streams with it end."""

    async def revoked(queue: Queue) -> tuple[Key, bool]:
        access = _keys(queue)
        key, now = await access.revoke(key_id, by=by), queue.system.now()
        return key, any(each.is_valid(now) for each in await access.list())

    key, others_are_left = on_queue(target, revoked)
    if target.as_json:
        show_json(key)
        return
    say(f"Revoked key {key.id}; every server refuses it within 5 seconds.")
    if not others_are_left:
        say("No valid key is left, so the service refuses everybody; make one with qo keys create.")


@keys.command("rotate-watch")
@by_option
@store_options
def rotate_watch(target: Target, *, by: str | None) -> None:
    """Make all watch links void that were given out until now."""
    on_queue(target, lambda queue: _keys(queue).rotate_watch(by=by))
    if target.as_json:
        show_json({"rotated": "watch"})
    else:
        say("All watch links that were given out until now are void on every server within 5 seconds.")


def _keys(queue: Queue) -> Keys:
    return Keys(queue.store, system=queue.system)


def _day(at: datetime | None) -> str:
    return time_text(at) or ""
