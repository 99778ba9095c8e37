"""A proxy on loopback: it lets a request through, waits for the server's reply, throws it away and ends the
connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

OPERATIONS = (b"FCALL", b"EVALSHA")
"""how a request names what is to be done; others are those with which a connection begins"""


class LosingReplies:
    """A way to the server on which the replies to some requests get lost, and with each the connection."""

    def __init__(self, server_port: int) -> None:
        self.lost: list[bytes] = []
        self.port = 0
        self._server_port = server_port
        self._newest_request = b""
        self._times = 0
        self._meanwhile: Callable[[], Awaitable[Any]]

    def lose(self, *, times: int, meanwhile: Callable[[], Awaitable[Any]]) -> None:
        """The replies to the next operations; `meanwhile` happens before the client hears of it."""
        self._times, self._meanwhile = times, meanwhile

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection("127.0.0.1", self._server_port)
        requests = asyncio.create_task(self._pass_on(reader, to_server))
        try:
            while reply := await from_server.read(1 << 16):
                if self._times and any(word in self._newest_request for word in OPERATIONS):
                    self._times -= 1
                    self.lost.append(reply)
                    await self._meanwhile()
                    return
                writer.write(reply)
        finally:
            requests.cancel()
            for side in (writer, to_server):
                side.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, to_server: asyncio.StreamWriter) -> None:
        while request := await reader.read(1 << 16):
            self._newest_request = request
            to_server.write(request)
        to_server.transport.abort()


@asynccontextmanager
async def losing_replies(server_port: int) -> AsyncIterator[LosingReplies]:
    proxy = LosingReplies(server_port)
    listening = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = listening.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        listening.close()
        await listening.wait_closed()
