"""Requests that are too large, cut into chunks, or no HTTP at all."""

from __future__ import annotations

import asyncio
import json

import pytest

from qo.service.connection import MOST_HEADER_BYTES
from qo.service.reading import MOST_BYTES
from tests.service.conftest import Service

pytestmark = pytest.mark.parametrize("served", ["memory"], indirect=True)


async def answer_to(served: Service, *parts: bytes) -> tuple[int, dict[str, str], dict[str, object]]:
    """Status, headers and problem. The request has to end its connection."""
    reader, writer = await asyncio.open_connection(served.client.base_url.host, served.client.base_url.port)
    try:
        for part in parts:
            writer.write(part)
        async with asyncio.timeout(30):
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    finally:
        writer.close()
    status, *lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return int(status.split()[1]), headers, json.loads(body)


def request(method: str, path: str, *headers: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close", *headers, "", ""]).encode()


def in_chunks(path: str, body: bytes) -> list[bytes]:
    head = request("POST", path, "Content-Type: application/json", "Transfer-Encoding: chunked")
    return [head, b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)]


@pytest.mark.parametrize(
    "headers",
    [[f"X-Large: {'a' * MOST_HEADER_BYTES}"], [f"X-Small-{number}: {'a' * 100}" for number in range(200)]],
    ids=["one", "many"],
)
async def test_more_than_16_kib_of_headers_are_refused_even_if_they_come_at_once(
    served: Service, headers: list[str]
) -> None:
    status, _, problem = await answer_to(served, request("GET", "/api/jobs", *headers))

    assert (status, problem["status"], problem["title"]) == (431, 431, "Headers too large")


async def test_headers_that_are_too_large_are_refused_in_the_same_way_if_they_come_in_pieces(served: Service) -> None:
    reader, writer = await asyncio.open_connection(served.client.base_url.host, served.client.base_url.port)
    writer.write(request("GET", "/api/jobs", f"X-Large: {'a' * MOST_HEADER_BYTES}").removesuffix(b"\r\n"))
    head, _, body = (await asyncio.wait_for(reader.read(), 30)).partition(b"\r\n\r\n")
    writer.close()

    assert head.startswith(b"HTTP/1.1 431 ")
    assert b"connection: close" in head.lower()
    assert json.loads(body)["title"] == "Headers too large"


async def test_a_path_counts_as_a_header(served: Service) -> None:
    status, _, problem = await answer_to(served, request("GET", f"/api/jobs?id={'a' * MOST_HEADER_BYTES}"))

    assert (status, problem["status"]) == (431, 431)


async def test_less_than_16_kib_of_headers_pass(served: Service) -> None:
    status, _, page = await answer_to(served, request("GET", "/api/jobs", f"X-Large: {'a' * 15_000}"))

    assert (status, page["items"]) == (200, [])


@pytest.mark.parametrize("text", [b"\x16\x03\x01\x02\x00\r\n\r\n", b"GET /api/jobs HTTP/1.1\r\n\r\n", b"hello\r\n\r\n"])
async def test_what_is_no_http_request_is_a_problem_too(served: Service, text: bytes) -> None:
    status, headers, problem = await answer_to(served, text)

    assert (status, problem["status"], problem["title"]) == (400, 400, "Request not readable")
    assert (headers["content-type"], headers["connection"]) == ("application/problem+json", "close")


async def test_a_websocket_is_answered_as_any_other_request(served: Service) -> None:
    headers_of_one = ("Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")
    asked = request("GET", "/api/jobs", *headers_of_one)

    status, headers, page = await answer_to(served, asked.replace(b"Connection: close", b"Connection: close, Upgrade"))

    assert (status, headers["content-type"], page["items"]) == (200, "application/json", [])


async def test_the_body_of_one_job_is_as_limited_in_chunks_as_at_once(served: Service) -> None:
    body = b'{"task": "build"' + b" " * MOST_BYTES + b"}"

    status, _, problem = await answer_to(served, *in_chunks("/api/jobs", body))

    assert (status, problem["title"]) == (413, "Payload too large")
    assert await served.queue.jobs() == []


async def test_the_message_of_a_cancel_may_come_in_chunks(served: Service) -> None:
    await served.queue.submit("build", id="one")

    status, _, job = await answer_to(served, *in_chunks("/api/jobs/one/cancel", b'{"message": "Sold out."}'))

    assert (status, job["message"]) == (200, "Sold out.")


async def test_a_query_that_is_not_utf_8_is_a_400(served: Service) -> None:
    answer = await served.client.get("/api/jobs?user=%ff")

    assert (answer.status_code, answer.json()["title"]) == (400, "Query not readable")


@pytest.mark.parametrize("path", ["/api/jobs?priority=200", "/api/jobs?priority=soon", "/api/jobs?user="])
async def test_a_wrong_value_of_a_filter_is_answered_with_what_is_allowed(served: Service, path: str) -> None:
    answer = await served.client.get(path)

    problem = answer.json()
    assert (answer.status_code, problem["field"] in path) == (422, True)
    assert "urgent" in problem["allowed"] or "1 to 200 characters" in problem["allowed"]


async def test_no_problem_is_kept_by_a_cache_or_taken_for_something_else(served: Service) -> None:
    for path in ("/api/jobs/nobody", "/nothing", "/api/jobs?limit=0"):
        answer = await served.client.get(path)

        assert (answer.headers["cache-control"], answer.headers["x-content-type-options"]) == ("no-store", "nosniff")


async def test_a_client_that_goes_away_with_its_body_half_sent_is_no_error(
    served: Service, caplog: pytest.LogCaptureFixture
) -> None:
    _, writer = await asyncio.open_connection(served.client.base_url.host, served.client.base_url.port)
    writer.write(request("POST", "/api/jobs", "Content-Type: application/json", "Content-Length: 100") + b"{")
    await writer.drain()
    writer.close()
    await answer_to(served, request("GET", "/api/jobs"))

    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.parametrize("path", ["/api/jobs", "/api/jobs/one/stream"])
async def test_a_body_that_breaks_behind_the_answer_ends_the_connection_and_is_no_error(
    served: Service, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    await served.queue.submit("build", id="one")
    reader, writer = await asyncio.open_connection(served.client.base_url.host, served.client.base_url.port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    writer.write(b"no number of bytes\r\n")
    async with asyncio.timeout(30):
        await reader.read()
    writer.close()

    assert head.startswith(b"HTTP/1.1 200 ")
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
