"""From a queue to a server that listens: keys, gate and application put together."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from qo.queue.queue import Queue
from qo.service.access.keys import Keys
from qo.service.app import make_app
from qo.service.server import Server, check_address, listen, url_of
from qo.service.shared import Shared
from qo.worker.signals import heeding_signals

log = logging.getLogger("qo.service")

THREADS_SWITCH_SECONDS = 0.0005
"""A request waits at most so long for the interpreter while a thread works out estimates. Python's own 5 ms are added
to it each time that it reads something."""


async def open_server(queue: Queue, *, move_on: bool = False, keys: Keys | None = None) -> Server:
    """A server of this queue that listens already, at the address in its settings. `keys` that are made or revoked
    through the given object count at once.

    Raises `PortTaken`, unless `move_on` lets it take the next free port, and `SettingsError` for an address that other
    machines can reach while there is no key.
    """
    chosen = queue.settings.server
    shared = Shared(queue, keys=keys)
    has_keys = await shared.keys.any()
    check_address(chosen.host, has_keys=has_keys)
    listening = listen(chosen.host, chosen.port, move_on=move_on)
    if chosen.port not in (0, listening.getsockname()[1]):
        log.warning("port %d is taken, so qo is at the next free one", chosen.port)
    if not has_keys:
        log.warning("there is no API key: everybody on this machine is an admin, which is for development only")
    log.info("qo is at %s (%s)", url_of(listening), queue.store.location)
    queue.line_view.keep_promises()
    shared.start()
    return Server(make_app(shared), listening, on_stop=shared.watchers.close_all, at_the_end=shared.close)


async def serve(queue: Queue) -> None:
    """Serve the queue until a signal comes. The process has to be there for that alone."""
    server = await open_server(queue)
    # What was loaded until now stays. Looking through it again and again would stop all requests for 15 ms each time.
    gc.collect()
    gc.freeze()
    sys.setswitchinterval(THREADS_SWITCH_SECONDS)
    with heeding_signals(server):
        await server.run()


@asynccontextmanager
async def served(queue: Queue) -> AsyncIterator[None]:
    """Serve the queue beside what runs in the block, at the next free port if its own is taken."""
    server = await open_server(queue, move_on=True)
    running = asyncio.create_task(server.run(), name="qo-server")
    try:
        yield
    finally:
        server.stop()
        await running
