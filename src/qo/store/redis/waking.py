"""Waking those who wait for a message: one connection a process and store, for any number of event loops.

It lives in a thread with an event loop of its own, so a loop that is blocked or closed takes nothing from the others.
"""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from qo.errors import StoreUnavailable
from qo.store.redis.availability import pause_seconds, said
from qo.store.redis.client import Client
from qo.store.redis.connection import READ_SECONDS, Connection, ServerRefused, connect, pack

LINGER_SECONDS = 30.0
"""how long a channel stays subscribed after its last listener left: who waits again and again does so at no cost"""
TICK_SECONDS = 5.0
"""how often a silent server is asked for a sign of life, and channels that nobody needs any more are left"""


@dataclass(slots=True)
class _Channel:
    confirmed: bool = False
    was_confirmed: bool = False  # before the connection was lost: something may have been missed
    listeners: set[Listening] = field(default_factory=set)
    entering: list[asyncio.Future[None]] = field(default_factory=list)
    left_at: float = 0.0


class Listening:
    """A channel, listened to inside of `async with`. For one caller at a time."""

    def __init__(self, waking: Waking, channel: str) -> None:
        self.channel = channel.encode()
        self.loop: asyncio.AbstractEventLoop
        self._waking = waking
        self._told = False  # a wake-up is on its way, or has not been asked for yet: another would add nothing
        self._came = False
        self._waiter: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Self:
        """Returns when the server has confirmed that it will send what is published from now on.
        Raises StoreUnavailable when it does not within the client's patience."""
        self.loop = asyncio.get_running_loop()
        confirmed = self._waking.enter(self)
        if confirmed is not None:
            try:
                async with asyncio.timeout(self._waking.client.patience_seconds):
                    await confirmed
            except TimeoutError:
                self._waking.leave(self)
                raise self._waking.unavailable() from None
            except BaseException:
                self._waking.leave(self)
                raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._waking.leave(self)

    async def message(self, timeout_seconds: float) -> bool:
        """Whether something came, or may have been missed, since entering or since the last call; waits for it."""
        if not self._came:
            self._waiter = self.loop.create_future()
            try:
                async with asyncio.timeout(timeout_seconds):
                    await self._waiter
            except TimeoutError:
                pass
            finally:
                self._waiter = None
        if not self._came:
            return False
        self._came = self._told = False
        return True

    def tell(self) -> None:
        """May be called from any thread."""
        if not self._told:
            self._told = True
            try:
                self.loop.call_soon_threadsafe(self._wake)
            except RuntimeError:
                self._waking.leave(self)  # that loop has been closed, and whoever listened has gone with it

    def _wake(self) -> None:
        self._came = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Waking:
    """`listen` and what `Listening` calls may be used from any thread; everything else happens in the own one."""

    def __init__(self, client: Client) -> None:
        """Connects when somebody listens."""
        self.client = client
        self._lock = threading.Lock()
        self._channels: dict[bytes, _Channel] = {}
        self.trouble: Exception | None = None
        self._connection: Connection | None = None
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._serving: asyncio.Task[None]
        self._needed: asyncio.Event

    def listen(self, channel: str) -> Listening:
        return Listening(self, channel)

    def enter(self, listening: Listening) -> asyncio.Future[None] | None:
        """None: the channel is subscribed. Else what to wait for."""
        with self._lock:
            if self._closed:
                raise StoreUnavailable(f"The store on Redis at {self.client.address} is closed; connect again.")
            channel = self._channels.setdefault(listening.channel, _Channel())
            channel.listeners.add(listening)
            if channel.confirmed:
                return None
            confirmed: asyncio.Future[None] = listening.loop.create_future()
            channel.entering.append(confirmed)
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._run, args=[self._loop], name="qo-redis-waking", daemon=True
                )
                self._thread.start()
            self._loop.call_soon_threadsafe(self._subscribe, listening.channel)
            return confirmed

    def leave(self, listening: Listening) -> None:
        with self._lock:
            channel = self._channels.get(listening.channel)
            if channel is not None:
                channel.listeners.discard(listening)
                channel.left_at = time.monotonic()

    def unavailable(self) -> StoreUnavailable:
        cause = said(self.trouble or TimeoutError())
        return StoreUnavailable(f"Redis at {self.client.address} cannot be listened to ({cause}); check that it runs.")

    async def close(self) -> None:
        """Those who still wait are not woken. Closing twice is harmless."""
        with self._lock:
            self._closed = True
            loop, thread = self._loop, self._thread
        if loop is not None and thread is not None and thread.is_alive():
            loop.call_soon_threadsafe(lambda: self._serving.cancel())
            await asyncio.to_thread(thread.join)

    # --- in the thread ----------------------------------------------------------------------------------------

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        self._needed = asyncio.Event()
        self._serving = loop.create_task(self._serve())
        try:
            loop.run_until_complete(self._serving)
        except asyncio.CancelledError:
            pass
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    async def _serve(self) -> None:
        attempts = 0
        while True:
            self._forget(linger_seconds=0)
            if not self._channels:
                self._needed.clear()
                await self._needed.wait()
            nodes, began = self.client.nodes, time.monotonic()
            address = nodes.current
            try:
                connection = await connect(nodes)
            except StoreUnavailable as hopeless:
                self._refuse(hopeless)
                attempts += 1
            except Exception as error:
                # Whatever it was, those who listen wait for this to be tried again.
                self.trouble = error
                self.client.availability.lost(address, error, began=began)
                nodes.leave(address)
                attempts += 1
            else:
                self.client.availability.back(address)
                attempts = 0
                await self._hold(connection)
            if attempts:
                await asyncio.sleep(pause_seconds(attempts))

    async def _hold(self, connection: Connection) -> None:
        """Returns when the connection is lost."""
        lost = asyncio.Event()

        def lose(error: Exception) -> None:
            self.trouble = error
            lost.set()

        connection.hear, connection.lost = self._hear, lose
        self._connection = connection
        with self._lock:
            channels = list(self._channels)
        for name in channels:
            connection.send(pack(("SUBSCRIBE", name)))
        try:
            while not lost.is_set():
                try:
                    async with asyncio.timeout(TICK_SECONDS):
                        await lost.wait()
                except TimeoutError:
                    self._forget(linger_seconds=LINGER_SECONDS)
                    silent_seconds = asyncio.get_running_loop().time() - connection.heard_at
                    if silent_seconds > TICK_SECONDS + READ_SECONDS:
                        lose(TimeoutError(f"no answer for {READ_SECONDS:g} s"))
                    elif silent_seconds > TICK_SECONDS / 2:
                        connection.send(pack(("PING",)))
        finally:
            self._connection = None
            connection.abort()
            await asyncio.sleep(0)  # for the transport, which closes in the loop's next round
            with self._lock:
                for channel in self._channels.values():
                    channel.was_confirmed |= channel.confirmed
                    channel.confirmed = False

    def _subscribe(self, name: bytes) -> None:
        self._needed.set()
        if self._connection is not None:
            self._connection.send(pack(("SUBSCRIBE", name)))

    def _forget(self, *, linger_seconds: float) -> None:
        """Leave the channels that nobody has listened to for so long. One that is not confirmed yet is kept while
        connected: its confirmation must not be taken for that of a later subscription."""
        latest = time.monotonic() - linger_seconds
        with self._lock:
            for name, channel in list(self._channels.items()):
                kept = self._connection is not None and not channel.confirmed
                if not channel.listeners and channel.left_at <= latest and not kept:
                    del self._channels[name]
                    if self._connection is not None:
                        self._connection.send(pack(("UNSUBSCRIBE", name)))

    def _hear(self, reply: Any) -> None:
        if isinstance(reply, ServerRefused):
            self._refuse(
                StoreUnavailable(
                    f"Redis at {self.client.address} does not let the user of store.url listen ({reply}); "
                    f"allow the channels {self.client.prefix}* in its ACL."
                )
            )
            return
        match reply:
            case [b"message", name, _]:
                self._tell(name)
            case [b"subscribe", name, _]:
                self._confirm(name)

    def _tell(self, name: bytes) -> None:
        with self._lock:
            channel = self._channels.get(name)
            listeners = list(channel.listeners) if channel is not None else []
        for listening in listeners:
            listening.tell()

    def _confirm(self, name: bytes) -> None:
        with self._lock:
            channel = self._channels.get(name)
            if channel is None or channel.confirmed:
                return
            channel.confirmed = True
            missed, channel.was_confirmed = channel.was_confirmed, False
            entered, channel.entering = channel.entering, []
        for future in entered:
            _settle(future, None)
        if missed:
            self._tell(name)

    def _refuse(self, error: StoreUnavailable) -> None:
        with self._lock:
            refused = [future for channel in self._channels.values() for future in channel.entering]
            for channel in self._channels.values():
                channel.entering = []
        for future in refused:
            _settle(future, StoreUnavailable(*error.args))


def _settle(future: asyncio.Future[None], error: StoreUnavailable | None) -> None:
    def settle() -> None:
        if future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    try:
        future.get_loop().call_soon_threadsafe(settle)
    except RuntimeError:
        pass  # that loop has been closed, and whoever waited has gone with it
