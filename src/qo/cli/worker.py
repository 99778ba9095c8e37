"""`qo worker`: run the worker of an application."""

from __future__ import annotations

import sys

import click

from qo.cli.loading import find_maker, make_worker
from qo.cli.logs import show_log
from qo.cli.options import Target, store_options
from qo.cli.running import on_queue_when_there
from qo.queue.queue import Queue


@click.command()
@click.argument("reference", metavar="MODULE:WORKER")
@click.option("--name", help="The worker's name. Default: made from host and process.")
@click.option("--concurrency", type=click.IntRange(min=1), metavar="N", help="How many jobs it runs at once.")
@store_options
def worker(target: Target, *, reference: str, name: str | None, concurrency: int | None) -> None:
    """Run the worker that the function WORKER in MODULE makes, until SIGTERM or Ctrl-C.

    The module is imported from the working directory; the function takes the queue and returns a qo.Worker.
    The first signal lets running jobs finish, for the grace period; a second one hands them back at once.
    It waits for a store that cannot be reached.
    """
    run_worker(target, reference, name=name, concurrency=concurrency)


def run_worker(
    target: Target,
    reference: str,
    *,
    name: str | None = None,
    concurrency: int | None = None,
    for_seconds: float | None = None,
) -> None:
    """Run an application's worker until it is stopped. Its log goes to stdout."""
    import asyncio

    maker = find_maker(reference)

    async def work(queue: Queue) -> None:
        show_log(sys.stdout, as_json=target.as_json)
        made = await make_worker(maker, queue, reference)
        made.name = name or made.name
        made.concurrency = concurrency or made.concurrency
        if for_seconds is not None:
            asyncio.get_running_loop().call_later(for_seconds, made.stop)
        await made.run()

    on_queue_when_there(target, work)
