"""An application served by uvicorn on a loopback socket, inside the test's event loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from qo.service.connection import Connection
from tests.worker.running import soon

STOPPING_SECONDS = 5
"""So long may requests take to end after the server was told to stop."""


class Server(uvicorn.Server):
    """Leaves the signals of the test process alone, and says when it has started."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.has_started = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.has_started.set()


class Served:
    """A server that runs."""

    host = "127.0.0.1"

    def __init__(self, server: Server, port: int) -> None:
        self.port = port
        self.url = f"http://{self.host}:{port}"
        self._server = server

    @property
    def state(self) -> ServerState:
        """The connections that are open, and the tasks of requests that have not ended."""
        return self._server.server_state


@asynccontextmanager
async def serving(app: Any, *, stopping: Callable[[], None] = lambda: None) -> AsyncIterator[Served]:
    """Serve an ASGI application beside the block; afterwards its socket, connections and tasks are gone.

    `stopping` is called when the server stops, in place of the signal that a process gets. It has to end streams.
    """
    listening = socket.create_server((Served.host, 0))
    config = uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=STOPPING_SECONDS,
    )
    server = Server(config)
    run = asyncio.create_task(server.serve(sockets=[listening]), name="uvicorn")
    try:
        starting = asyncio.create_task(server.has_started.wait())
        await soon(asyncio.wait([run, starting], return_when=asyncio.FIRST_COMPLETED))
        starting.cancel()
        if run.done():
            run.result()
        yield Served(server, listening.getsockname()[1])
    finally:
        stopping()
        server.should_exit = True
        await soon(run)
    assert not server.server_state.connections
    assert not server.server_state.tasks
