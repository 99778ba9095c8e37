"""A loopback proxy between qo and a bucket server that does to requests what networks and servers do."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

ANSWER = b"HTTP/1.1 %d Injected\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s"
BODY = b"<Error><Code>Injected</Code><Message>by the test's proxy</Message></Error>"


class Request(NamedTuple):
    method: str
    path: str
    raw: bytes


@dataclass(frozen=True)
class Fault:
    """`happens`: whether the request reaches the server, and if so only when `held` is set. `status` 0: no answer,
    the connection is cut."""

    happens: bool
    status: int
    held: asyncio.Event | None = None


LOST_REQUEST = Fault(happens=False, status=0)
LOST_REPLY = Fault(happens=True, status=0)


def refused(status: int) -> Fault:
    return Fault(happens=False, status=status)


def done_but_answered(status: int) -> Fault:
    return Fault(happens=True, status=status)


def arrives_late(held: asyncio.Event) -> Fault:
    """The sender is told nothing and finds the connection cut; the request arrives when the event is set."""
    return Fault(happens=True, status=0, held=held)


STATUSES = (409, 412, 500, 503)
ALL_FAULTS = [LOST_REQUEST, LOST_REPLY, *map(refused, STATUSES), *map(done_but_answered, STATUSES)]


@dataclass
class Proxy:
    upstream: int
    port: int = 0
    requests: list[Request] = field(default_factory=list)
    """all that came, also those that went no further"""
    late: list[asyncio.Task[bytes]] = field(default_factory=list)
    _planned: list[tuple[Callable[[Request], bool], Fault]] = field(default_factory=list)
    hanging: asyncio.Event | None = None
    """while it is there and not set, nothing is passed on and nothing answered"""
    faults: int = 0
    """that happened at random"""
    _awaited: list[tuple[str, asyncio.Event]] = field(default_factory=list)
    _share: float = 0.0
    _dropped: bytes | None = None

    @classmethod
    @asynccontextmanager
    async def before(cls, upstream: int) -> AsyncIterator[Proxy]:
        proxy = cls(upstream)
        serving: set[asyncio.Task[None]] = set()

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.ensure_future(proxy._serve(reader, writer))
            serving.add(task)
            task.add_done_callback(serving.discard)

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        proxy.port = server.sockets[0].getsockname()[1]
        try:
            yield proxy
        finally:
            server.close()
            for task in [*serving, *proxy.late]:
                task.cancel()
            await asyncio.gather(*serving, *proxy.late, return_exceptions=True)

    def plan(self, method: Literal["PUT", "GET", "DELETE"], *faults: Fault, path: str = "/slots/") -> None:
        """The next requests of this kind fare so, one after the other."""
        self._planned += [(lambda each: each.method == method and path in each.path, fault) for fault in faults]

    def at_random(self, share: float) -> None:
        """Of all requests but those of probes, this share fares badly in one way or another."""
        self._share = share

    def next_of(self, method: str) -> asyncio.Event:
        """Is set when the next request of this method comes."""
        event = asyncio.Event()
        self._awaited.append((method, event))
        return event

    def drop_header(self, name: str) -> None:
        """What a server does that does not know this header, and so ignores the condition that it states."""
        self._dropped = name.encode().lower() + b":"

    @property
    def all_happened(self) -> bool:
        return not self._planned

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await _read_request(reader)
            self.requests.append(request)
            for method, event in self._awaited:
                if method == request.method:
                    event.set()
            if self.hanging is not None:
                await self.hanging.wait()
            writer.write(await self._answer(request))
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answer(self, request: Request) -> bytes:
        fault = self._fault_for(request)
        if fault is None:
            return await self._pass_on(request)
        if fault.held is not None:
            self.late.append(asyncio.ensure_future(self._pass_on_later(request, fault.held)))
        elif fault.happens:
            await self._pass_on(request)
        return ANSWER % (fault.status, len(BODY), BODY) if fault.status else b""

    def _fault_for(self, request: Request) -> Fault | None:
        for planned in self._planned:
            if planned[0](request):
                self._planned.remove(planned)
                return planned[1]
        if "/probes/" not in request.path and random.random() < self._share:
            self.faults += 1
            return random.choice(ALL_FAULTS)
        return None

    async def _pass_on_later(self, request: Request, held: asyncio.Event) -> bytes:
        await held.wait()
        return await self._pass_on(request)

    async def _pass_on(self, request: Request) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.upstream)
        try:
            writer.write(self._rewritten(request.raw))
            return await reader.read()
        finally:
            writer.close()

    def _rewritten(self, raw: bytes) -> bytes:
        head, _, body = raw.partition(b"\r\n\r\n")
        first, *headers = head.split(b"\r\n")
        if self._dropped is not None:
            headers = [line for line in headers if not line.lower().startswith(self._dropped)]
        return b"\r\n".join([first, b"Connection: close", *headers]) + b"\r\n\r\n" + body


async def _read_request(reader: asyncio.StreamReader) -> Request:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *headers = head.decode("latin-1").split("\r\n")
    lengths = [int(line.partition(":")[2]) for line in headers if line.lower().startswith("content-length:")]
    body = await reader.readexactly(lengths[0]) if lengths else b""
    method, path, _ = first.split(" ")
    return Request(method, path, head + body)
