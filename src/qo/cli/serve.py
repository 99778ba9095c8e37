"""`qo serve`: the HTTP service on any store, without a worker."""

from __future__ import annotations

import sys

import click

from qo.cli.options import Target, server_settings, store_options

STORE_SECONDS = 3.0
"""How long a call waits for a store that is away. A request makes up to two calls after each other, for its key and for
its answer, and has to be answered before its client gives up after 10 seconds."""


@click.command()
@click.option("--host", metavar="HOST", help="The address to listen at. Default: 127.0.0.1, or that of the settings.")
@click.option("--port", type=click.IntRange(0, 65_535), metavar="N", help="The port. Default: 8765.")
@store_options
def serve(target: Target, *, host: str | None, port: int | None) -> None:
    """Serve the queue over HTTP until SIGTERM or Ctrl-C. Its address is in the first line of the log.

    Without API keys it serves programs on this machine only; `qo keys create` makes one.
    """
    from qo.cli.extras import need_server

    need_server()
    from qo.cli.logs import show_log
    from qo.cli.running import on_queue_when_there
    from qo.queue.queue import Queue
    from qo.service.serving import serve as serve_queue

    async def work(queue: Queue) -> None:
        show_log(sys.stdout, as_json=target.as_json)
        await serve_queue(queue)

    on_queue_when_there(target, work, settings=server_settings(host, port), timeout_seconds=STORE_SECONDS)
