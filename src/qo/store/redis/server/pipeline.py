"""The calls of one event loop to the server: combined into few writes, and sent again after an outage."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from qo.errors import StoreUnavailable
from qo.store.redis.server.address import ServerAddress
from qo.store.redis.server.availability import pause_seconds
from qo.store.redis.server.connection import (
    NOT_NOW,
    READ_SECONDS,
    Argument,
    Connection,
    ServerRefused,
    pack,
    says_moved,
)
from qo.store.redis.server.functions import Function, Library
from qo.store.redis.server.nodes import connect
from qo.store.redis.server.server_state import ServerState

WATCH_SECONDS = 0.1
BATCHES_IN_FLIGHT = 2
"""Two, so that the server works on one while the replies to the other are read."""
BATCH_BYTES = 1 << 20
NO_FUNCTION = "ERR Function not found"
AHEAD = pack(("PING",))
"""Sent before every batch. A server writes first to the connection that it had to answer last, which would be the
caller's. After a PING it writes first to the workers that the call wakes; on few processors they would otherwise wait
until the caller has read its reply."""


@dataclass(slots=True, eq=False)
class Call:
    packed: bytes
    function: Function | None
    answer: asyncio.Future[Any]
    deadline: float
    brings: Library | None = None
    """The library that this call loads, for the calls behind it."""
    was_sent: bool = False


class Pipeline:
    """Carries the calls of one event loop over one connection, in their order.

    While batches are in flight, further calls gather and go together in one write; a lone call goes at once.
    It reads while a batch is being written, so full buffers on both sides cannot block each other.
    """

    def __init__(self, server: ServerState) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._connection: Connection | None = None
        self._waiting: deque[Call] = deque()
        self._in_flight: deque[Call] = deque()
        self._batches: deque[int] = deque()  # how many replies of each batch in flight are still due
        self._again: list[Call] = []  # refused for now: sent again when nothing is in flight any more
        self._missing: set[Library] = set()  # libraries that the server does not have (any more)
        self._not_taken: dict[Library, ServerRefused] = {}  # libraries that it refused
        self._trouble: Exception | None = None
        self._attempts = 0  # since the server last accepted a call
        self._restoring: asyncio.Task[None] | None = None
        self._following: asyncio.Task[None] | None = None
        self._watching: asyncio.TimerHandle | None = None
        self._end: AsyncGenerator[None] | None = None
        nobody = self._loop.create_future()
        nobody.cancel()
        self._ahead = Call(AHEAD, None, nobody, deadline=0.0)

    def call(
        self, command: tuple[Argument, ...], function: Function | None, patience_seconds: float
    ) -> asyncio.Future[Any]:
        answer = self._loop.create_future()
        deadline = self._loop.time() + patience_seconds
        self._waiting.append(Call(pack(command), function, answer, deadline))
        self._send()
        if self._watching is None:
            self._watching = self._loop.call_later(WATCH_SECONDS, self._watch)
        return answer

    def unanswered(self) -> list[Call]:
        calls = chain(self._in_flight, self._again, self._waiting)
        return [call for call in calls if call.brings is None and not call.answer.done()]

    def close(self) -> None:
        for task in (self._restoring, self._following):
            if task is not None:
                task.cancel()
        if self._watching is not None:
            self._watching.cancel()
        if self._connection is not None:
            self._connection.abort()
        self._connection = self._restoring = self._watching = None
        self._fail_all(self._server.closed())

    def leave_to_other_process(self) -> None:
        if self._connection is not None:
            self._connection.leave_to_other_process()

    async def end(self) -> None:
        if self._end is None:
            self.close()
        else:
            await self._end.aclose()

    async def _with_the_loop(self) -> AsyncGenerator[None]:
        """Closes this object with its event loop: a loop that is shut down closes its generators."""
        try:
            yield
        finally:
            self.close()
            if self._following is not None:
                await asyncio.wait([self._following])
            await asyncio.sleep(0)  # the transport closes in the loop's next iteration

    # --- sending ----------------------------------------------------------------------------------------------

    def _send(self) -> None:
        if self._connection is None:
            if self._restoring is None:
                self._restoring = self._loop.create_task(self._restore())
            return
        while self._waiting and not self._again and len(self._batches) < BATCHES_IN_FLIGHT:
            self._send_batch(self._connection)

    def _send_batch(self, connection: Connection) -> None:
        parts: list[bytes] = []
        size = 0
        while self._waiting and size < BATCH_BYTES:
            call = self._waiting.popleft()
            if call.answer.done():
                continue  # its caller was cancelled
            call.was_sent = True
            for each in (*self._what_goes_before(call, first=not parts), call):
                parts.append(each.packed)
                size += len(each.packed)
                self._in_flight.append(each)
        if parts:
            if not self._batches:
                connection.heard_at = self._loop.time()
            self._batches.append(len(parts))
            connection.send(b"".join(parts))

    def _what_goes_before(self, call: Call, *, first: bool) -> tuple[Call, ...]:
        """The first call of a missing function loads its library, for all calls behind it, also in the same batch."""
        if not self._missing or call.function is None or call.function.library not in self._missing:
            return (self._ahead,) if first else ()
        library = call.function.library
        self._missing.discard(library)
        packed = pack(("FUNCTION", "LOAD", "REPLACE", library.text))
        return (Call(packed, None, self._loop.create_future(), call.deadline, brings=library),)

    # --- hearing ----------------------------------------------------------------------------------------------

    def _hear(self, reply: Any) -> None:
        call = self._in_flight.popleft()
        if type(reply) is ServerRefused and reply.code in NOT_NOW:
            self._trouble = reply
            self._again.append(call)
        else:
            if self._attempts and not self._again and call is not self._ahead:
                self._is_well()
            self._settle(call, reply)
        self._batches[0] -= 1
        if self._batches[0]:
            return
        self._batches.popleft()
        if self._again and not self._batches:
            self._send_again()
        else:
            self._send()

    def _settle(self, call: Call, reply: Any) -> None:
        if call.brings is not None:
            call.answer.cancel()
            if type(reply) is ServerRefused:
                self._not_taken[call.brings] = reply
        elif call.answer.done():
            return  # its caller was cancelled
        elif type(reply) is not ServerRefused:
            call.answer.set_result(reply)
        elif call.function is None:
            call.answer.set_exception(reply)
        elif str(reply) == NO_FUNCTION and (refusal := self._not_taken.get(call.function.library)) is not None:
            call.answer.set_exception(self._server.explain(refusal))
        elif str(reply) == NO_FUNCTION:
            self._missing.add(call.function.library)
            self._again.append(call)
        else:
            call.answer.set_exception(self._server.explain(reply))

    def _send_again(self) -> None:
        self._waiting.extendleft(reversed(self._again))
        self._again.clear()
        if self._trouble is None:
            self._send()
            return
        connection, self._connection = self._connection, None
        assert connection is not None
        connection.abort()
        if says_moved(self._trouble):
            self._server.follow(self._trouble, connection.address)
        self._send()

    def _lose(self, error: Exception) -> None:
        self._connection = None
        self._trouble = error
        lost = [call for call in (*self._again, *self._in_flight) if call.brings is None]
        self._waiting.extendleft(reversed(lost))
        self._again.clear()
        self._in_flight.clear()
        self._batches.clear()
        if self.unanswered():
            self._send()

    def _is_well(self) -> None:
        self._attempts = 0
        self._server.availability.back(self._server.nodes.current)

    # --- connecting -------------------------------------------------------------------------------------------

    async def _restore(self) -> None:
        if self._end is None:
            self._end = self._with_the_loop()
            await anext(self._end)
        try:
            while self._connection is None and self.unanswered():
                await self._pause()
                await self._try_to_connect()
        finally:
            self._restoring = None
        if self._connection is not None:
            self._send()

    async def _pause(self) -> None:
        """Wait before the next attempt. There is no pause before the first one, unless the server has refused a call,
        because a connection may end although the server is well; nor after a first MOVED."""
        moved = says_moved(self._trouble)
        refusal = self._trouble if isinstance(self._trouble, ServerRefused) and not moved else None
        if refusal is not None:
            self._server.availability.lost(self._server.nodes.current, refusal, began=time.monotonic())
        if refusal is not None or self._attempts > moved:
            await asyncio.sleep(pause_seconds(self._attempts))
        self._attempts += 1

    async def _try_to_connect(self) -> None:
        nodes, began = self._server.nodes, time.monotonic()
        address = nodes.current
        try:
            connection = await connect(nodes)
        except StoreUnavailable as hopeless:
            self._fail_all(hopeless)
        except Exception as error:
            # After any error, calls wait for the next attempt.
            self._trouble = error
            self._server.availability.lost(address, error, began=began)
            nodes.leave(address)
        else:
            connection.hear, connection.lost = self._hear, self._lose
            self._connection = connection
            self._following = self._following or self._loop.create_task(nodes.follow_primary(self._go_to))
            self._trouble = None
            self._missing.clear()
            self._not_taken.clear()

    def _go_to(self, primary: ServerAddress) -> None:
        if self._connection is not None and self._connection.address != primary:
            self._connection.abort()
            self._lose(ConnectionError("another server was made the primary"))

    # --- giving up --------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Fail calls whose time is over, and close a connection that has been silent for too long.

        One timer for all calls: a timer for each would cost as much as the rest of a call."""
        now = self._loop.time()
        self._watching = None
        if self._connection is not None and self._in_flight and now - self._connection.heard_at > READ_SECONDS:
            self._connection.abort()
            self._lose(TimeoutError(f"no answer for {READ_SECONDS:g} s"))
        unanswered = self.unanswered()
        for call in unanswered:
            if call.deadline <= now:
                call.answer.set_exception(self._server.unavailable(self._trouble, was_sent=call.was_sent))
        if unanswered:
            self._watching = self._loop.call_later(WATCH_SECONDS, self._watch)

    def _fail_all(self, error: StoreUnavailable) -> None:
        for call in self.unanswered():
            call.answer.set_exception(StoreUnavailable(*error.args))  # a new one each: raising adds a traceback
