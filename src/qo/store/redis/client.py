"""The way to the server: calls from any event loop, gathered into few writes, and sent again when it was away.

Not redis-py: of a call's time in this process, its connection took 70 to 90 %, and importing it 0.12 s.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from qo.errors import SettingsError, StoreUnavailable
from qo.store.redis.scripts import Script

try:
    import hiredis
except ImportError:
    raise SettingsError("A store on Redis needs a driver: install qo[redis] (pip install 'qo-queue[redis]').") from None

log = logging.getLogger("qo.store")

PATIENCE_SECONDS = 10.0
"""how long a call is tried before it fails, unless it says otherwise"""
READ_SECONDS = 10.0
"""How long the server may be silent while it owes answers. Far above what any script takes, because whoever runs out
of it has the script sent again, and the first one may still be running."""
CONNECT_SECONDS = 5.0
FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 2.0
WATCH_SECONDS = 0.1
BATCHES_IN_FLIGHT = 2
"""so that the server has something to do while the answers to the first are read"""
BATCH_BYTES = 1 << 20

NOT_NOW = frozenset(
    ["ASK", "BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "MOVED", "NOREPLICAS", "READONLY", "TRYAGAIN"]
)
"""Answers of a server that did nothing and may do it soon. ASK is among them on purpose: it says that the namespace
is being moved to another node key by key, and a script that was run there would find half of it. KEYS[1] never
exists, so the old node answers every script so until all keys have moved, and then MOVED."""

Argument = bytes | str | int


class ServerRefused(Exception):
    """The server answered a command with an error; the text is the server's, its first word the code."""

    @property
    def code(self) -> str:
        return str(self).partition(" ")[0]


# --- where the server is ----------------------------------------------------------------------------------------

URLS = "redis://[user:password@]host[:port][/database], rediss:// for TLS, or unix:///path/to.sock[?db=0]"
TLS_OPTIONS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname")


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int
    path: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    database: int = 0
    tls: ssl.SSLContext | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        return self.path or (f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}")

    def beside(self, host: str, port: int) -> Address:
        """Another node of the same cluster; one that does not know its own name is reached by this one's."""
        return replace(self, host=self.host if host in ("", "?") else host, port=port, path=None)


def parse_address(url: str) -> Address:
    """What a url says. Raises SettingsError, whose text never holds a part of the url that might be a password."""
    try:
        parts = urlsplit(url)
        host, port = unquote(parts.hostname or "127.0.0.1"), parts.port or 6379
        user, password = unquote(parts.username or "") or None, unquote(parts.password or "") or None
        options = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
        in_path = "" if parts.scheme == "unix" else parts.path.strip("/")
        database = int(options.pop("db", in_path or "0"))
    except ValueError:
        # Where a password was not percent-encoded, any part may hold some of it.
        raise SettingsError(f"store.url cannot be read; use {URLS}, with user and password percent-encoded.") from None
    if parts.scheme not in ("redis", "rediss", "unix") or parts.fragment or database < 0:
        raise SettingsError(f"store.url names no Redis server; use {URLS}, with user and password percent-encoded.")
    path = unquote(parts.path) if parts.scheme == "unix" else None
    if path == "":
        raise SettingsError(f"store.url names no socket; use {URLS}.")
    tls = _tls(options) if parts.scheme == "rediss" else None
    if options:
        allowed = ", ".join(["db", *TLS_OPTIONS]) if tls else "db"
        raise SettingsError(f"store.url has the unknown option {min(options)!r}; allowed here: {allowed}.")
    return Address(host=host, port=port, path=path, user=user, password=password, database=database, tls=tls)


def _tls(options: dict[str, str]) -> ssl.SSLContext:
    """Takes its options out of `options`."""
    authorities, certificate, key, required, check_host = (options.pop(name, None) for name in TLS_OPTIONS)
    if required not in (None, "none", "required"):
        raise SettingsError(f"store.url has ssl_cert_reqs={required!r}; use none or required.")
    try:
        context = ssl.create_default_context(cafile=authorities)
        if certificate:
            context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        files = " or ".join(repr(file) for file in (authorities, certificate, key) if file)
        raise SettingsError(f"store.url names TLS files that cannot be used, {files}: {error}.") from None
    if required == "none" or (check_host or "").lower() in ("0", "no", "false"):
        context.check_hostname = False
    if required == "none":
        context.verify_mode = ssl.CERT_NONE
    return context


