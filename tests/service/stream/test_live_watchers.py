"""Many operators watch at the same time: what that costs the store, and one among them who does not read."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import pytest

import qo
from qo.queue.inbox import MOST_EVENTS
from qo.queue.queue import Queue
from qo.service.stream import frames, live, live_reader, overview
from qo.service.stream.encoding import frame
from qo.service.stream.live import LiveStreams
from qo.service.stream.response import Times
from qo.service.stream.watchers import Dropped
from tests.by_hand import JobByHand, start
from tests.service.stream.app import LIVE, StreamApp
from tests.service.stream.client import StreamClient, connected, stopped_client
from tests.worker.running import soon, until

READING = ("counts", "events", "groups", "jobs", "leases", "line", "series", "workers")
CHANGES = 10
LARGE = "x" * 8000


class CountedStore:
    """A store that counts the calls that read, once they have an answer: one is always waiting for events."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name not in READING:
            return found

        async def counted(*args: Any, **fields: Any) -> Any:
            answer = await found(*args, **fields)
            self.calls[name] += 1
            return answer

        return counted

    async def close(self) -> None:
        """The store is closed by the queue that it was taken from."""


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames come as fast as they can; what is read by the clock is read once."""
    monkeypatch.setattr(live, "FRAME_EVERY_SECONDS", 0.001)
    monkeypatch.setattr(live_reader, "GROUPS_EVERY_SECONDS", 1000.0)
    monkeypatch.setattr(overview, "EVERY_SECONDS", 1000.0)


async def next_with(client: StreamClient, job_id: str) -> None:
    while not any(row["id"] == job_id for row in (await client.next()).data["changed"]):
        pass


async def cost_of(watchers: int, queue: qo.Queue, monkeypatch: pytest.MonkeyPatch) -> tuple[Counter[str], int]:
    """The calls of the store, and the frames that were encoded, while so many operators see ten changes."""
    store: Any = CountedStore(queue.store)
    encoded: list[object] = []

    def counted(name: str, *, id: int, data: object) -> bytes:
        encoded.append(data)
        return frame(name, id=id, data=data)

    monkeypatch.setattr(live, "frame", counted)
    seen_by = Queue(store, queue.settings)
    app = StreamApp(seen_by)
    async with app.served() as served, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connected(served, LIVE)) for _ in range(watchers)]
        for client in clients:
            await client.next()
        assert app.watchers.open == app.live.watching == watchers
        for number in range(CHANGES):
            await queue.submit("build", id=f"{watchers}-{number}")
            await soon(asyncio.gather(*(next_with(client, f"{watchers}-{number}") for client in clients)))
        calls = store.calls.copy()
    await seen_by.close()
    return calls, sum(isinstance(each, frames.Frame) for each in encoded)


async def test_twenty_watchers_cost_the_store_what_one_costs(queue: qo.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    of_one, encoded_for_one = await cost_of(1, queue, monkeypatch)
    of_twenty, encoded_for_twenty = await cost_of(20, queue, monkeypatch)

    assert of_twenty == of_one
    assert of_one["jobs"] == CHANGES
    assert encoded_for_twenty == encoded_for_one == CHANGES


async def test_nothing_is_read_when_nobody_watches(queue: qo.Queue) -> None:
    app = StreamApp(queue)
    async with app.served() as served:
        assert not _readers()
        async with connected(served, LIVE) as client, connected(served, LIVE):
            await client.next()
            assert _readers() == ["qo-live"]
        await until(_nobody_reads)

        assert app.live.watching == 0


async def test_a_client_that_stops_reading_is_ended_and_nobody_else_notices(
    queue: qo.Queue, caplog: pytest.LogCaptureFixture
) -> None:
    app = StreamApp(queue, times=Times(send_seconds=0.3))
    await queue.submit_many([qo.New("build", id=f"j{number}") for number in range(20)])
    running = [await start(queue) for _ in range(20)]
    async with app.served() as served, connected(served, LIVE) as reading:
        await reading.next()
        async with stopped_client(served, LIVE):
            await until(lambda: _has_open(app, 2))
            talking = asyncio.create_task(_talk(running))
            listening = asyncio.create_task(_listen(reading))
            try:
                await until(lambda: _has_open(app, 1))
            finally:
                talking.cancel()
            await asyncio.wait([talking])

            assert app.live.watching == 1
            assert app.watchers.dropped == {Dropped.SLOW: 1}
        await queue.submit("build", id="after")
        seen = await soon(listening)

    assert seen == (await queue.store.events(None)).cursor
    assert all(frame.event in ("frame", None) for frame in reading.frames)
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_watcher_that_leaves_too_many_frames_unread_gets_a_reset_with_the_present_state(
    queue: qo.Queue,
) -> None:
    streams = LiveStreams(queue)
    slow, fast = streams.stream(), streams.stream()
    try:
        await anext(slow)
        await anext(fast)
        for number in range(MOST_EVENTS + 1):
            await queue.submit("build", id=f"j{number}")
            await soon(anext(fast))
        reset = await soon(anext(slow))
        await queue.submit("build", id="next")
        following = await soon(anext(slow))
    finally:
        await slow.aclose()
        await fast.aclose()
        await streams.close()

    assert reset.startswith(b"event: reset\n")
    assert b'"waiting":%d,' % (MOST_EVENTS + 1) in reset
    assert following.startswith(b"event: frame\n")
    assert b'"id":"next"' in following


async def _talk(running: list[JobByHand]) -> None:
    while True:
        for job in running:
            await job.has_said(LARGE)


async def _listen(client: StreamClient) -> int | None:
    while True:
        frame = await client.next()
        if any(row["id"] == "after" for row in frame.data["changed"]):
            return frame.id


def _readers() -> list[str]:
    return [name for task in asyncio.all_tasks() if (name := task.get_name()) in ("qo-live", "qo-overview")]


async def _nobody_reads() -> bool:
    return not _readers()


async def _has_open(app: StreamApp, count: int) -> bool:
    return app.watchers.open == count
