"""One connection to a server: sends commands and receives replies.

Not redis-py's: its connection took 70 to 90 % of a call's time in this process, and its import takes 0.12 s.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any, TypeGuard, cast

from qo.errors import SettingsError, StoreUnavailable
from qo.forking import let_go_of
from qo.store.redis.server.address import ServerAddress

try:
    import hiredis
except ImportError:
    raise SettingsError("A store on Redis needs a driver; install it with: pip install 'qo-queue[redis]'.") from None

READ_SECONDS = 10.0
"""How long the server may be silent while replies are due. Far longer than any function takes, because the call is then
sent again, and the first one may still be running."""
BUFFER_BYTES = 1 << 16

NOT_NOW = frozenset(
    ["ASK", "BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "MOVED", "NOREPLICAS", "READONLY", "TRYAGAIN"]
)
"""Errors of a server that did nothing and may accept the call soon. ASK is among them on purpose: the namespace is
being moved to another node key by key, and a function that ran there would find half of it. keys[1] never exists, so
the old node answers every call with ASK until all keys have moved, and then with MOVED."""

Argument = bytes | str | int


class ServerRefused(Exception):
    """The server answered a command with an error; the text is the server's, its first word the code."""

    @property
    def code(self) -> str:
        return str(self).partition(" ")[0]


def login(address: ServerAddress) -> tuple[Argument, ...] | None:
    """The command that logs in, if the address has a user or a password."""
    if not address.user and not address.password:
        return None
    return ("AUTH", *([address.user] if address.user else []), address.password or "")


def says_moved(trouble: Exception | None) -> TypeGuard[ServerRefused]:
    """Whether the error says that another node of the cluster has the namespace. It names that node."""
    return isinstance(trouble, ServerRefused) and trouble.code == "MOVED"


_NOT_YET = object()


def pack(command: tuple[Argument, ...]) -> bytes:
    return hiredis.pack_command(command)  # type: ignore[arg-type, no-any-return]  # declared for one argument only


class Connection(asyncio.BufferedProtocol):
    """Calls `hear` with every reply, in the order of the commands, and `lost` once, when the connection is lost.

    It has a buffer of its own: a plain protocol gets a new buffer of 256 KB for every message, which took longer than
    everything else that is done with a message.
    """

    def __init__(self, address: ServerAddress) -> None:
        self.address = address
        self.hear: Callable[[Any], None] = _nothing
        self.lost: Callable[[Exception], None] = _nothing
        self.heard_at = 0.0
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(replyError=ServerRefused, notEnoughData=_NOT_YET)
        self._buffer = bytearray(BUFFER_BYTES)
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # a transport of uvloop is no instance of this class

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.heard_at = self._loop.time()
        self._reader.feed(self._buffer, 0, nbytes)  # type: ignore[arg-type]  # declared for bytes only
        try:
            while (reply := self._reader.gets()) is not _NOT_YET:
                self.hear(reply)
        except hiredis.ProtocolError:
            lost = self.lost
            self.abort()
            lost(ConnectionError("what answers there is not Redis"))

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost(exc or ConnectionError("the server closed the connection"))

    def send(self, packed: bytes) -> None:
        self._transport.write(packed)

    def leave_to_other_process(self) -> None:
        """Leave the socket to the process from which this one was forked.

        Otherwise a killed worker would count as listening for as long as one of its forks lives.
        """
        let_go_of(self._transport.get_extra_info("socket").fileno())

    def abort(self) -> None:
        """Close the connection without another callback."""
        self.hear = self.lost = _nothing
        self._transport.abort()

    async def ask(self, commands: Sequence[tuple[Argument, ...]]) -> list[Any]:
        """Send commands and return all replies, errors included. Only for a connection without other users."""
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


async def reach(address: ServerAddress) -> Connection:
    """Open a connection, without logging in."""
    loop = asyncio.get_running_loop()

    def protocol() -> Connection:
        return Connection(address)

    if address.path is not None:
        return (await loop.create_unix_connection(protocol, address.path))[1]
    try:
        transport, connection = await loop.create_connection(protocol, address.host, address.port, ssl=address.tls)
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError):
        raise  # the server closed the connection during the handshake
    except ssl.SSLError as error:
        reason = getattr(error, "verify_message", "") or error.reason or "no TLS there"
        raise StoreUnavailable(
            f"Redis at {address} and this machine find no TLS that both accept ({reason}); "
            "check the certificate, ssl_ca_certs in store.url, and that the port is one for TLS."
        ) from None
    _keep_alive(transport.get_extra_info("socket"))
    return connection


def _keep_alive(tcp: socket.socket) -> None:
    """Make the system detect within a minute that a server is gone; a call would notice only after READ_SECONDS."""
    tcp.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if option := getattr(socket, name, None):
            tcp.setsockopt(socket.IPPROTO_TCP, option, value)
