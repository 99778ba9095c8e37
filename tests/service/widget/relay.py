"""A connection that a test can cut: a port through which browsers reach a server, for as long as the test lets them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Relay:
    def __init__(self, host: str) -> None:
        self.host = host
        self.port = 0
        self.target_port = 0
        """Where connections go. It may be set after the relay listens."""
        self.is_cut = False
        self._open: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def cut(self) -> None:
        """End all connections, and every new one, until `mend`."""
        self.is_cut = True
        self.abort()

    def mend(self) -> None:
        self.is_cut = False

    def abort(self) -> None:
        for writer in self._open:
            writer.transport.abort()

    async def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_cut:
            writer.transport.abort()
            return
        there, back = await asyncio.open_connection(self.host, self.target_port)
        self._open |= {writer, back}
        try:
            await asyncio.gather(_pass_on(reader, back), _pass_on(there, writer))
        finally:
            self._open -= {writer, back}


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass  # it was cut, or the browser went away
    finally:
        writer.transport.abort() if writer.is_closing() else writer.close()


@asynccontextmanager
async def relaying(host: str = "127.0.0.1") -> AsyncIterator[Relay]:
    relay = Relay(host)
    server = await asyncio.start_server(relay.connect, host, 0)
    relay.port = server.sockets[0].getsockname()[1]
    async with server:
        yield relay
        relay.cut()
