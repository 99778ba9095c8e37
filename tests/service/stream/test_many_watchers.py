"""Many watchers of one job, and one among them that does not read."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Collection
from contextlib import AsyncExitStack

import pytest

import qo
from qo.queue.inbox import MOST_EVENTS
from qo.service.connection import Connection
from qo.service.stream.response import Times
from qo.service.stream.watchers import Dropped, watch_token
from tests.by_hand import start
from tests.service.serving import Served
from tests.service.stream.app import StreamApp, path_of
from tests.service.stream.client import StreamClient, connected, stopped_client
from tests.worker.running import soon, until

WATCHERS = 200
LARGE = "x" * 8000
"""A hundred such events are more than the buffers between a server and its client take."""


async def test_each_of_200_watchers_gets_each_event_once_and_it_was_encoded_once(queue: qo.Queue) -> None:
    app = StreamApp(queue)
    job = await queue.submit("build")
    by_hand = await start(queue)
    async with app.served() as served, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connected(served, path_of(job.id))) for _ in range(WATCHERS)]
        first = [await client.next() for client in clients]
        assert app.watchers.open == WATCHERS
        await by_hand.is_at("compiling")
        await by_hand.has_done(*range(10))
        await by_hand.succeeds()
        seen = await soon(asyncio.gather(*(client.rest() for client in clients)))

    assert len({frame.id for frame in first}) == 1
    assert first[0].id is not None
    everything = (await queue.store.events(first[0].id, subjects=[job.id])).events
    assert len(everything) == 13
    assert {tuple(frame.id for frame in frames) for frames in seen} == {tuple(event.id for event in everything)}
    assert app.streams.frames.made == len(everything)
    assert app.watchers.open == 0
    assert queue.follower.watchers == {}


async def test_a_client_that_stops_reading_is_ended_and_nobody_else_notices(
    queue: qo.Queue, caplog: pytest.LogCaptureFixture
) -> None:
    app = StreamApp(queue, times=Times(send_seconds=0.3))
    job = await queue.submit("build")
    by_hand = await start(queue)
    async with app.served() as served, connected(served, path_of(job.id)) as reading:
        first = await reading.next()
        async with stopped_client(served, path_of(job.id)) as stopped:
            await until(lambda: _has_open(app, 2))
            listening = asyncio.create_task(_read_events(reading, 101))
            await by_hand.has_said(*[LARGE] * 100)

            await until(lambda: _has_open(app, 1))
            await until(lambda: _is_only_one_left(served.state.connections))
            assert len(served.state.tasks) == 1
            assert len(queue.follower.watchers[job.id]) == 1
            assert [task.get_name() for task in asyncio.all_tasks()].count("qo-stream") == 1
            assert app.watchers.dropped == {Dropped.SLOW: 1}
            with pytest.raises(ConnectionResetError):  # nothing waits in the kernel either
                await soon(_drain(stopped))
        seen = await soon(listening)
        await by_hand.succeeds()
        seen += [frame.id for frame in await reading.rest()]

    assert first.id is not None
    everything = (await queue.store.events(first.id, subjects=[job.id])).events
    assert seen == [event.id for event in everything]
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_client_that_was_away_for_too_many_events_gets_the_present_state(queue: qo.Queue) -> None:
    app = StreamApp(queue)
    job = await queue.submit("build")
    by_hand = await start(queue)
    async with app.served() as served, stopped_client(served, path_of(job.id)) as stopped:
        await until(lambda: _has_open(app, 1))
        beside = asyncio.create_task(_watch_to_its_end(queue, job.id))
        await by_hand.has_said(*[LARGE] * 100)  # it is blocked now
        await until(lambda: _is_blocked(served))
        for _ in range(3):
            await by_hand.has_done(*range(MOST_EVENTS))
        await by_hand.is_at("testing")
        await by_hand.succeeds()
        await soon(beside)  # now the watcher that is blocked has been given everything, too
        text = await soon(_read_all(stopped))

    assert text.count("event: reset") == 1
    *_, last = text.split("event: reset")
    assert '"state":"succeeded"' in last
    assert "event: status" not in last


async def test_all_streams_end_within_a_second_when_the_server_stops(queue: qo.Queue) -> None:
    app = StreamApp(queue)
    job = await queue.submit("build")
    by_hand = await start(queue)
    async with app.served() as served, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connected(served, path_of(job.id))) for _ in range(50)]
        await stack.enter_async_context(stopped_client(served, path_of(job.id)))
        await until(lambda: _has_open(app, 51))
        listening = [asyncio.create_task(client.rest()) for client in clients]
        await by_hand.has_said(*[LARGE] * 100)
        await until(lambda: _have_read(clients, 101))
        assert await _is_blocked(served)

        began = asyncio.get_running_loop().time()
        app.watchers.close_all()
        await soon(asyncio.gather(*listening))
        await until(lambda: _is_none_left(served.state.tasks))
        took = asyncio.get_running_loop().time() - began

        assert took < 1
        assert app.watchers.open == 0
        assert queue.follower.watchers == {}
        assert {client.frames[-1].retry for client in clients} == {2000}
        assert app.watchers.dropped == {}


async def test_a_stream_too_many_is_refused_with_the_time_to_wait(queue: qo.Queue) -> None:
    app = StreamApp(queue, caller=watch_token("token", address="127.0.0.1"))
    job = await queue.submit("build")
    async with app.served() as served, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connected(served, path_of(job.id))) for _ in range(6)]

        assert [client.status for client in clients] == [200] * 5 + [429]
        assert clients[-1].headers["retry-after"] == "10"


async def _read_events(client: StreamClient, count: int) -> list[int | None]:
    return [(await client.next()).id for _ in range(count)]


async def _drain(stopped: socket.socket) -> None:
    while await asyncio.get_running_loop().sock_recv(stopped, 65536):
        pass


async def _read_all(stopped: socket.socket) -> str:
    loop = asyncio.get_running_loop()
    text = b""
    while not text.endswith(b"\r\n0\r\n\r\n"):
        text += await loop.sock_recv(stopped, 65536)
    return text.decode()


async def _has_open(app: StreamApp, count: int) -> bool:
    return app.watchers.open == count


async def _is_only_one_left(things: Collection[object]) -> bool:
    return len(things) == 1


async def _is_none_left(things: Collection[object]) -> bool:
    return not things


async def _watch_to_its_end(queue: qo.Queue, job_id: str) -> None:
    async for _ in queue.watch(job_id):
        pass


async def _is_blocked(served: Served) -> bool:
    """Whether a send to some client waits, because that client does not read."""
    return any(
        connection.flow.write_paused for connection in served.state.connections if isinstance(connection, Connection)
    )


async def _have_read(clients: list[StreamClient], count: int) -> bool:
    return all(len(client.frames) >= count for client in clients)
