"""A worker whose store is away when it starts waits for it; wrong settings and credentials end it at once."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from redis import Redis

import qo
from qo.errors import StoreAway, StoreUnavailable
from qo.queue.queue import Queue
from qo.settings import load_settings
from qo.store import away
from qo.store.redis.store import RedisStore
from tests.servers.redis import Kind, Server
from tests.worker.running import soon

KINDS: tuple[Kind, ...] = ("valkey", "redis")
PROMPTLY_SECONDS = 1.0
KEYS = 300
LOADING_MICROSECONDS_PER_KEY = 8000


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(away, "TRY_AGAIN_SECONDS", 0.01)


IMPATIENT_SECONDS = 0.5


@asynccontextmanager
async def impatient_queue(server: Server) -> AsyncIterator[Queue]:
    """One whose calls fail soon, so that a worker meets many failures in a short time."""
    store = await RedisStore.open(server.url, patience_seconds=IMPATIENT_SECONDS)
    async with Queue(store, load_settings({}, environ={})) as queue:
        yield queue


def working(queue: Queue) -> tuple[qo.Worker, asyncio.Event]:
    worker, ran = qo.Worker(queue, "worker-1"), asyncio.Event()

    @worker.task
    async def works() -> None:
        ran.set()

    return worker, ran


async def until(condition: Callable[[], bool]) -> None:
    async def look() -> None:
        while not condition():  # noqa: ASYNC110 - the log changes it
            await asyncio.sleep(0.005)

    await soon(look())


def count_calls(store: Any, name: str) -> list[str]:
    """How each of them ended, from now on: empty while it is under way and when it went well, else the error."""
    calls: list[str] = []
    operation = getattr(store, name)

    async def counted(*args: Any, **options: Any) -> Any:
        number = len(calls)
        calls.append("")
        try:
            return await operation(*args, **options)
        except StoreUnavailable as error:
            calls[number] = str(error)
            raise

    setattr(store, name, counted)
    return calls


# --- the server is away ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
async def test_a_worker_whose_server_was_killed_before_its_first_call_waits_and_then_works(
    kind: Kind, caplog: pytest.LogCaptureFixture
) -> None:
    with Server(kind, aof="always") as server:
        async with impatient_queue(server) as queue:
            worker, ran = working(queue)
            await queue.submit("works")
            registering = count_calls(queue.store, "register")
            server.kill()
            run = asyncio.create_task(worker.run())
            await until(lambda: len(registering) >= 3)
            was_waiting = not run.done()
            await asyncio.to_thread(server.start)
            await soon(ran.wait())
            worker.stop()
            await soon(run)

    assert was_waiting
    told = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert [re.sub(r" at .*|, trying.*| after .*", "", each) for each in told] == [
        "Redis",
        "the store cannot be reached",
        "Redis",
    ]
    assert "cannot be used (Connection refused), trying again" in told[0]
    assert "is back after" in told[2]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_worker_whose_server_is_killed_between_register_and_its_next_call_waits_too(kind: Kind) -> None:
    with Server(kind, aof="always") as server:
        async with impatient_queue(server) as queue:
            worker, ran = working(queue)
            await queue.submit("works")
            register, store = queue.store.register, queue.store

            async def and_then_it_is_killed(*args: Any, **options: Any) -> Any:
                answer = await register(*args, **options)
                if not asking:
                    server.kill()
                return answer

            asking = count_calls(store, "events")
            store.register = and_then_it_is_killed  # type: ignore[method-assign]
            run = asyncio.create_task(worker.run())
            await until(lambda: len(asking) >= 3)
            await asyncio.to_thread(server.start)
            await soon(ran.wait())
            worker.stop()
            await soon(run)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_server_that_is_still_loading_its_data_is_waited_for(
    kind: Kind,
) -> None:
    slowly = [f"key-load-delay {LOADING_MICROSECONDS_PER_KEY}", "loading-process-events-interval-bytes 1024"]
    with Server(kind, config=slowly) as server:
        with Redis.from_url(server.url) as filling:
            filling.mset({f"key-{number}": "x" * 1000 for number in range(KEYS)})
            filling.save()
        async with impatient_queue(server) as queue:
            worker, ran = working(queue)
            registering = count_calls(queue.store, "register")
            server.kill()
            starting = asyncio.create_task(asyncio.to_thread(server.start))
            run = asyncio.create_task(worker.run())
            await until(lambda: starting.done() or "LOADING" in "".join(registering))
            met_loading = not starting.done()
            await starting
            async with await qo.connect(server.url) as patient:
                await patient.submit("works")
            await soon(ran.wait())
            worker.stop()
            await soon(run)

    assert met_loading, "the server was not seen while it was loading"


async def test_a_store_that_is_waited_for_is_opened_when_it_is_there(caplog: pytest.LogCaptureFixture) -> None:
    with Server("valkey") as server:
        server.kill()
        opening = asyncio.create_task(RedisStore.open(server.url, patience_seconds=0.05, waits=True))
        await until(lambda: "cannot be used" in caplog.text)
        await asyncio.sleep(0.5)  # ten times as long as a call is tried
        was_waiting = not opening.done()
        await asyncio.to_thread(server.start)
        store = await soon(opening)
        await store.close()

    assert was_waiting
    assert [record.getMessage().count("trying again") for record in caplog.records] == [1, 0], caplog.text


@pytest.mark.parametrize("way", ["stop", "SIGTERM", "SIGINT", "cancel"])
async def test_a_worker_that_waits_for_its_store_ends_promptly(way: str) -> None:
    with Server("valkey") as server:
        async with await qo.connect(server.url) as queue:  # with the patience that users have
            worker, _ = working(queue)
            registering = count_calls(queue.store, "register")
            server.kill()
            run = asyncio.create_task(worker.run())
            await until(lambda: bool(registering))
            began = time.monotonic()
            if way == "stop":
                worker.stop()
            elif way == "cancel":
                run.cancel()
            else:
                os.kill(os.getpid(), getattr(signal, way))
            await asyncio.wait([run])
            took = time.monotonic() - began

    assert run.cancelled() == (way == "cancel")
    assert took < PROMPTLY_SECONDS


# --- calls that do not wait -----------------------------------------------------------------------------------


async def test_connect_and_run_until_idle_raise_when_the_store_is_away() -> None:
    with Server("valkey") as server:
        async with impatient_queue(server) as queue:
            worker, _ = working(queue)
            server.kill()

            with pytest.raises(StoreAway, match="Connection refused"):
                await soon(worker.run_until_idle())
        with pytest.raises(StoreAway, match="Connection refused"):
            await RedisStore.open(server.url, patience_seconds=0.2)


async def test_a_server_that_comes_back_with_another_password_ends_a_worker_that_waits() -> None:
    with Server("valkey") as server:
        async with impatient_queue(server) as queue:
            worker, _ = working(queue)
            registering = count_calls(queue.store, "register")
            server.kill()
            run = asyncio.create_task(worker.run())
            await until(lambda: len(registering) >= 2)
            server.config_lines.append("requirepass other")
            await asyncio.to_thread(server.start)

            with pytest.raises(StoreUnavailable, match="refused the login") as raised:
                await soon(run)

    assert not isinstance(raised.value, StoreAway)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("url", "config", "sentence"),
    [
        ("redis://:wrong@127.0.0.1:{port}", ["requirepass secret"], "refused the login"),
        ("redis://127.0.0.1:{port}", ["requirepass secret"], "refused the login"),
        ("redis://127.0.0.1:{port}/99", [], "has no database 99"),
        ("rediss://127.0.0.1:{port}", [], r"answers without TLS there; write redis://"),
    ],
)
async def test_wrong_settings_and_credentials_are_no_reason_to_wait(
    kind: Kind, url: str, config: list[str], sentence: str
) -> None:
    with Server(kind, config=config) as server, pytest.raises(StoreUnavailable, match=sentence) as raised:
        await soon(RedisStore.open(url.format(port=server.port), waits=True))

    assert not isinstance(raised.value, StoreAway)


async def test_a_port_for_tls_that_is_used_without_is_no_reason_to_wait() -> None:
    sentence = "wants TLS there; write rediss://"
    with Server("redis", tls=True) as server, pytest.raises(StoreUnavailable, match=sentence) as raised:
        await soon(RedisStore.open(f"redis://127.0.0.1:{server.port}", waits=True))

    assert not isinstance(raised.value, StoreAway)


async def test_a_server_that_hangs_up_without_a_word_is_away_and_not_one_with_tls() -> None:
    """As a proxy does whose server is not there yet."""
    hung_up = 0

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal hung_up
        hung_up += 1
        writer.transport.abort()

    listening = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        with pytest.raises(StoreAway):
            await soon(RedisStore.open(f"redis://127.0.0.1:{port}", patience_seconds=0.2))

    assert hung_up > 1


async def test_a_worker_that_stops_while_its_store_is_away_does_not_wait_long_for_last_answers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Server("valkey") as server:
        async with impatient_queue(server) as queue:
            worker, _ = working(queue)
            run = asyncio.create_task(worker.run())
            assert isinstance(queue.store, RedisStore)
            queue.store.client.patience_seconds = 60  # while the store is there, however busy the machine is
            job = await queue.submit("works")
            await soon(queue.wait(job.id))
            queue.store.client.patience_seconds = IMPATIENT_SECONDS
            server.kill()
            await until(lambda: "the store cannot be reached" in caplog.text)
            queue.store.client.patience_seconds = 60  # for what is asked from now on
            began = time.monotonic()
            worker.stop()
            await asyncio.wait([run])
            took = time.monotonic() - began

    assert took < 15
