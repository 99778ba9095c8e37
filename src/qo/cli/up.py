"""`qo up`: everything in one process, on the embedded store."""

from __future__ import annotations

import sys
from datetime import timedelta

import click

from qo.cli.options import Target, span, store_options


@click.command()
@click.argument("reference", metavar="[MODULE:WORKER]", required=False)
@click.option("--demo", is_flag=True, help="Instead of an application: users of three tiers who submit builds of apps.")
@click.option("--concurrency", type=click.IntRange(min=1), metavar="N", help="How many jobs it runs at once.")
@click.option("--for", "for_span", type=span, metavar="SPAN", help="Stop by itself after so long: 90, 10m.")
@click.option("--seed", type=int, default=1, hidden=True, help="Another seed, another demo.")
@store_options
def up(
    target: Target, *, reference: str | None, demo: bool, concurrency: int | None, for_span: timedelta | None, seed: int
) -> None:
    """Run an application's worker on the embedded store, until Ctrl-C. The dashboard will follow.

    With --demo, users submit builds that walk through their stages; some fail, some ask for confirmation. Look at
    it from another terminal with `qo queue list`, `qo jobs`, `qo why ID` and `qo concurrency status`.
    """
    if demo == (reference is not None):
        raise click.UsageError(
            "Say what to run: `qo up module:worker` for your own worker, or `qo up --demo`.",
            click.get_current_context(),
        )
    for_seconds = None if for_span is None else for_span.total_seconds()
    if reference is not None:
        from qo.cli.worker import run_worker

        run_worker(target, reference, concurrency=concurrency, for_seconds=for_seconds)
    else:
        _run_demo(target, concurrency=concurrency, for_seconds=for_seconds, seed=seed)


def _run_demo(target: Target, *, concurrency: int | None, for_seconds: float | None, seed: int) -> None:
    from qo.cli.demo import SETTINGS, refuse_other_jobs, run_demo
    from qo.cli.logs import show_log
    from qo.cli.running import on_queue_when_there
    from qo.queue.queue import Queue

    async def demonstrate(queue: Queue) -> None:
        show_log(sys.stdout, as_json=target.as_json, brief=True)
        await run_demo(queue, seed=seed, concurrency=concurrency, for_seconds=for_seconds)

    # First without the demo's settings: its worker would write their limits into a store of other jobs.
    if on_queue_when_there(target, refuse_other_jobs):
        on_queue_when_there(target, demonstrate, settings=SETTINGS)