def prefix_of(namespace: str) -> str:
    """What all keys and channels of a namespace begin with. The part in braces decides about the cluster's shard, so
    nothing in it may end it; an empty one would not count."""
    if not namespace:
        raise SettingsError("store.namespace is empty; give it a name, such as 'default'.")
    return f"qo:{{{quote(namespace, safe='', errors='surrogatepass').replace('~', '%7E')}}}:"


class Nodes:
    """Which server to ask: the one of the url, or in a cluster the node that has the namespace."""

    def __init__(self, seed: Address) -> None:
        self.seed = seed
        self.current = seed
        self._others: tuple[Address, ...] = ()

    def learn(self, nodes: Sequence[Address]) -> None:
        self._others = tuple(node for node in nodes if node != self.seed)

    def move(self, address: Address) -> None:
        self.current = address

    def leave(self, failed: Address) -> None:
        """Ask the next one that is known; any node of a cluster tells where the namespace is now."""
        known = [self.seed, *self._others]
        if failed == self.current:
            self.current = known[(known.index(failed) + 1) % len(known)] if failed in known else known[0]


class Availability:
    """Says once that the server is lost and once that it is back, however many loops and calls are affected."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lost_at: float | None = None
        self._back_at = 0.0

    def lost(self, address: Address, cause: Exception, *, began: float) -> None:
        """`began`: when the attempt that failed began, in monotonic time."""
        with self._lock:
            if self._lost_at is not None or began < self._back_at:
                return
            self._lost_at = began
        log.warning("Redis at %s cannot be used (%s), trying again", address, said(cause))

    def back(self, address: Address) -> None:
        with self._lock:
            if self._lost_at is None:
                return
            lost_at, self._lost_at, self._back_at = self._lost_at, None, time.monotonic()
        log.warning("Redis at %s is back after %.1f s", address, self._back_at - lost_at)


def pause_seconds(attempts: int) -> float:
    """How long to wait before trying again, after so many attempts; never the same for all who wait."""
    longest = LONGEST_PAUSE_SECONDS if attempts > 10 else FIRST_PAUSE_SECONDS * 2.0**attempts
    return min(LONGEST_PAUSE_SECONDS, longest) * random.uniform(0.5, 1)


def said(cause: BaseException) -> str:
    """For people; asyncio's own words for a refused connection repeat the address."""
    if isinstance(cause, TimeoutError) and not str(cause):
        return "no answer in time"
    if isinstance(cause, socket.gaierror):
        return f"its name is not known: {cause.strerror}"
    if isinstance(cause, OSError) and cause.errno:
        return os.strerror(cause.errno)
    return str(cause) or type(cause).__name__


# --- one connection ---------------------------------------------------------------------------------------------

_NOT_YET = object()


def pack(command: tuple[Argument, ...]) -> bytes:
    return hiredis.pack_command(command)  # type: ignore[arg-type, no-any-return]  # declared for one argument only


