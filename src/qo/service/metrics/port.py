"""A small HTTP server in the event loop of a process that is no web server, for its metrics alone."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus

from qo.errors import QoError
from qo.service.metrics.exposition import CONTENT_TYPE

PATH = "/metrics"
REQUEST_WITHIN_SECONDS = 10.0
LONGEST_HEAD_BYTES = 16 * 1024


class PortUnusable(QoError):
    """The metrics cannot be served at this address."""

    def __init__(self, host: str, port: int, error: OSError) -> None:
        # That of asyncio repeats the address; an unknown host name has no number of the system's.
        reason = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
        super().__init__(
            f"Metrics cannot be served at {host} port {port} ({reason}); give --metrics-port another port (0 takes a "
            "free one), or --metrics-host an address of this machine."
        )


@asynccontextmanager
async def metrics_served(text: Callable[[], bytes], *, host: str, port: int) -> AsyncIterator[str]:
    """Answer GET /metrics with `text()`, called in this event loop, and yield the address. Raises `PortUnusable`.

    `prometheus_client` has a server, which calls from threads of its own; a worker's numbers belong to its event loop.
    """
    answering: set[asyncio.Task[None]] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        answering.add(task)
        try:
            async with asyncio.timeout(REQUEST_WITHIN_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(_response(head, text))
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError, TimeoutError):
            pass  # the client sent no request, sent too much, or went away: there is nobody to answer
        finally:
            writer.close()
            answering.discard(task)

    try:
        server = await asyncio.start_server(answer, host, port, limit=LONGEST_HEAD_BYTES)
    except OSError as error:
        raise PortUnusable(host, port, error) from error
    try:
        chosen: int = server.sockets[0].getsockname()[1]
        yield f"http://{f'[{host}]' if ':' in host else host}:{chosen}{PATH}"
    finally:
        server.close()
        for task in answering:
            task.cancel()
        await asyncio.gather(*answering, return_exceptions=True)


def _response(head: bytes, text: Callable[[], bytes]) -> bytes:
    """The whole response to a request, of which the head was read."""
    method, _, rest = head.partition(b" ")
    path = rest.partition(b" ")[0].partition(b"?")[0]
    if path != PATH.encode():
        return _message(HTTPStatus.NOT_FOUND, b"The metrics are at /metrics.\n")
    if method != b"GET":
        return _message(HTTPStatus.METHOD_NOT_ALLOWED, b"Use GET.\n", "Allow: GET")
    return _message(HTTPStatus.OK, text(), f"Content-Type: {CONTENT_TYPE}")


def _message(status: HTTPStatus, body: bytes, *headers: str) -> bytes:
    lines = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        *headers,
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body
