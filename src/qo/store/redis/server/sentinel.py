"""Sentinels: asked for the primary at every connection, and subscribed to.

Waiting for the old primary to close the connection would not be enough. Sentinels that replace a primary which is
still alive notify it some ten seconds later, and everything it accepts meanwhile is lost.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from qo.errors import SettingsError, StoreUnavailable
from qo.store.redis.server.address import ServerAddress, parse_server_url
from qo.store.redis.server.availability import said
from qo.store.redis.server.connection import ServerRefused, login, reach

SCHEMES = {"redis+sentinel": "redis", "rediss+sentinel": "rediss"}
"""By scheme of the url, the scheme of the servers themselves."""
URLS = "redis+sentinel://[user:password@]host[:port][,host[:port]…]/primary[/database], or rediss+sentinel:// for TLS"
PATH = re.compile(r"/([^/]+)(?:/(\d+))?/?")
PORT = 26379
SWITCHED = "+switch-master"
ANSWER_SECONDS = 1.0
"""The timeout for each sentinel, so that one which hangs does not prevent asking the others."""


@dataclass(frozen=True, slots=True)
class Sentinels:
    addresses: tuple[ServerAddress, ...]
    server: ServerAddress
    """How to reach the primary. Its host is the primary's name until its address is known."""

    def __str__(self) -> str:
        return ", ".join(map(str, self.addresses))


def parse_sentinels(url: str) -> Sentinels | None:
    """Read a url; None if it names no sentinels. The text of a `SettingsError` never contains a password."""
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
        # If a password was not percent-encoded, any part of the url may contain some of it.
        raise SettingsError(f"store.url cannot be read; use {URLS}, with user and password percent-encoded.") from None
    named_there = PATH.fullmatch(parts.path)
    if named_there is None or not all(host for host, _ in places):
        raise SettingsError(f"store.url names no sentinels or no primary; use {URLS}.")
    primary, database = named_there.groups()
    user, password = options.pop("sentinel_user", None), options.pop("sentinel_password", None)
    login_part = parts.netloc.removesuffix(hosts)
    query = f"?{urlencode(options)}" if options else ""
    server = parse_server_url(f"{SCHEMES[scheme]}://{login_part}primary/{database or 0}{query}")
    return Sentinels(
        addresses=tuple(
            replace(server, host=host, port=port, user=user, password=password, database=0) for host, port in places
        ),
        server=replace(server, host=unquote(primary), port=0),
    )


async def find_primary(sentinels: Sentinels) -> ServerAddress:
    """The primary's address, from the first sentinel that answers.

    Raises `OSError` when none answers, `StoreUnavailable` when none knows a primary of that name.
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


async def follow_primary(sentinels: Sentinels, tell: Callable[[ServerAddress], None]) -> None:
    """Call `tell` with the primary's address now and whenever another server is promoted, until cancelled."""
    while True:
        for sentinel in sentinels.addresses:
            try:
                await _listen_to(sentinel, sentinels, tell)
            except (OSError, ServerRefused, StoreUnavailable):
                pass  # another sentinel may answer, and `find_primary` reports the error
            await asyncio.sleep(ANSWER_SECONDS)


async def _listen_to(sentinel: ServerAddress, sentinels: Sentinels, tell: Callable[[ServerAddress], None]) -> None:
    """Subscribe to one sentinel. Returns when the connection is lost."""
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


async def _ask(sentinel: ServerAddress, primary: str) -> tuple[str, int] | None:
    connection = await reach(sentinel)
    try:
        question = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", primary)
        *_, answer = await connection.ask([command for command in (login(sentinel), question) if command])
    finally:
        connection.abort()
    if isinstance(answer, ServerRefused):
        raise answer
    return None if answer is None else (answer[0].decode(), int(answer[1]))
