"""`qo worker`: run the worker of an application."""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any

import click

from qo.cli.loading import find_maker, make_worker
from qo.cli.log_options import LogChoice, log_options
from qo.cli.logs import show_log
from qo.cli.options import Target, store_options
from qo.cli.running import on_queue_when_there
from qo.queue.queue import Queue
from qo.worker.worker import Worker

log = logging.getLogger("qo.worker")


@click.command()
@click.argument("reference", metavar="MODULE[:WORKER]")
@click.option("--name", help="The worker's name. Default: made from host and process.")
@click.option("--concurrency", type=click.IntRange(min=1), metavar="N", help="How many jobs it runs at once.")
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    metavar="N",
    help="Serve this worker's numbers for Prometheus at /metrics of this port; 0 takes a free one.",
)
@click.option(
    "--metrics-host", default="127.0.0.1", show_default=True, metavar="HOST", help="The address of that port."
)
@click.option("--burst", is_flag=True, help="Run what can run now and what that makes runnable, then end.")
@click.option("--watch", is_flag=True, help="For development: start again when a .py file or .qo.toml here changes.")
@log_options
@store_options
def worker(
    target: Target,
    *,
    reference: str,
    burst: bool,
    watch: bool,
    log_choice: LogChoice,
    name: str | None,
    concurrency: int | None,
    metrics_port: int | None,
    metrics_host: str,
) -> None:
    """Run the worker that the function WORKER in MODULE makes, or all tasks in MODULE, until SIGTERM or Ctrl-C.

    The module is imported from the working directory; the function takes the queue and returns a qo.Worker. Without
    one, the tasks are the functions under @qo.task in the module, and in the modules of a package.
    The first signal lets running jobs finish, for the grace period; a second one hands them back at once.
    It waits for a store that cannot be reached.
    """

    def with_numbers(queue: Queue, made: Worker) -> AbstractAsyncContextManager[None]:
        return nullcontext() if metrics_port is None else _numbers_served(made, host=metrics_host, port=metrics_port)

    if burst and watch:
        raise click.UsageError("--burst and --watch were both given; give one of them.", click.get_current_context())
    if watch:
        from qo.cli.reloading import run_again_on_change

        run_again_on_change()
    else:
        run_worker(
            target,
            reference,
            name=name,
            concurrency=concurrency,
            burst=burst,
            log_choice=log_choice,
            beside=with_numbers,
        )


def run_worker(
    target: Target,
    reference: str,
    *,
    name: str | None = None,
    concurrency: int | None = None,
    for_seconds: float | None = None,
    burst: bool = False,
    log_choice: LogChoice | None = None,
    beside: Callable[[Queue, Worker], AbstractAsyncContextManager[None]],
    settings: Mapping[str, Any] | None = None,
) -> None:
    """Run an application's worker until it is stopped, within what `beside` makes. Its log goes to stdout."""
    import asyncio

    maker = find_maker(reference)

    async def work(queue: Queue) -> None:
        chosen = log_choice or LogChoice()
        show_log(sys.stdout, as_json=target.as_json or chosen.as_json, level=chosen.level)
        made = await make_worker(maker, queue, reference)
        made.name = name or made.name
        made.concurrency = concurrency or made.concurrency
        if for_seconds is not None:
            asyncio.get_running_loop().call_later(for_seconds, made.stop)
        async with beside(queue, made):
            await (made.run_until_idle() if burst else made.run())

    on_queue_when_there(target, work, settings=settings)


@asynccontextmanager
async def _numbers_served(worker: Worker, *, host: str, port: int) -> AsyncIterator[None]:
    from qo.service.metrics.exposition import worker_text
    from qo.service.metrics.port import metrics_served

    async with metrics_served(lambda: worker_text(worker.numbers), host=host, port=port) as address:
        log.info("the numbers of this worker are at %s", address)
        yield
