"""Which server to ask, and a connection to it that is ready for commands."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence

from qo.errors import StoreUnavailable
from qo.store.redis.address import Address, parse_address
from qo.store.redis.connection import NOT_NOW, Argument, Connection, ServerRefused, login, reach
from qo.store.redis.other_protocol import refuse_other_protocol
from qo.store.redis.sentinel import Sentinels, find_primary, follow_primary, parse_sentinels

CONNECT_SECONDS = 5.0


class Nodes:
    """The server of the url, or the one that sentinels name, or in a cluster the node that has the namespace."""

    def __init__(self, url: str) -> None:
        """Raises SettingsError for a url that cannot be used."""
        self._sentinels: Sentinels | None = parse_sentinels(url)
        self.seed = parse_address(url) if self._sentinels is None else self._sentinels.server
        self.current = self.seed
        self._others: tuple[Address, ...] = ()

    async def find(self) -> Address:
        """The one to connect to now."""
        if self._sentinels is not None:
            self.current = await find_primary(self._sentinels)
        return self.current

    async def follow_primary(self, tell: Callable[[Address], None]) -> None:
        """Tell where the primary is now, and whenever that changes. Returns at once where nobody says it."""
        if self._sentinels is not None:
            await follow_primary(self._sentinels, tell)

    def learn(self, nodes: Sequence[Address]) -> None:
        self._others = tuple(node for node in nodes if node != self.seed)

    def move(self, address: Address) -> None:
        self.current = address

    def leave(self, failed: Address) -> None:
        """Ask the next one that is known; any node of a cluster tells where the namespace is now."""
        known = [self.seed, *self._others]
        if failed == self.current:
            self.current = known[(known.index(failed) + 1) % len(known)] if failed in known else known[0]


async def connect(nodes: Nodes) -> Connection:
    """A connection to the one that is to be asked now, ready for commands.

    Raises OSError (also TimeoutError) or ServerRefused where trying again may help, StoreUnavailable where not.
    """
    address: Address | None = None
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
        raise  # nobody is there who could speak otherwise
    except OSError:
        if address is not None:
            await refuse_other_protocol(address)
        raise
    return connection


async def _introduce(connection: Connection) -> list[Address]:
    """Log in, choose the database, and ask for the nodes of the cluster, if it is one."""
    address = connection.address
    commands: dict[str, tuple[Argument, ...]] = {}
    if command := login(address):
        commands["AUTH"] = command
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
