"""A queue on Redis with an outbox, a database of its own, and what the tests say about both."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
from redis import Redis

from qo.history.recorder import Recorder
from qo.queue.queue import Queue
from qo.settings import load_settings
from qo.store.outbox import OutboxOptions, OutboxStatus
from qo.store.redis.store import RedisStore
from tests.servers.postgres import shared_postgres
from tests.servers.redis import shared_server

LEASE_SECONDS = 0.5
"""Of a recorder's slot: so short that a test need not wait for that of a killed one."""
IDLE_SECONDS = 0.01
PATIENCE_SECONDS = 120


def fresh_name() -> str:
    return f"test_{secrets.token_hex(6)}"


@asynccontextmanager
async def fresh_database() -> AsyncIterator[str]:
    """The url of an empty database, which is gone afterwards."""
    server, name = shared_postgres(), fresh_name()
    await server.execute(f"CREATE DATABASE {name} TEMPLATE template0")
    try:
        yield server.url(name)
    finally:
        await server.execute(f"DROP DATABASE {name} WITH (FORCE)")


@asynccontextmanager
async def fresh_store(url: str | None = None) -> AsyncIterator[RedisStore]:
    """A store with a namespace of its own, on the shared server unless a url names another."""
    chosen = url or shared_server("valkey").url
    store = await RedisStore.open(chosen, namespace=fresh_name())
    try:
        yield store
    finally:
        await store.close()
        with Redis.from_url(chosen) as server:
            if keys := server.keys(f"{store.client.prefix}*"):
                server.delete(*keys)


async def until(fact: Callable[[], Awaitable[bool]]) -> None:
    """Returns as soon as it is so; fails when it does not become so."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            if await fact():
                return
            await asyncio.sleep(0.02)


class Staged:
    """A store with a switched-on outbox, and its history."""

    def __init__(self, store: RedisStore, url: str, **history: Any) -> None:
        self.store = store
        self.url = url
        self.queue = Queue(store, load_settings({"history": {"url": url, **history}}, environ={}))
        self.recorder = self.new_recorder()

    def new_recorder(self, **options: Any) -> Recorder:
        wanted = {"lease_seconds": LEASE_SECONDS, "idle_seconds": IDLE_SECONDS, **options}
        return Recorder(self.queue, self.url, **wanted)

    async def record(self, recorder: Recorder | None = None) -> None:
        """All that is in the outbox."""
        chosen = recorder or self.recorder
        await chosen.open()
        while await chosen.step():
            pass

    async def rows(self, query: str, *arguments: Any) -> list[dict[str, Any]]:
        connection = await asyncpg.connect(self.url)
        try:
            return [dict(row) for row in await connection.fetch(query, *arguments)]
        finally:
            await connection.close()

    async def states(self) -> dict[str, str]:
        """Of each job in the history. Fails where one is there twice."""
        found = await self.rows("SELECT id, state FROM history.jobs")
        assert len({row["id"] for row in found}) == len(found), "a job is there twice"
        return {row["id"]: row["state"] for row in found}

    async def count(self, table: str) -> int:
        (row,) = await self.rows(f"SELECT count(*) AS count FROM {table}")
        count: int = row["count"]
        return count

    async def until_outbox_is_empty(self) -> None:
        async def is_empty() -> bool:
            return (await self.status()).length == 0

        await until(is_empty)

    async def status(self) -> OutboxStatus:
        assert self.store.outbox is not None
        return await self.store.outbox.status()


async def switch_on(store: RedisStore, **options: Any) -> None:
    assert store.outbox is not None
    await store.outbox.configure(OutboxOptions(**{"most": 1_000_000, **options}))


class Snapshot:
    """All keys of a namespace at one moment, to set the server back to."""

    def __init__(self, store: RedisStore, url: str) -> None:
        self._url, self._prefix = url, store.client.prefix
        with Redis.from_url(url) as server:
            self._keys = {key: server.dump(key) for key in server.keys(f"{self._prefix}*")}

    def set_back(self) -> None:
        with Redis.from_url(self._url) as server:
            server.delete(*server.keys(f"{self._prefix}*"))
            for key, content in self._keys.items():
                assert content is not None
                server.restore(key, 0, content)
