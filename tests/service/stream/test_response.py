"""Heartbeats, and every way in which a stream ends: what the client gets, and that nothing is left of it."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from types import AsyncGeneratorType
from typing import Any

import pytest

from qo.errors import StoreAway
from qo.service.stream.encoding import frame
from qo.service.stream.response import StreamResponse, Times
from qo.service.stream.watchers import OPERATOR, Dropped, Watchers
from tests.service.serving import Served, serving
from tests.service.stream.app import IN_THE_MIDDLE
from tests.service.stream.client import connected
from tests.worker.running import soon, until

Source = Callable[[], AsyncGenerator[bytes]]


class App:
    """Every request gets a stream of the source."""

    def __init__(self, source: Source, *, headers: dict[str, str] | None = None, **times: float) -> None:
        self.watchers = Watchers()
        self.left: list[tuple[int, bool]] = []
        """For each response that has ended: how many streams were open then, and whether its source was closed."""
        self._source = source
        self._times = Times(**times)
        self._headers = headers

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        source = self._source()
        response = StreamResponse(
            source,
            watchers=self.watchers,
            caller=OPERATOR,
            system=IN_THE_MIDDLE,
            times=self._times,
            headers=self._headers,
        )
        try:
            await response(scope, receive, send)
        finally:
            self.left.append((self.watchers.open, is_closed(source)))

    @asynccontextmanager
    async def served(self) -> AsyncIterator[Served]:
        async with serving(self, stopping=self.watchers.close_all) as served:
            yield served

    async def until_left(self) -> None:
        async def has_left() -> bool:
            return bool(self.left)

        await until(has_left)


def is_closed(source: AsyncGenerator[bytes]) -> bool:
    assert isinstance(source, AsyncGeneratorType)
    return source.ag_frame is None


async def silent() -> AsyncGenerator[bytes]:
    yield frame("connected", id=1, data=None)
    await asyncio.Event().wait()


async def busy() -> AsyncGenerator[bytes]:
    while True:
        yield frame("status", id=1, data=None)
        await asyncio.sleep(0.001)


@pytest.fixture(autouse=True)
def _nothing_is_left_to_the_garbage_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("source", [silent, busy])
async def test_a_heartbeat_comes_again_and_again_whether_or_not_there_are_events(source: Source) -> None:
    app = App(source, heartbeat_seconds=0.03)
    async with app.served() as served, connected(served, "/") as client:

        async def until_third_heartbeat() -> None:
            async for each in client.arriving:
                if each.comment is not None and [frame.comment for frame in client.frames].count("heartbeat") == 3:
                    return

        await soon(until_third_heartbeat())

    assert {frame.comment for frame in client.frames} == {None, "heartbeat"}


async def test_after_its_longest_time_a_stream_ends_with_the_wait_of_its_client() -> None:
    app = App(silent, longest_seconds=0.05)
    async with app.served() as served, connected(served, "/") as client:
        frames = await client.rest()

        assert [(frame.event, frame.retry) for frame in frames] == [("connected", None), (None, 2000)]
        assert app.left == [(0, True)]
        assert app.watchers.dropped == {}


async def test_a_stream_whose_client_goes_leaves_nothing_behind() -> None:
    app = App(silent)
    async with app.served() as served:
        async with connected(served, "/") as client:
            await client.next()
            assert app.watchers.open == 1
        await app.until_left()

        assert app.left == [(0, True)]
        assert app.watchers.dropped == {}
        await until(lambda: _is_empty(served.state.connections))
        assert not [task for task in asyncio.all_tasks() if task.get_name() == "qo-stream"]


async def test_a_client_that_goes_while_events_are_sent_leaves_nothing_behind() -> None:
    app = App(busy)
    async with app.served() as served:
        async with connected(served, "/") as client:
            await client.next()
        await app.until_left()

        assert app.left == [(0, True)]


async def test_a_source_that_ends_completes_the_response() -> None:
    async def source() -> AsyncGenerator[bytes]:
        yield frame("connected", id=1, data=None)
        yield frame("status", id=2, data=None)

    app = App(source)
    async with app.served() as served, connected(served, "/") as client:
        frames = await client.rest()

        assert [(frame.event, frame.retry) for frame in frames] == [("connected", None), ("status", None)]
        assert app.left == [(0, True)]


async def test_a_store_that_goes_away_ends_the_stream_and_the_client_comes_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def source() -> AsyncGenerator[bytes]:
        yield frame("connected", id=1, data=None)
        raise StoreAway("The store is away.")

    app = App(source)
    async with app.served() as served, connected(served, "/") as client:
        with caplog.at_level(logging.WARNING, logger="qo.stream"):
            frames = await client.rest()

        assert frames[-1].retry == 2000
        assert app.watchers.dropped == {Dropped.FAILED: 1}
        assert caplog.messages == ["a stream ended early, and its client comes back: The store is away."]


async def test_an_unexpected_error_cuts_the_connection_and_is_raised(caplog: pytest.LogCaptureFixture) -> None:
    async def source() -> AsyncGenerator[bytes]:
        yield frame("connected", id=1, data=None)
        raise RuntimeError("a mistake of ours")

    app = App(source)
    async with app.served() as served, connected(served, "/") as client:
        with pytest.raises(asyncio.IncompleteReadError):
            await client.rest()

        assert app.left == [(0, True)]
        assert app.watchers.dropped == {Dropped.FAILED: 1}
    assert "a mistake of ours" in caplog.text


async def test_a_source_that_fails_at_once_has_sent_nothing() -> None:
    async def away() -> bytes:
        raise StoreAway("The store is away.")

    async def source() -> AsyncGenerator[bytes]:
        yield await away()

    app = App(source)
    async with app.served() as served, connected(served, "/") as client:
        assert client.status == 500
        assert app.left == [(0, True)]
        assert app.watchers.dropped == {}


async def test_a_server_that_stops_ends_a_stream_that_has_not_begun() -> None:
    has_begun = asyncio.Event()

    async def source() -> AsyncGenerator[bytes]:
        has_begun.set()
        await asyncio.Event().wait()
        yield b""

    app = App(source)
    async with app.served() as served:

        async def close_when_begun() -> None:
            await has_begun.wait()
            app.watchers.close_all()

        closing = asyncio.create_task(close_when_begun())
        async with connected(served, "/") as client:
            frames = await client.rest()
        await closing

    assert client.status == 200
    assert [frame.retry for frame in frames] == [2000]


async def test_closing_twice_ends_a_stream_once() -> None:
    app = App(silent)
    async with app.served() as served, connected(served, "/") as client:
        await client.next()
        app.watchers.close_all()
        app.watchers.close_all()
        frames = await client.rest()

    assert [frame.retry for frame in frames] == [2000]


async def test_a_request_that_is_cancelled_leaves_nothing_behind() -> None:
    app = App(silent)
    sent: list[Any] = []
    has_sent = asyncio.Event()

    async def receive() -> Any:
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)
        has_sent.set()

    scope = {"type": "http", "method": "GET", "http_version": "1.1", "headers": []}
    request = asyncio.create_task(app(scope, receive, send))
    await soon(has_sent.wait())
    request.cancel()
    await asyncio.wait([request])

    assert request.cancelled()
    assert app.left == [(0, True)]


async def test_on_another_server_a_slow_client_is_left_to_that_server() -> None:
    app = App(silent, send_seconds=0.01)

    async def receive() -> Any:
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        await asyncio.Event().wait()

    scope = {"type": "http", "method": "GET", "http_version": "1.1", "headers": []}
    await soon(app(scope, receive, send))

    assert app.left == [(0, True)]
    assert app.watchers.dropped == {Dropped.SLOW: 1}


async def test_an_error_of_the_connection_ends_the_stream(caplog: pytest.LogCaptureFixture) -> None:
    app = App(silent)
    sent: list[Any] = []

    async def receive() -> Any:
        raise RuntimeError("a mistake of the server")

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "http_version": "1.1", "headers": []}
    await soon(app(scope, receive, send))

    assert sent[-1] == {"type": "http.response.body", "body": b"retry: 2000\n\n", "more_body": False}
    assert app.watchers.dropped == {Dropped.FAILED: 1}
    assert "a mistake of the server" in caplog.text


async def test_a_stream_can_have_headers_of_its_own() -> None:
    app = App(silent, headers={"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"})
    async with app.served() as served, connected(served, "/") as client:
        assert client.headers["cache-control"] == "no-store"
        assert client.headers["referrer-policy"] == "no-referrer"
        assert client.headers["x-accel-buffering"] == "no"


async def _is_empty(things: set[Any]) -> bool:
    return not things
