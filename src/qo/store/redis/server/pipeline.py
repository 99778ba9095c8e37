"""The way to the server: calls from any event loop, gathered into few writes, and sent again when it was away."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from qo.errors import StoreAway, StoreUnavailable
from qo.forking import leave_behind, when_forked
from qo.store.redis.address import Address, prefix_of
from qo.store.redis.availability import Availability, pause_seconds, said
from qo.store.redis.connection import NOT_NOW, READ_SECONDS, Argument, Connection, ServerRefused, pack, says_moved
from qo.store.redis.functions import Function, Library
from qo.store.redis.nodes import Nodes, connect

PATIENCE_SECONDS = 10.0
"""how long a call is tried before it fails, unless it says otherwise"""
WATCH_SECONDS = 0.1
BATCHES_IN_FLIGHT = 2
"""so that the server has something to do while the answers to the first are read"""
BATCH_BYTES = 1 << 20
NO_FUNCTION = "ERR Function not found"
AHEAD = pack(("PING",))
"""Sent before every batch. The server writes first to whom it had to answer last, which would be the caller; after this
it is those whom the call wakes, and on few processors they would wait until the caller has read its answer."""

# --- the calls of one event loop --------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Call:
    packed: bytes
    function: Function | None
    answer: asyncio.Future[Any]
    deadline: float
    brings: Library | None = None
    """what the server is given with it, for the calls behind it"""
    was_sent: bool = False


class _Line:
    """Carries the calls of one event loop over one connection, in their order.

    While batches are in flight, further calls gather and go together in one write; a lone call goes at once.
    Reading goes on while a batch is being written, so full buffers on both sides cannot hold each other up.
    """

    def __init__(self, server: _Server) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._connection: Connection | None = None
        self._waiting: deque[_Call] = deque()
        self._in_flight: deque[_Call] = deque()
        self._batches: deque[int] = deque()  # how many answers each batch in flight still owes
        self._again: list[_Call] = []  # answered, but not done: sent again when nothing is in flight any more
        self._missing: set[Library] = set()  # what the server does not have (any more)
        self._not_taken: dict[Library, ServerRefused] = {}  # and what it did not want to have
        self._trouble: Exception | None = None
        self._attempts = 0  # since the server last did what it was asked
        self._restoring: asyncio.Task[None] | None = None
        self._following: asyncio.Task[None] | None = None
        self._watching: asyncio.TimerHandle | None = None
        self._end: AsyncGenerator[None] | None = None
        nobody = self._loop.create_future()
        nobody.cancel()
        self._ahead = _Call(AHEAD, None, nobody, deadline=0.0)

    def call(
        self, command: tuple[Argument, ...], function: Function | None, patience_seconds: float
    ) -> asyncio.Future[Any]:
        answer = self._loop.create_future()
        deadline = self._loop.time() + patience_seconds
        self._waiting.append(_Call(pack(command), function, answer, deadline))
        self._send()
        if self._watching is None:
            self._watching = self._loop.call_later(WATCH_SECONDS, self._watch)
        return answer

    def unanswered(self) -> list[_Call]:
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
        """An event loop that is shut down closes its generators, which is how a line hears that its loop ends."""
        try:
            yield
        finally:
            self.close()
            if self._following is not None:
                await asyncio.wait([self._following])
            await asyncio.sleep(0)  # for the transport, which closes in the loop's next round

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
                continue  # its caller has gone
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

    def _what_goes_before(self, call: _Call, *, first: bool) -> tuple[_Call, ...]:
        """The first call of a function that is missing brings its library; those behind it, in the same batch too,
        find it there."""
        if not self._missing or call.function is None or call.function.library not in self._missing:
            return (self._ahead,) if first else ()
        library = call.function.library
        self._missing.discard(library)
        packed = pack(("FUNCTION", "LOAD", "REPLACE", library.text))
        return (_Call(packed, None, self._loop.create_future(), call.deadline, brings=library),)

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

    def _settle(self, call: _Call, reply: Any) -> None:
        if call.brings is not None:
            call.answer.cancel()
            if type(reply) is ServerRefused:
                self._not_taken[call.brings] = reply
        elif call.answer.done():
            return  # its caller has gone
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
        """Before the first try only if the server asked for it: a connection may end without the server being lost.
        Whoever is sent elsewhere goes at once, unless sent from there again."""
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
            # Whatever it was, calls wait for this to be tried again.
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

    def _go_to(self, primary: Address) -> None:
        if self._connection is not None and self._connection.address != primary:
            self._connection.abort()
            self._lose(ConnectionError("another server was made the primary"))

    # --- giving up --------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Give up on calls whose time is over, and on a connection that has long been silent.

        One timer for all calls: one for each would cost as much as the rest of a call."""
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
            call.answer.set_exception(StoreUnavailable(*error.args))  # each its own: raising adds a traceback to it


# --- for everybody ----------------------------------------------------------------------------------------------


