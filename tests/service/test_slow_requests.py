"""A request that does not arrive holds nothing for long."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from qo.service import reading
from qo.service.connection import Connection
from tests.service.conftest import Service

pytestmark = pytest.mark.parametrize("served", ["memory"], indirect=True)


@pytest.fixture(autouse=True)
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "arrival_seconds", 0.2)
    monkeypatch.setattr(reading, "ARRIVAL_SECONDS", 0.2)


async def answer_to(served: Service, text: bytes) -> bytes:
    """What comes until the server closes the connection, or what it answers to text that it takes for whole."""
    url = served.client.base_url
    reader, writer = await asyncio.open_connection(url.host, url.port)
    try:
        writer.write(text)
        async with asyncio.timeout(5):
            return await reader.read()
    finally:
        writer.close()


@pytest.mark.parametrize("text", [b"", b"GET /healthz HTT", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"])
async def test_headers_that_do_not_arrive_end_the_connection(served: Service, text: bytes) -> None:
    assert await answer_to(served, text) == b""


async def test_a_body_that_does_not_arrive_is_a_408(served: Service) -> None:
    head = (
        b"POST /api/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{"
    )

    answer = await answer_to(served, head)

    assert answer.startswith(b"HTTP/1.1 408 ")
    assert await served.queue.jobs() == []


async def test_the_next_request_of_a_connection_has_its_own_time(served: Service) -> None:
    whole = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    url = served.client.base_url
    reader, writer = await asyncio.open_connection(url.host, url.port)

    writer.write(whole)
    first = await reader.readuntil(b"}")
    writer.write(whole[:10])
    async with asyncio.timeout(4):  # before an idle connection is closed
        rest = await reader.read()
    writer.close()

    assert first.startswith(b"HTTP/1.1 200 ")
    assert rest == b""


@pytest.mark.parametrize("path", ["/api/jobs", "/healthz", "/nowhere"])
async def test_a_body_that_nobody_reads_holds_a_connection_no_longer_than_one_that_is_read(
    served: Service, path: str
) -> None:
    url = served.client.base_url
    reader, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(b"GET %b HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n" % path.encode())
    head = await reader.readuntil(b"\r\n\r\n")

    async def trickle() -> None:
        while True:  # each byte begins the time of an idle connection anew
            writer.write(b"x")
            await asyncio.sleep(0.02)

    trickling = asyncio.create_task(trickle())
    try:
        async with asyncio.timeout(30):
            with suppress(ConnectionResetError):  # the last bytes came when the connection was closed already
                await reader.read()
    finally:
        trickling.cancel()
        writer.close()
    assert head.startswith(b"HTTP/1.1 ")


async def test_a_request_behind_a_body_that_nobody_reads_is_answered(served: Service) -> None:
    url = served.client.base_url
    reader, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nab")
    first = await reader.readuntil(b"}")
    writer.write(b"cdGET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    async with asyncio.timeout(30):
        second = await reader.read()
    writer.close()

    assert [answer.split()[1] for answer in (first, second)] == [b"200", b"200"]