class Connection(asyncio.Protocol):
    """`hear` gets every reply, in the order of the commands; `lost` is called once, when the connection is gone."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.hear: Callable[[Any], None] = _nothing
        self.lost: Callable[[Exception], None] = _nothing
        self.heard_at = 0.0
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(replyError=ServerRefused, notEnoughData=_NOT_YET)
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self.heard_at = self._loop.time()
        self._reader.feed(data)
        try:
            while (reply := self._reader.gets()) is not _NOT_YET:
                self.hear(reply)
        except hiredis.ProtocolError:
            lost = self.lost
            self.abort()
            lost(ConnectionError("what answers there is not Redis"))

    def connection_lost(self, error: Exception | None) -> None:
        self.lost(error or ConnectionError("the server closed the connection"))

    def send(self, packed: bytes) -> None:
        self._transport.write(packed)

    def abort(self) -> None:
        """Nobody hears of it again."""
        self.hear = self.lost = _nothing
        self._transport.abort()

    async def ask(self, commands: Sequence[tuple[Argument, ...]]) -> list[Any]:
        """All replies, errors among them. Only for a connection that nobody else uses."""
        replies: list[Any] = []
        complete: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def hear(reply: Any) -> None:
            replies.append(reply)
            if len(replies) == len(commands) and not complete.done():
                complete.set_result(None)

        def lost(error: Exception) -> None:
            if not complete.done():
                complete.set_exception(error)

        self.hear, self.lost = hear, lost
        self.send(b"".join(map(pack, commands)))
        await complete
        self.hear = self.lost = _nothing
        return replies


def _nothing(_: Any) -> None:
    pass


async def connect(nodes: Nodes) -> Connection:
    """A connection to the current node, ready for commands.

    Raises OSError (also TimeoutError) or ServerRefused where trying again may help, StoreUnavailable where not.
    """
    address = nodes.current
    async with asyncio.timeout(CONNECT_SECONDS):
        connection = await _reach(address)
        try:
            nodes.learn(await _introduce(connection))
        except BaseException:
            connection.abort()
            raise
    return connection


async def _reach(address: Address) -> Connection:
    loop = asyncio.get_running_loop()

    def protocol() -> Connection:
        return Connection(address)

    if address.path is not None:
        return (await loop.create_unix_connection(protocol, address.path))[1]
    try:
        transport, connection = await loop.create_connection(protocol, address.host, address.port, ssl=address.tls)
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError):
        raise  # the server went away meanwhile
    except ssl.SSLError as error:
        reason = getattr(error, "verify_message", "") or error.reason or "no TLS there"
        raise StoreUnavailable(
            f"Redis at {address} and this machine find no TLS that both accept ({reason}); "
            "check the certificate, ssl_ca_certs in store.url, and that the port is one for TLS."
        ) from None
    _keep_alive(transport.get_extra_info("socket"))
    return connection


def _keep_alive(tcp: socket.socket) -> None:
    """Notice within a minute that a silent server is gone; a call would then find out only after READ_SECONDS."""
    tcp.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if option := getattr(socket, name, None):
            tcp.setsockopt(socket.IPPROTO_TCP, option, value)


async def _introduce(connection: Connection) -> list[Address]:
    """Log in, choose the database, and ask for the nodes of the cluster, if it is one."""
    address = connection.address
    commands: dict[str, tuple[Argument, ...]] = {}
    if address.user or address.password:
        commands["AUTH"] = ("AUTH", *([address.user] if address.user else []), address.password or "")
    if address.database:
        commands["SELECT"] = ("SELECT", address.database)
    commands |= {"name": ("CLIENT", "SETINFO", "LIB-NAME", "qo"), "slots": ("CLUSTER", "SLOTS"), "PING": ("PING",)}
    replies = dict(zip(commands, await connection.ask(list(commands.values())), strict=True))
    # Names and nodes are good to have; a server may refuse to take or give them.
    for refusal in (replies.get("AUTH"), replies["PING"], replies.get("SELECT")):
        if not isinstance(refusal, ServerRefused) or refusal.code == "NOPERM":
            continue
        if refusal.code in NOT_NOW or "max number of clients" in str(refusal):
            raise refusal
        if refusal is replies.get("SELECT"):
            raise StoreUnavailable(
                f"Redis at {address} has no database {address.database} ({refusal}); name another one in store.url."
            )
        raise StoreUnavailable(
            f"Redis at {address} refused the login of {address.user or 'the default user'} ({refusal}); "
            "check user and password in store.url."
        )
    slots = replies["slots"] if isinstance(replies["slots"], list) else []
    return sorted({address.beside((node[0] or b"").decode(), node[1]) for part in slots for node in part[2:]}, key=str)


# --- the calls of one event loop --------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Call:
    command: tuple[Argument, ...]
    packed: bytes
    script: Script | None
    answer: asyncio.Future[Any]
    deadline: float


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
        self._missing: set[str] = set()  # scripts that the server no longer has
        self._trouble: Exception | None = None
        self._attempts = 0  # since the server last did what it was asked
        self._restoring: asyncio.Task[None] | None = None
        self._watching: asyncio.TimerHandle | None = None
        self._end: AsyncGenerator[None] | None = None

    def call(
        self, command: tuple[Argument, ...], script: Script | None, patience_seconds: float
    ) -> asyncio.Future[Any]:
        answer = self._loop.create_future()
        deadline = self._loop.time() + patience_seconds
        self._waiting.append(_Call(command, pack(command), script, answer, deadline))
        self._send()
        if self._watching is None:
            self._watching = self._loop.call_later(WATCH_SECONDS, self._watch)
        return answer

    def unanswered(self) -> list[_Call]:
        return [call for call in chain(self._in_flight, self._again, self._waiting) if not call.answer.done()]

    def close(self) -> None:
        if self._restoring is not None:
            self._restoring.cancel()
        if self._watching is not None:
            self._watching.cancel()
        if self._connection is not None:
            self._connection.abort()
        self._connection = self._restoring = self._watching = None
        self._fail_all(self._server.closed())

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
            parts.append(self._packed(call))
            size += len(parts[-1])
            self._in_flight.append(call)
        if parts:
            if not self._batches:
                connection.heard_at = self._loop.time()
            self._batches.append(len(parts))
            connection.send(parts[0] if len(parts) == 1 else b"".join(parts))

    def _packed(self, call: _Call) -> bytes:
        if call.script is None or call.script.sha not in self._missing:
            return call.packed
        # The first one brings the text; those behind it, in the same batch too, find it there.
        self._missing.discard(call.script.sha)
        return pack(("EVAL", call.script.text, *call.command[2:]))

    # --- hearing ----------------------------------------------------------------------------------------------

    def _hear(self, reply: Any) -> None:
        call = self._in_flight.popleft()
        if type(reply) is ServerRefused and reply.code in NOT_NOW:
            self._trouble = reply
            self._again.append(call)
        else:
            if self._attempts and not self._again:
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
        if call.answer.done():
            return  # its caller has gone
        if type(reply) is not ServerRefused:
            call.answer.set_result(reply)
        elif call.script is None:
            call.answer.set_exception(reply)
        elif reply.code == "NOSCRIPT":
            self._missing.add(call.script.sha)
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
        if isinstance(self._trouble, ServerRefused) and self._trouble.code == "MOVED":
            self._server.follow(self._trouble, connection.address)
        self._send()

    def _lose(self, error: Exception) -> None:
        self._connection = None
        self._trouble = error
        self._waiting.extendleft(reversed([*self._again, *self._in_flight]))
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
        refusal = self._trouble if isinstance(self._trouble, ServerRefused) else None
        moved = refusal is not None and refusal.code == "MOVED"
        if refusal is not None and not moved:
            self._server.availability.lost(self._server.nodes.current, refusal, began=time.monotonic())
        if self._attempts > moved or (refusal is not None and not moved):
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
            self._trouble = None
            self._missing.clear()

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
                call.answer.set_exception(self._server.unavailable(self._trouble))
        if unanswered:
            self._watching = self._loop.call_later(WATCH_SECONDS, self._watch)

    def _fail_all(self, error: StoreUnavailable) -> None:
        for call in self.unanswered():
            call.answer.set_exception(StoreUnavailable(*error.args))  # each its own: raising adds a traceback to it


# --- for everybody ----------------------------------------------------------------------------------------------


class _Server:
    """What all lines know of the server."""

    def __init__(self, url: str) -> None:
        self.nodes = Nodes(parse_address(url))
        self.availability = Availability()

    def follow(self, moved: ServerRefused, told_by: Address) -> None:
        host, _, port = str(moved).rpartition(" ")[2].rpartition(":")
        self.nodes.move(told_by.beside(host, int(port)))

    def explain(self, refusal: ServerRefused) -> Exception:
        if refusal.code == "OOM":
            return StoreUnavailable(
                f"Redis at {self.nodes.current} is out of memory, nothing was changed; raise its maxmemory "
                "or let jobs end and be forgotten."
            )
        if refusal.code == "NOPERM":
            return StoreUnavailable(
                f"Redis at {self.nodes.current} does not let the user of store.url do what qo does ({refusal}); "
                "its ACL has to allow ~qo:* &qo:* and the commands that qo's scripts use."
            )
        return refusal

    def unavailable(self, cause: Exception | None) -> StoreUnavailable:
        reason = said(cause or TimeoutError())
        return StoreUnavailable(
            f"Redis at {self.nodes.current} cannot be used ({reason}); what was asked may or may not have been done. "
            "Check that the server runs and that store.url is right."
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

    async def run(self, script: Script, arguments: Sequence[Argument], *, patience_seconds: float | None = None) -> Any:
        """The script's reply, with KEYS[1] the prefix: bytes, integers, lists and None.

        Raises StoreUnavailable when patience is over, and ServerRefused for an error that the script answers.
        """
        command = ("EVALSHA", script.sha, 1, self.prefix, *arguments)
        patience_seconds = self.patience_seconds if patience_seconds is None else patience_seconds
        return await self._line().call(command, script, patience_seconds)

    async def command(self, *arguments: Argument, patience_seconds: float | None = None) -> Any:
        """A plain command's reply, likewise."""
        patience_seconds = self.patience_seconds if patience_seconds is None else patience_seconds
        return await self._line().call(arguments, None, patience_seconds)

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
