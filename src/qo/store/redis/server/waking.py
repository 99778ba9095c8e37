"""Subscriptions: one connection for each event loop, which is used for nothing else.

It is in the waiter's own loop, because a hop from another thread took as long as the message itself. The channels are
sharded: in a cluster their messages stay on the node that has the namespace; plain ones would go to all nodes.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from qo.errors import StoreAway, StoreUnavailable
from qo.forking import leave_behind, when_forked
from qo.store.redis.server.availability import pause_seconds, said
from qo.store.redis.server.client import Client
from qo.store.redis.server.connection import NOT_NOW, READ_SECONDS, Connection, ServerRefused, pack, says_moved
from qo.store.redis.server.nodes import Nodes, connect

LINGER_SECONDS = 30.0
"""How long a channel stays subscribed after its last listener left, so that repeated waits cost nothing."""
MESSAGES_AT_MOST = 1000
"""How many messages wait for a slow listener. With more, it gets an empty message and has to read for itself."""
TICK_SECONDS = 5.0
"""How often a silent server gets a PING, and unused channels are unsubscribed."""


class Listening:
    """A subscription to one channel, inside `async with`. For one caller at a time."""

    def __init__(self, waking: Waking, channel: str) -> None:
        self.channel = channel.encode()
        self._waking = waking
        self._ear: _Ear
        self._came: deque[bytes] = deque()
        self._waiter: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Self:
        """Returns when the server has confirmed the subscription, so that no later message is missed.

        Raises `StoreUnavailable` when it does not confirm in time.
        """
        self._ear = self._waking.ear_of_this_loop()
        confirmed = self._ear.enter(self)
        if confirmed is not None:
            try:
                async with asyncio.timeout(self._waking.client.patience_seconds):
                    await confirmed
            except TimeoutError:
                self._ear.leave(self)
                raise self._ear.unavailable() from None
            except BaseException:
                self._ear.leave(self)
                raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ear.leave(self)

    async def message(self, timeout_seconds: float) -> bytes | None:
        """Return the next message that came since entering, or wait for one. It is empty where some may have been
        missed, and None when the time is up."""
        if not self._came:
            await self._wait(timeout_seconds)
        return self._came.popleft() if self._came else None

    async def _wait(self, timeout_seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        # Not `asyncio.timeout`: what that does afterwards would delay the woken caller.
        time_is_up = loop.call_later(timeout_seconds, self._wake)
        try:
            await self._waiter
        finally:
            self._waiter = None
            time_is_up.cancel()

    def tell(self, message: bytes) -> None:
        if len(self._came) == MESSAGES_AT_MOST:
            self._came.clear()
            message = b""
        self._came.append(message)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Waking:
    """May be used from several event loops at once."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._ears: dict[asyncio.AbstractEventLoop, _Ear] = {}
        self._lock = threading.Lock()
        self._closed = False
        when_forked(self, Waking._begin_anew)

    def _begin_anew(self) -> None:
        for ear in self._ears.values():
            ear.leave_to_other_process()
        leave_behind(self._ears)
        self._ears = {}
        self._lock = threading.Lock()

    def listen(self, channel: str) -> Listening:
        return Listening(self, channel)

    def ear_of_this_loop(self) -> _Ear:
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._closed:
                raise StoreUnavailable(f"The store on Redis at {self.client.address} is closed; connect again.")
            for ended in [known for known in self._ears if known.is_closed()]:
                del self._ears[ended]
            ear = self._ears.get(loop)
            if ear is None:
                ear = self._ears[loop] = _Ear(self.client)
            return ear

    async def close(self) -> None:
        """Close all subscriptions; callers that still wait are not woken. Closing twice is harmless."""
        with self._lock:
            self._closed = True
            ears, self._ears = self._ears, {}
        own = ears.pop(asyncio.get_running_loop(), None)
        for loop, ear in ears.items():
            try:
                loop.call_soon_threadsafe(ear.stop)
            except RuntimeError:
                pass  # that loop is closed, and so is its connection
        if own is not None:
            await own.end()


@dataclass(slots=True)
class _Channel:
    confirmed: bool = False
    was_confirmed: bool = False  # before the connection was lost, so messages may have been missed
    listeners: set[Listening] = field(default_factory=set)
    entering: list[asyncio.Future[None]] = field(default_factory=list)
    left_at: float = 0.0