class _Server:
    """What all lines know of the server."""

    def __init__(self, url: str) -> None:
        self.nodes = Nodes(url)
        self.availability = Availability()

    def follow(self, moved: ServerRefused, told_by: Address) -> None:
        host, _, port = str(moved).rpartition(" ")[2].rpartition(":")
        self.nodes.move(told_by.beside(host, int(port)))

    def explain(self, refusal: ServerRefused) -> Exception:
        if refusal.code == "OOM":
            return StoreAway(
                f"Redis at {self.nodes.current} is out of memory, nothing was changed; raise its maxmemory "
                "or let jobs end and be forgotten."
            )
        if refusal.code == "NOPERM":
            return StoreUnavailable(
                f"Redis at {self.nodes.current} does not let the user of store.url do what qo does ({refusal}); "
                "its ACL has to allow ~qo:* &qo:*, FCALL, FUNCTION LOAD and the commands that qo's functions use."
            )
        return refusal

    def unavailable(self, cause: Exception | None, *, was_sent: bool) -> StoreAway:
        address, reason = self.nodes.current, said(cause or TimeoutError())
        done = "what was asked may or may not have been done" if was_sent else "nothing was done"
        # An impatient call fails before it is known that the port is another one.
        hint = ", and that its port is one for TLS" if address.tls and not was_sent else ""
        return StoreAway(
            f"Redis at {address} cannot be used ({reason}); {done}. "
            f"Check that the server runs and that store.url is right{hint}."
        )

    def closed(self) -> StoreUnavailable:
        return StoreUnavailable(f"The store on Redis at {self.nodes.seed} is closed; connect again.")


class Client:
    """One a store. May be used from several event loops at once; each has a connection of its own.

    A call is sent again when its reply was lost or the server was not ready, so it may be carried out twice:
    every operation must be safe to repeat.
    """

    def __init__(self, url: str, *, namespace: str = "default", patience_seconds: float = PATIENCE_SECONDS) -> None:
        """Connects with the first call. Raises SettingsError for a url or a namespace that cannot be used."""
        self.prefix = prefix_of(namespace)
        self.patience_seconds = patience_seconds
        self._server = _Server(url)
        self._lines: dict[asyncio.AbstractEventLoop, _Line] = {}
        self._lock = threading.Lock()
        self._closed = False
        when_forked(self, Client._begin_anew)

    def _begin_anew(self) -> None:
        for line in self._lines.values():
            line.leave_to_other_process()
        leave_behind(self._lines)
        self._lines = {}
        self._lock = threading.Lock()
        self._server.availability = Availability()

    @property
    def address(self) -> str:
        """Where the server is, for people; without user and password."""
        return str(self._server.nodes.current)

    @property
    def nodes(self) -> Nodes:
        return self._server.nodes

    @property
    def availability(self) -> Availability:
        return self._server.availability

    def follow(self, moved: ServerRefused, told_by: Address) -> None:
        """To the node that has the namespace now."""
        self._server.follow(moved, told_by)

    def run(
        self, function: Function, arguments: Sequence[Argument], *, patience_seconds: float | None = None
    ) -> asyncio.Future[Any]:
        """The function's reply, with keys[1] the prefix: bytes, integers, lists and None.

        Raises StoreUnavailable when patience is over, and ServerRefused for an error that the function answers.
        """
        command = ("FCALL", function.name, 1, self.prefix, *arguments)
        patience_seconds = self.patience_seconds if patience_seconds is None else patience_seconds
        return self._line().call(command, function, patience_seconds)

    def command(self, *arguments: Argument, patience_seconds: float | None = None) -> asyncio.Future[Any]:
        """A plain command's reply, likewise."""
        patience_seconds = self.patience_seconds if patience_seconds is None else patience_seconds
        return self._line().call(arguments, None, patience_seconds)

    async def close(self) -> None:
        """Refuse more calls, wait for the answers that this loop's calls still expect, and let go of all connections.
        Closing twice is harmless."""
        with self._lock:
            self._closed = True
            lines, self._lines = self._lines, {}
        own = lines.pop(asyncio.get_running_loop(), None)
        for loop, line in lines.items():
            try:
                loop.call_soon_threadsafe(line.close)
            except RuntimeError:
                pass  # that loop has been closed, and the connection with it
        if own is not None:
            try:
                if unanswered := own.unanswered():
                    await asyncio.wait([call.answer for call in unanswered])
            finally:
                await own.end()

    def _line(self) -> _Line:
        loop = asyncio.get_running_loop()
        line = self._lines.get(loop)
        return line if line is not None else self._new_line(loop)

    def _new_line(self, loop: asyncio.AbstractEventLoop) -> _Line:
        with self._lock:
            if self._closed:
                raise self._server.closed()
            for ended in [known for known in self._lines if known.is_closed()]:
                del self._lines[ended]
            line = self._lines[loop] = _Line(self._server)
            return line
