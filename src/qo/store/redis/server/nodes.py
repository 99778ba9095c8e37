"""Chooses the server, and connects to it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence

from qo.errors import StoreUnavailable
from qo.store.redis.server.address import ServerAddress, parse_server_url
from qo.store.redis.server.connection import NOT_NOW, Argument, Connection, ServerRefused, login, reach
from qo.store.redis.server.other_protocol import refuse_other_protocol
from qo.store.redis.server.sentinel import Sentinels, find_primary, follow_primary, parse_sentinels

CONNECT_SECONDS = 5.0


class Nodes:
    """The servers: that of the url, the primary that sentinels name, or in a cluster the node with the namespace."""

    def __init__(self, url: str) -> None:
        """Raises SettingsError for a url that cannot be used."""
        self.sentinels: Sentinels | None = parse_sentinels(url)
        self.seed = parse_server_url(url) if self.sentinels is None else self.sentinels.server
        self.current = self.seed
        self._others: tuple[ServerAddress, ...] = ()

    async def find(self) -> ServerAddress:
        """The address to connect to now."""
        if self.sentinels is not None:
            self.current = await find_primary(self.sentinels)
        return self.current

    async def follow_primary(self, tell: Callable[[ServerAddress], None]) -> None:
        """Call `tell` with the primary's address now and whenever it changes. Returns at once without sentinels."""
        if self.sentinels is not None:
            await follow_primary(self.sentinels, tell)

    def learn(self, nodes: Sequence[ServerAddress]) -> None:
        self._others = tuple(node for node in nodes if node != self.seed)

    def move(self, address: ServerAddress) -> None:
        self.current = address

    def leave(self, failed: ServerAddress) -> None:
        """Use the next known node; any node of a cluster answers with the one that has the namespace."""
        known = [self.seed, *self._others]
        if failed == self.current:
            self.current = known[(known.index(failed) + 1) % len(known)] if failed in known else known[0]


async def connect(nodes: Nodes) -> Connection:
    """Open a connection to the present server, logged in and ready for commands.

    Raises `OSError` (also `TimeoutError`) or `ServerRefused` when a retry may help, `StoreUnavailable` when not.
    """
    address: ServerAddress | None = None
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            address = await nodes.find()
            connection = await reach(address)
            try:
                nodes.learn(await _introduce(connection))
            except BaseException:
                connection.abort()
                raise
    except (ConnectionRefusedError, socket.gaierror):
        raise  # no server answers there, so no other protocol either
    except OSError:
        if address is not None:
            await refuse_other_protocol(address)
        raise
    return connection


async def _introduce(connection: Connection) -> list[ServerAddress]:
    """Log in, choose the database, and ask for the nodes of the cluster, if it is one."""
    address = connection.address
    commands: dict[str, tuple[Argument, ...]] = {}
    if command := login(address):
        commands["AUTH"] = command
    if address.database:
        commands["SELECT"] = ("SELECT", address.database)
    commands |= {"name": ("CLIENT", "SETINFO", "LIB-NAME", "qo"), "slots": ("CLUSTER", "SLOTS"), "PING": ("PING",)}
    replies = dict(zip(commands, await connection.ask(list(commands.values())), strict=True))
    # The client's name and the list of nodes are optional; a server may refuse both.
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
