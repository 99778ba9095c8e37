"""Every poll that would hide a lost wake-up, set to an hour. A waiter that wakes within seconds was notified."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from qo.limits import semaphore
from qo.limits.on_store import thread as limiter_thread
from qo.queue import follower as feed
from qo.queue.queue import Queue
from qo.settings import load_settings
from qo.store.redis import store as redis_store
from qo.store.redis.store import RedisStore
from qo.store.sqlite import SQLiteStore
from qo.store.sqlite import store as sqlite_store
from qo.store.sqlite.file import changes
from qo.worker import exchange, joining, upkeep
from tests.worker.running import until

HOUR_SECONDS = 3600.0
QUIET_SECONDS = 0.05
SETTINGS: dict[str, Any] = {
    # A third of each is an hour: how often leases are renewed, and callers that wait ask again.
    "concurrency": {"default_lease_duration_secs": 3 * HOUR_SECONDS},
    "limiter": {"waiter_alive_secs": 3 * HOUR_SECONDS},
    "retries": {"first_delay_secs": 0.1, "jitter": 0},
    "worker": {"grace_secs": 5},
}


def poll_hourly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "WAIT_SECONDS", HOUR_SECONDS)
    monkeypatch.setattr(joining, "LIFETIME_MS", 3 * int(HOUR_SECONDS) * 1000)
    monkeypatch.setattr(upkeep, "EVERY_SECONDS", 2 * HOUR_SECONDS)
    monkeypatch.setattr(upkeep, "CATCH_UP_EVERY_SECONDS", 2 * HOUR_SECONDS)
    monkeypatch.setattr(feed, "WAIT_SECONDS", HOUR_SECONDS)
    monkeypatch.setattr(limiter_thread, "HANDED_OVER_LEASE_MS", 3 * int(HOUR_SECONDS) * 1000)
    monkeypatch.setattr(semaphore, "HANDED_OVER_LEASE_MS", 3 * int(HOUR_SECONDS) * 1000)
    monkeypatch.setattr(redis_store, "NET_SECONDS", HOUR_SECONDS)
    monkeypatch.setattr(sqlite_store, "SIGNALS_SECONDS", HOUR_SECONDS)


def look_at_the_clock_hourly(monkeypatch: pytest.MonkeyPatch) -> None:
    """On SQLite a waiter looks at the clock ten times a second, which is how it finds jobs that come due. Everything
    else must wake it without that."""
    monkeypatch.setattr(changes, "LOOK_AT_CLOCK_SECONDS", HOUR_SECONDS)


@asynccontextmanager
async def another_queue(queue: Queue) -> AsyncIterator[Queue]:
    """On the same store by connections of its own, as another process has them; in memory there is but one."""
    if isinstance(queue.store, SQLiteStore) and queue.store.path == ":memory:":
        yield queue
        return
    async with Queue(await _opened_again(queue.store), load_settings(SETTINGS, environ={})) as other:
        yield other


async def _opened_again(store: Any) -> Any:
    if isinstance(store, SQLiteStore):
        return await SQLiteStore.open(store.path)
    url, namespace = url_of(store)
    return await RedisStore.open(url, namespace=namespace)


def url_of(store: Any) -> tuple[str, str]:
    """Of a server, and the namespace that is used there."""
    assert isinstance(store, RedisStore)
    return f"redis://{store.client.address}", store.client.prefix.removeprefix("qo:{").removesuffix("}:")


async def idle(queue: Queue) -> None:
    """Returns when a worker waits for work on this store, and has found none."""

    async def waits() -> bool:
        if isinstance(queue.store, RedisStore):
            return bool(await queue.store.client.command("HLEN", f"{queue.store.client.prefix}idle_workers"))
        assert isinstance(queue.store, SQLiteStore)
        return bool(queue.store.changes.waiters)

    await until(waits)
    await asyncio.sleep(0.05)  # on SQLite, for the look that comes after it has begun to wait


class Hearing:
    """Whether a listener waits for this store's signals, and has read all earlier ones.

    An earlier signal would be found by reading, and would prove nothing about notifications.
    """

    def __init__(self, store: Any) -> None:
        self._listens = threading.Event()
        self._asking = 0
        self._asked_at = 0.0
        signals, acquire = store.signals, store.acquire

        async def noted_signals(*args: Any, **options: Any) -> AsyncGenerator[Any]:
            async with aclosing(signals(*args, **options)) as feeds:
                async for each in feeds:
                    yield each
                    self._listens.set()  # the listener has heeded it and waits for the next

        async def noted_acquire(*args: Any, **options: Any) -> Any:
            self._asking += 1
            try:
                return await acquire(*args, **options)
            finally:
                self._asking -= 1
                self._asked_at = time.monotonic()

        store.signals, store.acquire = noted_signals, noted_acquire

    async def begun(self) -> None:
        async def hears() -> bool:
            quiet = not self._asking and time.monotonic() - self._asked_at > QUIET_SECONDS
            return self._listens.is_set() and quiet

        await until(hears)
