"""A response that sends events for as long as there are any: its heartbeats, its limits, and all the ways it ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping
from contextlib import aclosing
from enum import StrEnum
from typing import Any

import msgspec

from qo.errors import QoError
from qo.loops.system import System
from qo.loops.timing import within
from qo.service.connection import abort_of, write_of
from qo.service.stream.encoding import HEARTBEAT, retry_frame
from qo.service.stream.watchers import Dropped, IsAllowed, Owner, Watchers
from qo.settings import Settings

log = logging.getLogger("qo.stream")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

EVENT_STREAM = "text/event-stream"
HEADERS = [
    (b"content-type", f"{EVENT_STREAM}; charset=utf-8".encode()),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
RETRY_SECONDS = (1.0, 3.0)
"""A client comes back after a time between these, so that the clients of a server that stopped do not come at once."""
FAREWELL_SECONDS = 0.5
"""How long the last words may take. A client that reads has them at once; for others a server must not stop late."""


class Times(msgspec.Struct, frozen=True, kw_only=True):
    heartbeat_seconds: float = 15
    send_seconds: float = 10
    """A client that takes longer for one send is too slow, and its stream ends."""
    longest_seconds: float = 600
    """A stream ends then, and its client resumes: a balancer can move it, and a lost client is found."""


def times_from(settings: Settings) -> Times:
    return Times(heartbeat_seconds=settings.stream.heartbeat_every_secs)


class _End(StrEnum):
    FINISHED = "finished"
    CLIENT_GONE = "client gone"
    TOO_SLOW = "too slow"
    LONGEST = "longest"
    CLOSED = "closed"
    FAILED = "failed"


class _TooSlow(Exception):
    pass


class StreamResponse:
    """An ASGI response that sends the chunks of `source`. It serves one request.

    The first chunk is read before anything is sent. So an error of the source that comes first, and a refusal by
    `watchers`, reach the application, which can still answer with another status.

    It takes one task besides that of the request. When it ends, for whatever reason, the source is closed and its place
    among the watchers is free before the request's task goes on.
    """

    def __init__(
        self,
        source: AsyncGenerator[bytes],
        *,
        watchers: Watchers,
        caller: Owner,
        system: System,
        times: Times,
        headers: dict[str, str] | None = None,
        is_allowed: IsAllowed | None = None,
    ) -> None:
        """`is_allowed` is asked now and then, and ends the stream when it says no."""
        self._source = source
        self._watchers = watchers
        self._caller = caller
        self._system = system
        self._times = times
        self._headers = headers or {}
        self._is_allowed = is_allowed
        self._end: _End | None = None
        """Why the stream ends. The first reason counts."""
        self._interruption = asyncio.timeout(None)
        self._sending = asyncio.Lock()
        self.has_started = False
        """Whether anything was sent, so that no other answer can be given."""
        self._is_complete = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope, self._send_message = scope, send
        self._write = write_of(scope)
        with self._watchers.place(self._caller, close=self._close, is_allowed=self._is_allowed):
            await self._stream(receive)
        if self._is_complete or self._end is _End.CLIENT_GONE:
            return
        if self._end is not _End.TOO_SLOW and await self._say_farewell():
            return
        await self._abort(receive)

    # --- sending ----------------------------------------------------------------------------------------------

    async def _stream(self, receive: Receive) -> None:
        """Send everything until the stream ends. Then `_end` says why."""
        loop = asyncio.get_running_loop()
        longest = loop.call_later(self._times.longest_seconds, self._interrupt, _End.LONGEST)
        attending: asyncio.Task[None] | None = None
        try:
            async with self._interruption, aclosing(self._source) as chunks:
                first = await anext(chunks, None)
                attending = asyncio.create_task(self._attend(receive), name="qo-stream")
                attending.add_done_callback(self._has_attended)
                if first is not None and self._scope["method"] != "HEAD":
                    await self._send(first)
                    async for chunk in chunks:
                        await self._send(chunk)
                await self._send(b"", is_last=True)
                self._end = self._end or _End.FINISHED
        except TimeoutError:
            if not self._interruption.expired():
                raise
        except _TooSlow:
            self._end = _End.TOO_SLOW
        except Exception as error:
            if not self.has_started:
                raise
            self._end = _End.FAILED
            if not isinstance(error, QoError):
                raise
            log.warning("a stream ended early, and its client comes back: %s", error)
        finally:
            longest.cancel()
            if attending is not None:
                attending.cancel()
            self._count()
            self._end = self._end or _End.FAILED  # an error that is raised: from here on nothing interrupts

    async def _attend(self, receive: Receive) -> None:
        """Send heartbeats, and end the stream when the client has gone."""
        loop = asyncio.get_running_loop()
        due = loop.time() + self._times.heartbeat_seconds
        while True:
            beat = asyncio.timeout_at(due)
            try:
                async with beat:
                    message = await receive()
            except TimeoutError:
                if not beat.expired():
                    raise
                due += self._times.heartbeat_seconds
                try:
                    await self._send(HEARTBEAT)
                except _TooSlow:
                    self._interrupt(_End.TOO_SLOW)
                    return
            else:
                if message["type"] == "http.disconnect":
                    self._interrupt(_End.CLIENT_GONE)
                    return

    def _has_attended(self, attending: asyncio.Task[None]) -> None:
        if not attending.cancelled() and (error := attending.exception()) is not None:
            log.error("a stream ended early, and its client comes back", exc_info=error)
            self._interrupt(_End.FAILED)

    async def _send(self, body: bytes, *, is_last: bool = False) -> None:
        """Raises `_TooSlow` when that takes too long. Then the body was not sent, and nothing may be sent after it."""
        write = self._write if self.has_started and not is_last and not self._sending.locked() else None
        if write is not None and write(body):
            return
        async with self._sending:
            if not await within(self._times.send_seconds, self._send_now(body, is_last=is_last)):
                raise _TooSlow

    async def _send_now(self, body: bytes, *, is_last: bool) -> None:
        if not self.has_started:
            self.has_started = True
            await self._send_message({"type": "http.response.start", "status": 200, "headers": self._all_headers()})
        await self._send_message({"type": "http.response.body", "body": body, "more_body": not is_last})
        self._is_complete = is_last

    def _all_headers(self) -> list[tuple[bytes, bytes]]:
        own = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in self._headers.items()]
        named = {name for name, _ in own}
        headers = own + [(name, value) for name, value in HEADERS if name not in named]
        wants_close = any(name == b"connection" and b"close" in value.lower() for name, value in self._scope["headers"])
        if self._scope["http_version"] == "1.1" and not wants_close:
            headers.append((b"connection", b"keep-alive"))
        return headers

    # --- ending -----------------------------------------------------------------------------------------------

    def _close(self) -> None:
        self._interrupt(_End.CLOSED)

    def _interrupt(self, end: _End) -> None:
        """End the stream from outside of its task. Without effect when it is ending already."""
        if self._end is None:
            self._end = end
            self._interruption.reschedule(0)

    def _count(self) -> None:
        if self._end is _End.TOO_SLOW:
            self._watchers.dropped[Dropped.SLOW] += 1
        elif self._end is _End.FAILED:
            self._watchers.dropped[Dropped.FAILED] += 1

    async def _say_farewell(self) -> bool:
        """Complete the response with the time after which the client comes back. False: it did not take them."""
        words = retry_frame(self._system.between(*RETRY_SECONDS))
        return await within(FAREWELL_SECONDS, self._send_now(words, is_last=True))

    async def _abort(self, receive: Receive) -> None:
        """Drop the connection with what its client has not read. Another server than ours closes it by itself when the
        response is incomplete."""
        abort = abort_of(self._scope)
        if abort is not None:
            abort()
            while (await receive())["type"] != "http.disconnect":
                pass
