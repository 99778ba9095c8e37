"""The server of a process: a listening socket of its own, and uvicorn on it until it is stopped."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from qo.errors import QoError, SettingsError
from qo.service.access.addresses import is_loopback, parsed_address
from qo.service.access.gate import LOCALHOST
from qo.service.connection import MOST_HEADER_BYTES, Connection

log = logging.getLogger("qo.service")

WAITING_CONNECTIONS = 1024
PORTS_TRIED = 20
GRACE_SECONDS = 5


class PortTaken(QoError):
    """Another program listens at the port."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(
            f"Port {port} of {host} is taken by another program; choose another one with --port, or stop that program."
        )


def check_address(host: str, *, has_keys: bool) -> None:
    """Raises `SettingsError` for an address that others can reach, while there is no key."""
    if not has_keys and host != LOCALHOST and not is_loopback(parsed_address(host)):
        raise SettingsError(
            f"host is {host!r}, which other machines can reach, and there is no API key; make one with "
            "`qo keys create --role admin`, or serve 127.0.0.1."
        )


def listen(host: str, port: int, *, move_on: bool = False) -> socket.socket:
    """A socket that listens there. With `move_on`, at the next free port if this one is taken."""
    for tried in range(port, port + (PORTS_TRIED if move_on and port else 1)):
        try:
            return _listen_at(host, tried)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise SettingsError(
                    f"host is {host!r}, port {tried}; cannot listen there: {error.strerror}."
                ) from error
    raise PortTaken(host, port)


def _listen_at(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(WAITING_CONNECTIONS)
        listening.setblocking(False)
    except BaseException:
        listening.close()
        raise
    return listening


def url_of(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Server:
    """Serves an application. `stop` and `stop_now` may be called from any thread, as those of a worker."""

    def __init__(
        self,
        app: ASGIApp,
        listening: socket.socket,
        *,
        on_stop: Callable[[], None],
        at_the_end: Callable[[], Awaitable[None]],
    ) -> None:
        """`on_stop` is called before connections are waited for, `at_the_end` when all of them are closed."""
        self._listening = listening
        self._on_stop = on_stop
        self._at_the_end = at_the_end
        self._loop = asyncio.get_running_loop()
        self.url = url_of(listening)
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            http=Connection,
            ws="none",
            h11_max_incomplete_event_size=MOST_HEADER_BYTES,
            proxy_headers=False,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
        self._uvicorn = _Uvicorn(config)

    async def run(self) -> None:
        try:
            await self._uvicorn.serve([self._listening])
        finally:
            await self._at_the_end()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop)

    def stop_now(self) -> None:
        self._uvicorn.force_exit = True
        self.stop()

    def _stop(self) -> None:
        # Before uvicorn waits for its connections: a stream would never end by itself.
        self._on_stop()
        self._uvicorn.should_exit = True


class _Uvicorn(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are heeded for all parts of the process together (`worker/signals.py`)."""
        yield
