"""A client of an event stream on a socket of its own, which sees every byte: heartbeats, waits, and how it ends."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any, Protocol

import msgspec

from tests.worker.running import soon


class Address(Protocol):
    """Where a server listens: one in this process, or one in a process of its own."""

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...


class Frame(msgspec.Struct, frozen=True):
    """What stands between two empty lines."""

    event: str | None = None
    id: int | None = None
    data: Any = None
    retry: int | None = None
    comment: str | None = None


class StreamClient:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.frames: list[Frame] = []
        """Everything that was read."""
        self._reader = reader
        self._writer = writer
        self._is_chunked = False
        self.arriving = self._read()

    async def request(self, path: str, *, headers: dict[str, str], method: str, version: str) -> None:
        lines = [f"{method} {path} HTTP/{version}", "Host: localhost", *(f"{n}: {v}" for n, v in headers.items())]
        self._writer.write("\r\n".join([*lines, "", ""]).encode())
        self.status = int((await self._reader.readline()).split()[1])
        while line := (await self._reader.readline()).strip().decode():
            name, _, value = line.partition(": ")
            self.headers[name.lower()] = value
        self._is_chunked = self.headers.get("transfer-encoding") == "chunked"

    async def body(self) -> bytes:
        return await soon(self._reader.readexactly(int(self.headers["content-length"])))

    async def chunks(self) -> AsyncGenerator[bytes]:
        """Everything until the response is complete. Raises `IncompleteReadError` when the connection was cut."""
        assert self._is_chunked
        while size := int(await self._reader.readuntil(b"\r\n"), 16):
            chunk = await self._reader.readexactly(size + 2)
            yield chunk.removesuffix(b"\r\n")
        await self._reader.readexactly(2)

    async def next(self, *, event: str | None = None) -> Frame:
        """The next event; of that name, if one is given. Others, and heartbeats, are kept in `frames`."""

        async def find() -> Frame:
            async for frame in self.arriving:
                if frame.event is not None and event in (None, frame.event):
                    return frame
            raise EOFError(f"the stream has ended: {self.frames}")

        return await soon(find())

    async def rest(self) -> list[Frame]:
        """The frames until the response is complete."""

        async def read() -> list[Frame]:
            return [frame async for frame in self.arriving]

        return await soon(read())

    async def _read(self) -> AsyncGenerator[Frame]:
        async with aclosing(self.chunks()) as chunks:
            async for chunk in chunks:
                # One chunk has whole frames, because the server sends each frame in one piece.
                assert chunk.endswith(b"\n\n")
                for text in chunk.decode().removesuffix("\n\n").split("\n\n"):
                    frame = _parsed(text)
                    self.frames.append(frame)
                    yield frame

    async def close(self) -> None:
        await self.arriving.aclose()
        self._writer.transport.abort()


def _parsed(text: str) -> Frame:
    fields: dict[str, Any] = {}
    for line in text.split("\n"):
        name, _, value = line.partition(": ")
        assert name not in fields, f"{name} comes twice in {text!r}"
        fields[name or "comment"] = value
    for number in ("id", "retry"):
        if number in fields:
            fields[number] = int(fields[number])
    if "data" in fields:
        fields["data"] = msgspec.json.decode(fields["data"])
    return Frame(**fields)


@asynccontextmanager
async def connected(
    served: Address, path: str, *, headers: dict[str, str] | None = None, method: str = "GET", version: str = "1.1"
) -> AsyncIterator[StreamClient]:
    reader, writer = await soon(asyncio.open_connection(served.host, served.port))
    client = StreamClient(reader, writer)
    try:
        await soon(client.request(path, headers=headers or {}, method=method, version=version))
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def stopped_client(served: Address, path: str) -> AsyncIterator[socket.socket]:
    """A client that asks for a stream and then reads nothing. Its kernel takes very little for it."""
    loop = asyncio.get_running_loop()
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.setblocking(False)
        await loop.sock_connect(connection, (served.host, served.port))
        await loop.sock_sendall(connection, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        yield connection
