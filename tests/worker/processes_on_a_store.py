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

import qo
from qo.event import LEASE_LOST, Event
from qo.store.redis.store import RedisStore
from qo.store.sqlite import SQLiteStore
from tests.conformance.invariants import broken_invariants
from tests.servers.redis import Server
from tests.store.redis.snapshot import snapshot as redis_snapshot
from tests.store.sqlite.snapshot import snapshot as sqlite_snapshot

LEASE_SECONDS = 2
SETTINGS: dict[str, Any] = {
    "concurrency": {"default_lease_duration_secs": LEASE_SECONDS},
    "retries": {"first_delay_secs": 0.01, "max_delay_secs": 0.1},
}
LOOK_AGAIN_SECONDS = 0.005
PROBE_SECONDS = 1.0
"""The time limit of a test write, made while a stopped process may be in the middle of a write of its own."""


@pytest.fixture(name="url", params=["sqlite", "valkey"])
def url_fixture(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of a file or of a server that only this test uses."""
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
    """All events of these kinds since the beginning."""
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
    """Checks that there are exactly this many jobs, and that each succeeded once."""
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
    """The store's whole state at one moment."""
    if isinstance(queue.store, RedisStore):
        return await redis_snapshot(queue.store)
    assert isinstance(queue.store, SQLiteStore)
    return await sqlite_snapshot(queue.store)


async def can_write(queue: qo.Queue) -> bool:
    """Whether no process is stopped in the middle of a write. A machine that is too slow looks the same.

    On a server nobody ever is: a write is one script there, and whoever sent it may be stopped meanwhile.
    """
    written = asyncio.ensure_future(queue.store.observe([]))
    await asyncio.wait({written}, timeout=PROBE_SECONDS)
    return written.done()