class _Ear:
    """The subscriptions of one event loop, and their connection."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._channels: dict[bytes, _Channel] = {}
        self._connection: Connection | None = None
        self._lost: asyncio.Future[Exception]
        self.trouble: Exception | None = None
        """Why the last connection was lost or could not be made. None until that happens."""
        self._attempts = 0  # since a channel was last confirmed
        self._needed = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None
        self._end: AsyncGenerator[None] | None = None

    # --- listeners --------------------------------------------------------------------------------------------

    def enter(self, listening: Listening) -> asyncio.Future[None] | None:
        """Returns None if the channel is subscribed, otherwise a future to wait for."""
        channel = self._channels.setdefault(listening.channel, _Channel())
        channel.listeners.add(listening)
        if channel.confirmed:
            return None
        confirmed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        channel.entering.append(confirmed)
        if self._serving is None:
            self._serving = asyncio.create_task(self._serve(), name="qo-redis-waking")
        self._needed.set()
        if self._connection is not None:
            self._connection.send(pack(("SSUBSCRIBE", listening.channel)))
        return confirmed

    def leave(self, listening: Listening) -> None:
        channel = self._channels.get(listening.channel)
        if channel is not None:
            channel.listeners.discard(listening)
            channel.left_at = time.monotonic()

    def leave_to_other_process(self) -> None:
        if self._connection is not None:
            self._connection.leave_to_other_process()

    def unavailable(self) -> StoreAway:
        cause = said(self.trouble or TimeoutError())
        return StoreAway(f"Redis at {self._client.address} cannot be listened to ({cause}); check that it runs.")

    def stop(self) -> None:
        if self._serving is not None:
            self._serving.cancel()

    async def end(self) -> None:
        if self._end is not None:
            await self._end.aclose()

    async def _with_the_loop(self) -> AsyncGenerator[None]:
        """Stops with the event loop: a loop that is shut down closes its generators."""
        try:
            yield
        finally:
            self.stop()
            if self._serving is not None:
                await asyncio.wait([self._serving])

    # --- the connection ---------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        self._end = self._with_the_loop()
        await anext(self._end)
        while True:
            self._forget(linger_seconds=0)
            if not self._channels:
                self._needed.clear()
                await self._needed.wait()
            self._attempts += 1
            await self._listen_to(self._client.nodes)
            # After a first MOVED there is no pause.
            if self._attempts > says_moved(self.trouble):
                await asyncio.sleep(pause_seconds(self._attempts))

    async def _listen_to(self, nodes: Nodes) -> None:
        """Connect and receive. Returns when the connection is lost or could not be made."""
        address, began = nodes.current, time.monotonic()
        try:
            connection = await connect(nodes)
        except StoreUnavailable as hopeless:
            self._refuse(hopeless)
        except Exception as error:
            # After any error, listeners wait for the next attempt.
            self.trouble = error
            self._client.availability.lost(address, error, began=began)
            nodes.leave(address)
        else:
            self.trouble = trouble = await self._hold(connection)
            if says_moved(trouble):
                self._client.follow(trouble, connection.address)
            elif isinstance(trouble, ServerRefused):
                self._client.availability.lost(address, trouble, began=began)

    async def _hold(self, connection: Connection) -> Exception:
        """Receive messages. Returns the reason when the connection can no longer be used."""
        self._connection = connection
        self._lost = asyncio.get_running_loop().create_future()
        connection.hear, connection.lost = self._hear, self._lose
        for name in self._channels:
            connection.send(pack(("SSUBSCRIBE", name)))
        try:
            while not (await asyncio.wait([self._lost], timeout=TICK_SECONDS))[0]:
                self._look_after(connection)
            return self._lost.result()
        finally:
            self._connection = None
            connection.abort()
            for channel in self._channels.values():
                channel.was_confirmed |= channel.confirmed
                channel.confirmed = False
            await asyncio.sleep(0)  # the transport closes in the loop's next iteration

    def _look_after(self, connection: Connection) -> None:
        self._forget(linger_seconds=LINGER_SECONDS)
        silent_seconds = asyncio.get_running_loop().time() - connection.heard_at
        if silent_seconds > TICK_SECONDS + READ_SECONDS:
            self._lose(TimeoutError(f"no answer for {READ_SECONDS:g} s"))
        elif connection.address != self._client.nodes.current:
            # Calls have found the namespace on another node, such as a promoted replica.
            self._lose(ConnectionError("the namespace is on another node"))
        elif silent_seconds > TICK_SECONDS / 2:
            connection.send(pack(("PING",)))

    def _lose(self, error: Exception) -> None:
        if not self._lost.done():
            self._lost.set_result(error)

    def _forget(self, *, linger_seconds: float) -> None:
        """Unsubscribe from channels without a listener for this long.

        A channel that is not confirmed yet is kept while connected: its confirmation must not be taken for that of a
        later subscription.
        """
        latest = time.monotonic() - linger_seconds
        for name, channel in list(self._channels.items()):
            kept = self._connection is not None and not channel.confirmed
            if not channel.listeners and channel.left_at <= latest and not kept:
                del self._channels[name]
                if self._connection is not None:
                    self._connection.send(pack(("SUNSUBSCRIBE", name)))

    # --- hearing ----------------------------------------------------------------------------------------------

    def _hear(self, reply: Any) -> None:
        if isinstance(reply, ServerRefused) and reply.code in NOT_NOW:
            self._lose(reply)
            return
        if isinstance(reply, ServerRefused):
            self._refuse(
                StoreUnavailable(
                    f"Redis at {self._client.address} does not let the user of store.url listen ({reply}); "
                    f"allow the channels {self._client.prefix}* in its ACL."
                )
            )
            return
        match reply:
            case [b"smessage", name, message]:
                self._tell(name, message)
            case [b"ssubscribe", name, _]:
                self._confirm(name)
            case [b"sunsubscribe", name, _] if (channel := self._channels.get(name)) and channel.confirmed:
                # This process did not unsubscribe.
                self._lose(ConnectionError("the namespace was moved to another node"))

    def _tell(self, name: bytes, message: bytes) -> None:
        channel = self._channels.get(name)
        if channel is not None:
            for listening in channel.listeners:
                listening.tell(message)

    def _confirm(self, name: bytes) -> None:
        channel = self._channels.get(name)
        if channel is None or channel.confirmed:
            return
        channel.confirmed = True
        self._attempts = 0
        self._client.availability.back(self._client.nodes.current)
        missed, channel.was_confirmed = channel.was_confirmed, False
        for future in channel.entering:
            if not future.done():
                future.set_result(None)
        channel.entering = []
        if missed:
            self._tell(name, b"")

    def _refuse(self, error: StoreUnavailable) -> None:
        for channel in self._channels.values():
            for future in channel.entering:
                if not future.done():
                    future.set_exception(StoreUnavailable(*error.args))
            channel.entering = []
