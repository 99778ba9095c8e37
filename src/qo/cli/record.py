"""`qo record`: the recorder of the history."""

from __future__ import annotations

import sys
from typing import Any

import click

from qo.cli.options import Target, store_options


@click.command()
@click.option("--to", "database", metavar="URL", help="The database, postgresql://… Default: url under [history].")
@click.option("--migrate", is_flag=True, help="Only make or change the tables, with the rights of their owner.")
@click.option("--off", is_flag=True, help="Record nothing from now on: empty the outbox and switch it off.")
@store_options
def record(target: Target, *, database: str | None, migrate: bool, off: bool) -> None:
    """Write what happens in a queue on Redis into PostgreSQL, until SIGTERM or Ctrl-C.

    Any number may run: one records, the others wait for it to end. It waits for a store or a database that is away.
    """
    if migrate and off:
        raise click.UsageError("Use --migrate or --off, not both.", click.get_current_context())
    settings = {"history": {"url": database}} if database is not None else {}
    if migrate:
        _migrate(target, settings)
    elif off:
        _switch_off(target)
    else:
        _record(target, settings)


def _record(target: Target, settings: dict[str, Any]) -> None:
    from qo.cli.logs import show_log
    from qo.cli.running import on_queue_when_there
    from qo.history.recorder import Recorder
    from qo.history.stopping import run_until_signal
    from qo.queue.queue import Queue

    async def work(queue: Queue) -> None:
        show_log(sys.stdout, as_json=target.as_json)
        await run_until_signal(Recorder(queue, _url_of(queue.settings.history.url)))

    on_queue_when_there(target, work, settings=settings)


def _migrate(target: Target, settings: dict[str, Any]) -> None:
    import asyncio

    from qo.cli.output import show_json
    from qo.cli.terminal import say
    from qo.history.database import VERSION, connect, explained, location_of, migrate
    from qo.settings import load_settings

    chosen = load_settings({**settings, **target.overrides()}).history
    url = _url_of(chosen.url)

    async def work() -> None:
        connection = await connect(url, writes=True)
        try:
            with explained(url):
                await migrate(connection, keep_days=chosen.keep_days)
        finally:
            await connection.close()

    asyncio.run(work())
    if target.as_json:
        show_json({"schema": VERSION})
    else:
        say(f"The history at {location_of(url)} has schema {VERSION} and keeps {chosen.keep_days} days.")


def _switch_off(target: Target) -> None:
    from qo.cli.output import show_json
    from qo.cli.running import on_queue
    from qo.cli.terminal import say
    from qo.history.recorder import switch_off

    on_queue(target, switch_off)
    if target.as_json:
        show_json({"recording": False})
    else:
        say("Nothing is recorded any more, and the outbox is empty. Stop the recorders, or they switch it on again.")


def _url_of(url: str | None) -> str:
    from qo.errors import SettingsError

    if url is None:
        raise SettingsError(
            "history.url is not set, so there is nowhere to write the history to; name a database with --to "
            "postgresql://user:password@host/database, or as url under [history]."
        )
    return url
