"""`qo worker --metrics-port`: the worker's own numbers, over a real socket."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

import qo
from qo.queue.queue import Queue
from qo.service.metrics import CONTENT_TYPE
from qo.service.metrics import port as metrics_port
from qo.service.metrics.exposition import worker_text
from qo.service.metrics.port import PortUnusable, metrics_served
from tests.cli.conftest import Call, app, call, start, submit
from tests.processes import Process
from tests.service.metrics.scraping import Numbers, named, numbers_in
from tests.worker.running import running

__all__ = ["app", "call", "start", "submit"]

ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/metrics")


def served_at(process: Process) -> str:
    found = ADDRESS.search(process.until("the numbers of this worker are at"))
    assert found is not None
    return found.group()


def get(address: str) -> Numbers:
    response = httpx.get(address)
    assert (response.status_code, response.headers["content-type"]) == (200, CONTENT_TYPE)
    return numbers_in(response.content)


def test_a_worker_serves_its_numbers_until_it_ends(
    call: Callable[..., Call], start: Callable[..., Process], submit: Callable[..., str], app: Path
) -> None:
    process = start("worker", "app:worker", "--concurrency", "3", "--metrics-port", "0")
    address = served_at(process)
    for task in ("echo", "echo", "broken"):
        call("submit", task, "--wait")
    submit("slow")
    process.until("slow has begun")

    numbers = get(address)

    assert (numbers["qo_worker_jobs_running",], numbers["qo_worker_places_free",]) == (1, 2)
    ended = named(numbers, "qo_worker_jobs_ended_total")
    assert {state: count for (state,), count in ended.items() if count} == {"succeeded": 2, "failed": 1}
    process.signal(signal.SIGINT)
    process.until("SIGINT: stopping")
    assert get(address)["qo_worker_places_free",] == 0
    process.signal(signal.SIGINT)
    assert process.ends() == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(address)


def test_a_busy_port_is_one_sentence_and_exit_1(call: Callable[..., Call], app: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = call("worker", "app:worker", "--metrics-port", str(port))

    assert done.code == 1
    assert f"Metrics cannot be served at 127.0.0.1 port {port} (Address already in use)" in done.err
    assert done.err.count("\n") == 1


async def test_the_counts_go_on_over_several_runs_and_a_lost_lease_is_counted(queue: Queue) -> None:
    worker = qo.Worker(queue, "w1")
    begun, interrupted = asyncio.Event(), asyncio.Event()

    @worker.task("echo")
    async def echo() -> None:
        pass

    @worker.task("slow")
    async def slow() -> None:
        begun.set()
        try:
            await asyncio.sleep(600)
        finally:
            interrupted.set()

    await queue.set_limit("slow", 1)
    for _ in range(2):
        await queue.submit("echo")
        await worker.run_until_idle()
    await queue.submit("slow", max_attempts=1)
    async with running(worker):
        await begun.wait()
        assert (worker.numbers.running, worker.numbers.free) == (1, worker.concurrency - 1)
        await queue.release_slot("slow", 0, force=True)
        await interrupted.wait()

    assert (worker.numbers.running, worker.numbers.free) == (0, 0)
    assert {state: count for state, count in worker.numbers.ended.items() if count} == {"succeeded": 2, "lost": 1}


@pytest.fixture
def text() -> Callable[[], bytes]:
    return lambda: b"qo_worker_jobs_running 0.0\n"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/metrics?x=1", 200), ("GET", "/", 404), ("GET", "/metrics/more", 404), ("POST", "/metrics", 405)],
)
async def test_other_paths_and_methods_are_refused(
    text: Callable[[], bytes], method: str, path: str, status: int
) -> None:
    async with metrics_served(text, host="127.0.0.1", port=0) as address, httpx.AsyncClient() as client:
        response = await client.request(method, address.removesuffix("/metrics") + path)

    assert response.status_code == status


async def test_a_client_that_sends_nothing_does_not_hold_the_server_up(text: Callable[[], bytes]) -> None:
    async with metrics_served(text, host="127.0.0.1", port=0) as address:
        port = int(address.rsplit(":", 1)[1].removesuffix("/metrics"))
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        async with httpx.AsyncClient() as client:
            assert (await client.get(address)).status_code == 200

    assert await asyncio.wait_for(reader.read(), 5) == b""  # the end of the server has closed it
    writer.close()


async def test_a_client_that_is_too_slow_or_sends_too_much_is_closed(
    text: Callable[[], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_port, "REQUEST_WITHIN_SECONDS", 0.05)
    async with metrics_served(text, host="127.0.0.1", port=0) as address:
        port = int(address.rsplit(":", 1)[1].removesuffix("/metrics"))
        for sent in (b"", b"GET /metrics", b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 100_000 + b"\r\n\r\n"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            try:
                assert await asyncio.wait_for(reader.read(), 5) == b""
            except ConnectionResetError:
                pass  # closed while some of what was sent had not been read
            writer.close()


@pytest.mark.parametrize("host", ["no-such-host.invalid", "192.0.2.1"])
async def test_an_address_that_is_not_of_this_machine_is_one_sentence(text: Callable[[], bytes], host: str) -> None:
    with pytest.raises(PortUnusable, match=f"cannot be served at {host} port 0"):
        async with metrics_served(text, host=host, port=0):
            pass


async def test_the_text_of_a_worker_that_does_not_run_has_every_name(queue: Queue) -> None:
    numbers = numbers_in(worker_text(qo.Worker(queue).numbers))

    assert {name for name, *_ in numbers} == {
        "qo_worker_jobs_running",
        "qo_worker_places_free",
        "qo_worker_jobs_ended_total",
    }
