"""The stores that tests run against. The tests themselves name none."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redis import Redis

from qo.store.outbox import OutboxOptions
from qo.store.redis.store import RedisStore
from qo.store.sqlite import SQLiteStore
from qo.values import Bounds
from tests.servers.redis import Kind, shared_server
from tests.store.redis.snapshot import snapshot as redis_snapshot
from tests.store.sqlite.snapshot import snapshot as sqlite_snapshot


@dataclass(frozen=True)
class StoreUnderTest:
    name: str
    open: Callable[[Bounds], Coroutine[Any, Any, Any]]
    snapshot: Callable[[Any], Coroutine[Any, Any, dict[str, Any]]]
    close: Callable[[Any], Coroutine[Any, Any, None]]
    is_twin: bool = False
    """Shares all its code with another store, on which the behaviour suite runs in the gate, with tiny steps too.
    On a twin it runs nightly."""


async def _open_memory(bounds: Bounds) -> SQLiteStore:
    return await SQLiteStore.open(":memory:", bounds=bounds)


async def _open_file(bounds: Bounds) -> SQLiteStore:
    folder = tempfile.mkdtemp(prefix="qo-test-")
    return await SQLiteStore.open(str(Path(folder) / "qo.db"), bounds=bounds)


async def _close_file(store: SQLiteStore) -> None:
    await store.close()
    for file in Path(store.path).parent.iterdir():
        file.unlink()
    Path(store.path).parent.rmdir()


async def _close_memory(store: SQLiteStore) -> None:
    await store.close()


def _open_on(kind: Kind, *, outbox: bool = False) -> Callable[[Bounds], Coroutine[Any, Any, RedisStore]]:
    async def open_store(bounds: Bounds) -> RedisStore:
        namespace = f"test-{secrets.token_hex(8)}"
        store = await RedisStore.open(shared_server(kind).url, namespace=namespace, bounds=bounds)
        if outbox:
            assert store.outbox is not None
            await store.outbox.configure(OutboxOptions(most=1_000_000, payloads=True))
        return store

    return open_store


def _close_on(kind: Kind) -> Callable[[RedisStore], Coroutine[Any, Any, None]]:
    async def close(store: RedisStore) -> None:
        """Leaves nothing behind, because the next test uses the same server."""
        await store.close()
        with Redis.from_url(shared_server(kind).url) as server:
            keys = server.keys(f"{store.client.prefix}*")
            if keys:
                server.delete(*keys)

    return close


STORES = [
    StoreUnderTest("sqlite", _open_file, sqlite_snapshot, _close_file, is_twin=True),
    StoreUnderTest("sqlite-memory", _open_memory, sqlite_snapshot, _close_memory),
    StoreUnderTest("valkey", _open_on("valkey"), redis_snapshot, _close_on("valkey")),
    # With an outbox, which must change nothing but itself.
    StoreUnderTest("redis", _open_on("redis", outbox=True), redis_snapshot, _close_on("redis"), is_twin=True),
]
