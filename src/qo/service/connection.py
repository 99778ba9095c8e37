"""A connection of the server: closed when no request arrives in time, dropped when its client does not read."""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

import h11
import msgspec
from uvicorn.protocols.http.h11_impl import H11Protocol

from qo.service.problems import MEDIA_TYPE, make

MOST_HEADER_BYTES = 16 * 1024
SEND_BUFFER_BYTES = 64 * 1024
"""Without it, the kernel takes megabytes for a client that has stopped reading before a send blocks."""
TOO_LARGE = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
UNACKNOWLEDGED_MS = 20_000
"""After so long the kernel gives up a connection whose client no longer acknowledges."""
AT_ONCE = struct.pack("ii", 1, 0)  # lingering is on, for 0 seconds
ABORT, WRITE = "qo.abort", "qo.write"


class Connection(H11Protocol):
    """Give it to `uvicorn.Config(http=Connection)`.

    Closing a connection sends first what is still in its buffer, so a client that does not read would keep its
    connection open. `abort_of` finds the call that drops buffer and socket at once.

    A connection on which the headers of a request do not arrive in time is closed, and so is one on which the rest of a
    request that was answered does not: it would be kept for ever.
    """

    arrival_seconds = 10.0
    _arriving: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        _set_options(transport.get_extra_info("socket"))
        # uvicorn copies it into the scope of each request
        self.app_state = {**self.app_state, ABORT: self._abort, WRITE: self._write_chunk}
        # uvicorn would log every path, and with it watch tokens, wherever a handler was given to its logger.
        self.access_log = False
        super().connection_made(transport)
        self._await_arrival()

    def data_received(self, data: bytes) -> None:
        was_answered = self._is_answered_before_it_arrived()
        super().data_received(data)
        if self._is_answered_before_it_arrived():
            return  # its time runs since it was answered
        if was_answered:
            self._has_arrived()
        if self.conn.their_state is h11.IDLE:
            self._await_arrival()
        else:
            self._has_arrived()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._is_answered_before_it_arrived():
            self._await_arrival()

    def connection_lost(self, exc: Exception | None) -> None:
        self._has_arrived()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answers what is no HTTP request. uvicorn would send its message as plain text, whatever h11 has refused."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()  # a broken body behind the answer, or beside a stream
            return
        refused = sys.exception()
        if isinstance(refused, h11.RemoteProtocolError) and refused.error_status_hint == TOO_LARGE:
            detail = f"The path and the headers have more than {MOST_HEADER_BYTES} bytes; send at most that many."
            problem = make(TOO_LARGE, "Headers too large", detail)
        else:
            problem = make(400, "Request not readable", f"{msg} Send HTTP/1.1 with one Host header.")
        headers = [("content-type", MEDIA_TYPE), ("connection", "close")]
        reason = HTTPStatus(problem.status).phrase.encode()
        for event in (
            h11.Response(status_code=problem.status, headers=headers, reason=reason),
            h11.Data(data=msgspec.json.encode(problem)),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _is_answered_before_it_arrived(self) -> bool:
        """Whether the rest of a request is still to come that was answered without it."""
        return self.conn.our_state is h11.DONE

    def _await_arrival(self) -> None:
        if self._arriving is None:
            self._arriving = self.loop.call_later(self.arrival_seconds, self.transport.close)

    def _has_arrived(self) -> None:
        if self._arriving is not None:
            self._arriving.cancel()
            self._arriving = None

    def _get_upgrade(self) -> None:
        """No protocol is offered in place of HTTP/1.1, and uvicorn need not say so in the log for each request."""
        return None

    def _write_chunk(self, body: bytes) -> bool:
        """Write a chunk of a response that has begun and is sent in chunks. False: it was not written, because the
        client does not take any more for now.

        uvicorn and h11 take five times as long for it, and a stream has thousands of watchers. They need not know of
        it: how a response that is sent in chunks goes on does not depend on the chunks that were sent.
        """
        if self.flow.write_paused or self.conn.our_state is not h11.SEND_BODY or self.transport.is_closing():
            return False
        self.transport.write(b"%x\r\n%b\r\n" % (len(body), body))
        return True

    def _abort(self) -> None:
        if not self.transport.is_closing():
            # Without it, the kernel would keep what it has of the client's data, and try to send it.
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
        self.transport.abort()


def abort_of(scope: Mapping[str, Any]) -> Callable[[], None] | None:
    """What drops the connection of this request at once; None on another server's connection."""
    abort: Callable[[], None] | None = scope.get("state", {}).get(ABORT)
    return abort


def write_of(scope: Mapping[str, Any]) -> Callable[[bytes], bool] | None:
    """What writes a chunk of the response at once; None where the response is not sent in chunks by our server."""
    if scope["http_version"] != "1.1" or scope["method"] == "HEAD":
        return None
    write: Callable[[bytes], bool] | None = scope.get("state", {}).get(WRITE)
    return write


def _set_options(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    if connection.family != socket.AF_UNIX and hasattr(socket, "TCP_USER_TIMEOUT"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS)
