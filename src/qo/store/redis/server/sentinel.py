"""Servers that sentinels watch over: they are asked for the primary whenever one connects, and listened to.

Who only waited for the old primary to hang up would go on writing to it: sentinels that replace one which still lives
tell it some ten seconds later, and what it took meanwhile is lost.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from qo.errors import SettingsError, StoreUnavailable
from qo.store.redis.address import Address, parse_address
from qo.store.redis.availability import said
from qo.store.redis.connection import ServerRefused, login, reach

SCHEMES = {"redis+sentinel": "redis", "rediss+sentinel": "rediss"}
"""and that of the servers themselves"""
URLS = "redis+sentinel://[user:password@]host[:port][,host[:port]…]/primary[/database], or rediss+sentinel:// for TLS"
PATH = re.compile(r"/([^/]+)(?:/(\d+))?/?")
PORT = 26379
SWITCHED = "+switch-master"
ANSWER_SECONDS = 1.0
"""for each of them, so that one which hangs does not keep the others from being asked"""


@dataclass(frozen=True, slots=True)
class Sentinels:
    addresses: tuple[Address, ...]
    server: Address
    """how to reach the primary, under its name until it is known where it is"""

    def __str__(self) -> str:
        return ", ".join(map(str, self.addresses))


def parse_sentinels(url: str) -> Sentinels | None:
    """None where the url names none. Raises SettingsError, whose text never holds what might be a password."""
    scheme, _, rest = url.partition("://")
    if scheme not in SCHEMES:
        return None
    try:
        parts = urlsplit(f"//{rest}")
        options = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
        _, _, hosts = parts.netloc.rpartition("@")
        each = [urlsplit(f"//{host}") for host in hosts.split(",")]
        places = [(unquote(one.hostname or ""), one.port or PORT) for one in each]
    except ValueError:
        # Where a password was not percent-encoded, any part may hold some of it.
        raise SettingsError(f"store.url cannot be read; use {URLS}, with user and password percent-encoded.") from None
    named_there = PATH.fullmatch(parts.path)
    if named_there is None or not all(host for host, _ in places):
        raise SettingsError(f"store.url names no sentinels or no primary; use {URLS}.")
    primary, database = named_there.groups()
    user, password = options.pop("sentinel_user", None), options.pop("sentinel_password", None)
    who = parts.netloc.removesuffix(hosts)
    query = f"?{urlencode(options)}" if options else ""
    server = parse_address(f"{SCHEMES[scheme]}://{who}primary/{database or 0}{query}")
    return Sentinels(
        addresses=tuple(
            replace(server, host=host, port=port, user=user, password=password, database=0) for host, port in places
        ),
        server=replace(server, host=unquote(primary), port=0),
    )


async def find_primary(sentinels: Sentinels) -> Address:
    """As the first of them says that answers.

    Raises OSError when none does, StoreUnavailable when none knows a primary of that name.
    """
    primary, troubles = sentinels.server.host, []
    for sentinel in sentinels.addresses:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                found = await _ask(sentinel, primary)
        except (OSError, ServerRefused) as error:
            troubles.append(f"{sentinel}: {said(error)}")
            continue
        if found is not None:
            return sentinels.server.beside(*found)
    if not troubles:
        raise StoreUnavailable(
            f"The sentinels {sentinels} know no primary {primary!r}; check the name in store.url, "
            "which is that of their `sentinel monitor`."
        )
    raise OSError(f"no sentinel tells where it is, {'; '.join(troubles)}")


async def follow_primary(sentinels: Sentinels, tell: Callable[[Address], None]) -> None:
    """Tell where the primary is now and whenever another one was made it, until cancelled."""
    while True:
        for sentinel in sentinels.addresses:
            try:
                await _listen_to(sentinel, sentinels, tell)
            except (OSError, ServerRefused, StoreUnavailable):
                pass  # another one may tell, and who connects is told of the trouble
            await asyncio.sleep(ANSWER_SECONDS)


async def _listen_to(sentinel: Address, sentinels: Sentinels, tell: Callable[[Address], None]) -> None:
    """Returns when the connection is lost."""
    async with asyncio.timeout(ANSWER_SECONDS):
        connection = await reach(sentinel)
    lost = asyncio.Event()

    def hear(reply: Any) -> None:
        match reply:
            case [b"message", _, message]:
                name, _, _, host, port = message.decode().split(" ")
                if name == sentinels.server.host:
                    tell(sentinels.server.beside(host, int(port)))

    try:
        await connection.ask([command for command in (login(sentinel), ("SUBSCRIBE", SWITCHED)) if command])
        connection.hear, connection.lost = hear, lambda _: lost.set()
        tell(await find_primary(sentinels))
        await lost.wait()
    finally:
        connection.abort()


async def _ask(sentinel: Address, primary: str) -> tuple[str, int] | None:
    connection = await reach(sentinel)
    try:
        question = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", primary)
        *_, answer = await connection.ask([command for command in (login(sentinel), question) if command])
    finally:
        connection.abort()
    if isinstance(answer, ServerRefused):
        raise answer
    return None if answer is None else (answer[0].decode(), int(answer[1]))
