"""TLS in front of a PostgreSQL: the one from pip is built without, and a recorder must not see the difference."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.servers.certificates import make_certificate
from tests.servers.local import new_port
from tests.servers.postgres import PostgresServer

REQUEST_BYTES, YES = bytes.fromhex("0000000804d2162f"), b"S"
"""How a client of PostgreSQL asks for TLS, and how a server agrees."""


class TlsFront:
    """What is encrypted is handed on to the server. A client that does not ask for TLS is turned away."""

    def __init__(self, server: PostgresServer, folder: Path) -> None:
        self._server = server
        self.certificate = folder / "tls.pem"
        key = folder / "tls.key"
        make_certificate(self.certificate, key, names=["IP:127.0.0.1"])
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(self.certificate, key)
        self.port = 0
        self.encrypted = 0
        """How many connections were encrypted."""
        self.turned_away = 0
        self._serving: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self.port = new_port()
        listening = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        try:
            yield
        finally:
            listening.close()
            for task in self._serving:
                task.cancel()
            await asyncio.gather(*self._serving, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            await self._serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client has gone away
        finally:
            self._serving.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.readexactly(len(REQUEST_BYTES)) != REQUEST_BYTES:
            self.turned_away += 1
            return
        writer.write(YES)
        await writer.start_tls(self._context)
        self.encrypted += 1
        to_reader, to_writer = await asyncio.open_connection("127.0.0.1", self._server.port)
        copying = [asyncio.create_task(_copy(reader, to_writer)), asyncio.create_task(_copy(to_reader, writer))]
        try:
            await asyncio.wait(copying, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in copying:
                task.cancel()
            await asyncio.gather(*copying, return_exceptions=True)
            to_writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while content := await reader.read(65536):
        writer.write(content)
        await writer.drain()
