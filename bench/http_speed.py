"""What HTTP adds: lists of jobs against the Python API on the same store, single submits against a bare route.

    python -m bench.http_speed [--quick]

Servers run in processes of their own, on uvicorn and a socket of this machine. Both sides of a ratio take turns in
rounds of one run, and the ratio is the median of the rounds', so that a busy machine changes little. The client is the
same on both sides of the second ratio: a connection that writes a request as fixed bytes and waits for the answer.
qo is called with an API key, as in production.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

import qo
from qo.service.access.caller import Role
from qo.service.access.keys import Keys
from qo.service.connection import Connection
from qo.values import Submission
from tests.servers.redis import Server  # the tests have the code that starts a server
from tests.service.load.server_process import free_port

LIST = 100
DATA = {"scene": 7, "name": "a picture"}
MANY = [{"task": "noop", "data": DATA}] * LIST
ONE = MANY[0]
AT_LEAST, AT_MOST = 0.5, 2.0
STARTING_SECONDS = 60


# --- the servers, in processes of their own -------------------------------------------------------------------------


async def serve_bare(url: str, port: int) -> None:
    """One Starlette route that decodes the same body and writes the same row."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    async with await qo.connect(url, settings={}) as queue:

        async def submit(request: Request) -> Response:
            body = msgspec.json.decode(await request.body())
            row = Submission(id=queue.system.new_id(), task=body["task"], payload=msgspec.json.encode(body["data"]))
            await queue.store.submit([row])
            return Response(msgspec.json.encode({"id": row.id}), 201, media_type="application/json")

        app = Starlette(routes=[Route("/api/jobs", submit, methods=["POST"])])
        config = uvicorn.Config(app, port=port, log_config=None, access_log=False, lifespan="off", http=Connection)
        await uvicorn.Server(config).serve()


async def serve_qo(url: str, port: int) -> None:
    from qo.service.serving import serve

    async with await qo.connect(url, settings={"server": {"port": port}}) as queue:
        await serve(queue)


SERVERS = {"bare": serve_bare, "qo": serve_qo}


@contextmanager
def served(kind: str, url: str) -> Iterator[int]:
    """The port of a server that answers. It ends with the block."""
    port = free_port()
    process = subprocess.Popen([sys.executable, "-m", "bench.http_speed", kind, url, str(port)])
    try:
        deadline = time.monotonic() + STARTING_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"the server {kind} did not start") from None
                time.sleep(0.02)
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(STARTING_SECONDS)


# --- the measures ---------------------------------------------------------------------------------------------------


class Caller:
    """One connection that is kept open."""

    def __init__(self, port: int) -> None:
        self._connection = socket.create_connection(("127.0.0.1", port))
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answers = self._connection.makefile("rb")

    def post(self, request: bytes) -> None:
        self._connection.sendall(request)
        status = self._answers.readline()
        assert status.split()[1] in (b"200", b"201"), status
        length = 0
        while (line := self._answers.readline().strip().lower()) != b"":
            if line.startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        assert len(self._answers.read(length)) == length

    def close(self) -> None:
        self._answers.close()
        self._connection.close()


async def request_of(body: object, url: str) -> bytes:
    """With a new key, which has to be made before the server starts: without keys it would look for the first one at
    every request."""
    async with await qo.connect(url, settings={}) as queue:
        key = await Keys(queue.store, system=queue.system).create(Role.ADMIN)
    text = msgspec.json.encode(body)
    head = ("POST /api/jobs HTTP/1.1", "Host: localhost", "Content-Type: application/json")
    more = (f"Authorization: Bearer {key.text}", f"Content-Length: {len(text)}")
    return "\r\n".join([*head, *more, "", ""]).encode() + text


def jobs_a_second(step: Callable[[], None], *, times: int, jobs: int) -> float:
    began = time.perf_counter()
    for _ in range(times):
        step()
    return times * jobs / (time.perf_counter() - began)


async def jobs_a_second_in_python(queue: qo.Queue, lists: int) -> float:
    began = time.perf_counter()
    for _ in range(lists):
        await queue.submit_many([qo.New("noop", DATA)] * LIST)
    return lists * LIST / (time.perf_counter() - began)


async def report_lists(url: str, *, lists: int, rounds: int) -> float:
    """Of the jobs a second of the Python API, how many come through HTTP."""
    ratios, http, python = [], [], []
    request = await request_of(MANY, url)
    with served("qo", url) as port:
        caller = Caller(port)
        async with await qo.connect(url, settings={}) as queue:
            for number in range(rounds + 1):
                over_http = jobs_a_second(lambda: caller.post(request), times=lists, jobs=LIST)
                in_python = await jobs_a_second_in_python(queue, lists)
                if number:  # the first round fills caches
                    http.append(over_http)
                    python.append(in_python)
                    ratios.append(over_http / in_python)
        caller.close()
    ratio = statistics.median(ratios)
    in_python, over_http = statistics.median(python), statistics.median(http)
    print(f"  lists of {LIST}: {over_http:.0f} jobs/s over HTTP, {in_python:.0f} in Python")
    print(f"  ratio {ratio:.2f} (at least {AT_LEAST})")
    return ratio


async def report_singles(url: str, bare_url: str, *, jobs: int, rounds: int) -> float:
    """How many times as long a submit takes as one by a bare route."""
    ratios, qo_ms, bare_ms = [], [], []
    request = await request_of(ONE, url)
    with served("qo", url) as port, served("bare", bare_url) as bare_port:
        ours, bare = Caller(port), Caller(bare_port)
        for number in range(rounds + 1):
            by_qo = 1000 / jobs_a_second(lambda: ours.post(request), times=jobs, jobs=1)
            by_bare = 1000 / jobs_a_second(lambda: bare.post(request), times=jobs, jobs=1)
            if number:
                qo_ms.append(by_qo)
                bare_ms.append(by_bare)
                ratios.append(by_qo / by_bare)
        ours.close()
        bare.close()
    ratio = statistics.median(ratios)
    print(f"  single submits: {statistics.median(qo_ms):.2f} ms, by a bare route {statistics.median(bare_ms):.2f} ms")
    print(f"  ratio {ratio:.2f} (at most {AT_MOST})")
    return ratio


async def report(*, lists: int = 50, jobs: int = 500, rounds: int = 7) -> None:
    with Server("valkey") as valkey, tempfile.TemporaryDirectory(prefix="qo-http-") as folder:
        for store, url, bare_url in (
            ("an SQLite file", f"sqlite:///{folder}/qo.db", f"sqlite:///{folder}/bare.db"),
            ("Valkey", valkey.url, valkey.url),
        ):
            print(f"\nsubmits over HTTP, on {store}, median of {rounds} rounds")
            await report_lists(url, lists=lists, rounds=rounds)
            await report_singles(url, bare_url, jobs=jobs, rounds=rounds)


def main(arguments: list[str]) -> None:
    if arguments and arguments[0] in SERVERS:
        kind, url, port = arguments
        logging.getLogger("qo").setLevel(logging.ERROR)  # it says that it stops
        asyncio.run(SERVERS[kind](url, int(port)))
    elif "--quick" in arguments:
        asyncio.run(report(lists=5, jobs=50, rounds=3))
    else:
        asyncio.run(report())


if __name__ == "__main__":
    main(sys.argv[1:])
