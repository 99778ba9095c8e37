"""The stores that the behaviour suite and the state machine run against. The suites themselves name none."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redis import Redis
from redis_snapshot import snapshot as redis_snapshot
from servers import Kind, shared_server
from sqlite_snapshot import snapshot as sqlite_snapshot

from qo.store.redis.store import RedisStore
from qo.store.sqlite import SQLiteStore
from qo.store.values import Bounds


@dataclass(frozen=True)
class StoreUnderTest:
    name: str
    open: Callable[[Bounds], Awaitable[Any]]
    snapshot: Callable[[Any], Awaitable[dict[str, Any]]]
    close: Callable[[Any], Awaitable[None]]
    small_bounds: bool = True
    """whether the behaviour suite also runs with tiny steps; where two share their code, once is enough"""


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


def _open_on(kind: Kind) -> Callable[[Bounds], Awaitable[RedisStore]]:
    async def open_store(bounds: Bounds) -> RedisStore:
        namespace = f"test-{secrets.token_hex(8)}"
        return await RedisStore.open(shared_server(kind).url, namespace=namespace, bounds=bounds)

    return open_store


def _close_on(kind: Kind) -> Callable[[RedisStore], Awaitable[None]]:
    async def close(store: RedisStore) -> None:
        """Leave nothing behind: the next test's server is the same."""
        await store.close()
        with Redis.from_url(shared_server(kind).url) as server:
            keys = server.keys(f"{store.client.prefix}*")
            if keys:
                server.delete(*keys)

    return close


STORES = [
    StoreUnderTest("sqlite", _open_file, sqlite_snapshot, _close_file, small_bounds=False),
    StoreUnderTest("sqlite-memory", _open_memory, sqlite_snapshot, _close_memory),
    StoreUnderTest("valkey", _open_on("valkey"), redis_snapshot, _close_on("valkey")),
    StoreUnderTest("redis", _open_on("redis"), redis_snapshot, _close_on("redis"), small_bounds=False),
]
