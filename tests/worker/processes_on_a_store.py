"""A queue that worker processes share, on a file and on a server, and what to check of it.

A test module imports both fixtures. Their functions are not called like the fixtures, so that an argument of a test
does not hide an import.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterator
from pathlib import Path
from typing import Any

import pytest
from invariants import broken_invariants
from redis_snapshot import snapshot as redis_snapshot
from servers import Server
from sqlite_snapshot import snapshot as sqlite_snapshot

import qo
from qo.event import LEASE_LOST, Event
from qo.store.redis.store import RedisStore
from qo.store.sqlite import SQLiteStore

LEASE_SECONDS = 2
SETTINGS: dict[str, Any] = {
    "concurrency": {"default_lease_duration_secs": LEASE_SECONDS},
    "retries": {"first_delay_secs": 0.01, "max_delay_secs": 0.1},
}
LOOK_AGAIN_SECONDS = 0.005
PROBE_SECONDS = 1.0
"""for a write by somebody else, while a process is stopped that may be in the middle of one of its own"""


@pytest.fixture(name="url", params=["sqlite", "valkey"])
def url_fixture(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Of a file, or of a server, that this test has for itself."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'qo.db'}"
    else:
        with Server(request.param) as server:
            yield server.url


@pytest.fixture(name="queue")
async def queue_fixture(url: str) -> AsyncIterator[qo.Queue]:
    async with await qo.connect(url, settings=SETTINGS) as opened:
        yield opened


async def events_of(queue: qo.Queue, kinds: Collection[str]) -> list[Event]:
    """All of these kinds since the beginning."""
    events: list[Event] = []
    cursor = 0
    while True:
        feed = await queue.store.events(cursor, kinds=kinds)
        assert not feed.reset
        events += feed.events
        if feed.cursor == cursor or not feed.events:
            return events
        cursor = feed.cursor


async def check_each_succeeded_once(queue: qo.Queue, number: int) -> None:
    """There are so many jobs, and no other ones."""
    jobs = await queue.jobs(limit=2 * number)
    assert Counter(job.state for job in jobs) == {qo.State.SUCCEEDED: number}
    succeeded = await events_of(queue, [qo.State.SUCCEEDED])
    assert Counter(event.subject for event in succeeded) == {job.id: 1 for job in jobs}
    starts = Counter(event.subject for event in await events_of(queue, [qo.State.STARTING]))
    losses = Counter(event.subject for event in await events_of(queue, [LEASE_LOST]))
    assert starts == {job.id: job.attempts for job in jobs}
    assert starts == losses + Counter(job.id for job in jobs), "nothing but a lost lease makes a job start again"
    assert sum(point.count for point in await queue.store.series(prefix="ended:")) == number


async def check_nothing_is_held(queue: qo.Queue) -> None:
    assert await queue.store.leases() == ()
    assert [group.group for group in await queue.limits() if group.active] == []
    await check_invariants(queue)


async def check_invariants(queue: qo.Queue) -> None:
    assert broken_invariants(await _snapshot(queue)) == []


async def _snapshot(queue: qo.Queue) -> dict[str, Any]:
    """All that the store knows, at one moment."""
    if isinstance(queue.store, RedisStore):
        return await redis_snapshot(queue.store)
    assert isinstance(queue.store, SQLiteStore)
    return await sqlite_snapshot(queue.store)


async def can_write(queue: qo.Queue) -> bool:
    """Whether nobody is stopped in the middle of a write. Too slow a machine looks the same.

    On a server nobody ever is: a write is one script there, and whoever sent it may be stopped meanwhile.
    """
    written = asyncio.ensure_future(queue.store.observe([]))
    await asyncio.wait({written}, timeout=PROBE_SECONDS)
    return written.done()
