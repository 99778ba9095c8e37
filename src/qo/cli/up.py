"""`qo up`: everything in one process, on the embedded store."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

import click

from qo.cli.options import Target, server_settings, span, store_options

LOOK_AT = (
    ("queue list", "the line"),
    ("jobs --status failed", "what has failed; then `qo job ID` with the beginning of an id"),
    ("concurrency status", "the limits, and how much of them is in use"),
    ("audit", "who has changed what"),
)


@click.command()
@click.argument("reference", metavar="[MODULE:WORKER]", required=False)
@click.option("--demo", is_flag=True, help="Instead of an application: users of three tiers who submit builds of apps.")
@click.option("--concurrency", type=click.IntRange(min=1), metavar="N", help="How many jobs it runs at once.")
@click.option("--for", "for_span", type=span, metavar="SPAN", help="Stop by itself after so long: 90, 10m.")
@click.option("--host", metavar="HOST", help="The address to listen at. Default: 127.0.0.1, or that of the settings.")
@click.option("--port", type=click.IntRange(0, 65_535), metavar="N", help="The port. Default: 8765, or the next free.")
@click.option("--seed", type=int, default=1, hidden=True, help="Another seed, another demo.")
@store_options
def up(
    target: Target,
    *,
    reference: str | None,
    demo: bool,
    concurrency: int | None,
    for_span: timedelta | None,
    host: str | None,
    port: int | None,
    seed: int,
) -> None:
    """Run an application's worker and the HTTP service on the embedded store, until Ctrl-C. The service's address is
    in the log.

    With --demo, users submit builds that walk through their stages; some fail, some ask for confirmation. Look at
    it from another terminal with `qo queue list`, `qo jobs`, `qo why ID` and `qo concurrency status`.
    """
    if demo and reference is not None:
        raise click.UsageError(
            f"--demo and {reference} were both given; give one of them.", click.get_current_context()
        )
    if not demo and reference is None:
        raise click.UsageError(
            "Say what to run: `qo up module:worker` for your own worker, or `qo up --demo`.",
            click.get_current_context(),
        )
    from qo.cli.extras import need_server

    need_server()
    for_seconds = None if for_span is None else for_span.total_seconds()
    settings = server_settings(host, port)
    if reference is not None:
        from qo.cli.worker import run_worker
        from qo.service.serving import served

        run_worker(
            target,
            reference,
            concurrency=concurrency,
            for_seconds=for_seconds,
            beside=lambda queue, _: served(queue),
            settings=settings,
        )
    else:
        _run_demo(target, concurrency=concurrency, for_seconds=for_seconds, seed=seed, settings=settings)


def _run_demo(
    target: Target, *, concurrency: int | None, for_seconds: float | None, seed: int, settings: dict[str, Any]
) -> None:
    from qo.cli.demo import LOG_COLUMNS, SETTINGS, look_for_other_jobs, run_demo
    from qo.cli.logs import show_log
    from qo.cli.running import on_queue_when_there
    from qo.cli.terminal import width_of
    from qo.queue.queue import Queue
    from qo.service.serving import served

    async def look(queue: Queue) -> None:
        earlier = await look_for_other_jobs(queue)
        if not target.as_json:
            _introduce(target, queue.store.location, earlier)

    async def demonstrate(queue: Queue) -> None:
        columns = min(LOG_COLUMNS, width_of(sys.stdout) or LOG_COLUMNS)
        show_log(sys.stdout, as_json=target.as_json, width=columns)
        async with served(queue):
            await run_demo(queue, seed=seed, concurrency=concurrency, for_seconds=for_seconds)

    # First without the demo's settings: its worker would write their limits into a store of other jobs.
    if on_queue_when_there(target, look):
        on_queue_when_there(target, demonstrate, settings={**SETTINGS, **settings})


def _introduce(target: Target, location: str, earlier: int) -> None:
    """Say what to type in a second terminal, before the log begins."""
    import shlex

    from qo.cli.terminal import say, say_as_it_is
    from qo.policy.words import counted

    named = {"--url": target.url, "--namespace": target.namespace}
    options = "".join(f" {option} {shlex.quote(value)}" for option, value in named.items() if value is not None)
    say(f"The demo works on {location}. In a second terminal, in the same folder, type:")
    for command, shows in LOOK_AT:
        say_as_it_is(f"  {f'qo {command}{options}':<{28 + len(options)}}  {shows}")
    if earlier:
        say(f"It goes on with an earlier demo ({counted(earlier, 'job')} of it).")
    say("The dashboard is at the address in its log, which follows. Ctrl-C ends it.")
