"""One connection to a server: commands out and replies in.

Not redis-py's: of a call's time in this process, that took 70 to 90 %, and importing it 0.12 s.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any, TypeGuard, cast

from qo.errors import SettingsError, StoreUnavailable
from qo.forking import let_go_of
from qo.store.redis.address import Address

try:
    import hiredis
except ImportError:
    raise SettingsError("A store on Redis needs a driver: install qo[redis] (pip install 'qo-queue[redis]').") from None

READ_SECONDS = 10.0
"""How long the server may be silent while it owes answers. Far above what any function takes, because whoever runs out
of it has the call sent again, and the first one may still be running."""
BUFFER_BYTES = 1 << 16

NOT_NOW = frozenset(
    ["ASK", "BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "MOVED", "NOREPLICAS", "READONLY", "TRYAGAIN"]
)
"""Answers of a server that did nothing and may do it soon. ASK is among them on purpose: it says that the namespace
is being moved to another node key by key, and a function that was run there would find half of it. keys[1] never
exists, so the old node answers every call so until all keys have moved, and then MOVED."""

Argument = bytes | str | int


class ServerRefused(Exception):
    """The server answered a command with an error; the text is the server's, its first word the code."""

    @property
    def code(self) -> str:
        return str(self).partition(" ")[0]


def login(address: Address) -> tuple[Argument, ...] | None:
    """The command that says who this is, where somebody is named."""
    if not address.user and not address.password:
        return None
    return ("AUTH", *([address.user] if address.user else []), address.password or "")


def says_moved(trouble: Exception | None) -> TypeGuard[ServerRefused]:
    """That another node of the cluster has the namespace, which it names."""
    return isinstance(trouble, ServerRefused) and trouble.code == "MOVED"


_NOT_YET = object()


def pack(command: tuple[Argument, ...]) -> bytes:
    return hiredis.pack_command(command)  # type: ignore[arg-type, no-any-return]  # declared for one argument only


class Connection(asyncio.BufferedProtocol):
    """`hear` gets every reply, in the order of the commands; `lost` is called once, when the connection is gone.

    With a buffer of its own: a plain protocol would be given a new one of 256 KB for every message, which took longer
    than everything else that is done with a message.
    """

    def __init__(self, address: Address) -> None:
        self.address = address
        self.hear: Callable[[Any], None] = _nothing
        self.lost: Callable[[Exception], None] = _nothing
        self.heard_at = 0.0
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(replyError=ServerRefused, notEnoughData=_NOT_YET)
        self._buffer = bytearray(BUFFER_BYTES)
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # which uvloop's are not in the sense of isinstance

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

    def connection_lost(self, error: Exception | None) -> None:
        self.lost(error or ConnectionError("the server closed the connection"))

    def send(self, packed: bytes) -> None:
        self._transport.write(packed)

    def leave_to_other_process(self) -> None:
        """From which this one was forked. A worker that is killed would count as listening for as long
        as one of its forks lives."""
        let_go_of(self._transport.get_extra_info("socket").fileno())

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


async def reach(address: Address) -> Connection:
    """Nobody has logged in yet."""
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
