"""Redis servers that go away, stand still, load, or take no writes: what becomes of the calls."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from qo.errors import StoreUnavailable
from qo.job import moment
from qo.store.redis.server import nodes as nodes_module
from qo.store.redis.server import pipeline
from qo.store.redis.server.availability import pause_seconds
from qo.store.redis.server.functions import Function
from qo.store.redis.store import RedisStore
from qo.values import Accepted, Submission
from tests.servers.redis import Kind, Server
from tests.store.redis.redis_calls import (
    ADD_ONCE,
    ADDING_ONCE,
    ECHO,
    KINDS,
    added,
    connected,
    eventually,
    freeze,
    frozen,
    new_namespace,
    on_shared,
    said_of_the_server,
)


@pytest.mark.parametrize("kind", KINDS)
async def test_calls_in_flight_when_the_server_is_killed_are_sent_again_in_their_order(kind: Kind) -> None:
    with Server(kind, aof="always") as server:
        async with connected(server.url) as client:
            await client.run(ADD_ONCE, ["before"])
            freeze(server)
            calls = [asyncio.ensure_future(client.run(ADD_ONCE, [number])) for number in range(100)]
            await asyncio.sleep(0)  # now the first are in flight, and the others gather
            server.kill()
            server.start()
            await asyncio.gather(*calls)

            assert await added(client) == ["before", *map(str, range(100))]


async def test_restarts_under_load_lose_nothing_and_double_nothing() -> None:
    with Server("valkey", aof="always") as server:
        async with connected(server.url) as client:
            acknowledged: list[str] = []
            stopped = False

            async def submit_on(name: str) -> None:
                number = 0
                while not stopped:
                    await client.run(ADD_ONCE, [f"{name}-{number}"])
                    acknowledged.append(f"{name}-{number}")
                    number += 1

            async def a_hundred_more() -> None:
                before = len(acknowledged)
                await eventually(lambda: len(acknowledged) > before + 100)

            submitting = [asyncio.ensure_future(submit_on(str(number))) for number in range(10)]
            for _ in range(3):
                await a_hundred_more()
                await asyncio.to_thread(server.restart)
                await a_hundred_more()
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)
            stopped = True
            await asyncio.gather(*submitting)

            assert sorted(await added(client)) == sorted(acknowledged)


async def test_a_connection_that_ends_while_nobody_calls_is_made_anew_without_a_word(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with on_shared("valkey") as client:
        own = await client.command("CLIENT", "ID")
        async with on_shared("valkey") as operator:
            await operator.command("CLIENT", "KILL", "ID", own)

        assert await client.command("CLIENT", "ID") != own
    assert said_of_the_server(caplog) == []


async def test_a_lost_server_is_told_once_and_its_return_once_however_many_loops_call(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Server("valkey") as server:
        async with connected(server.url) as client:

            async def call_often() -> None:
                await client.command("PING")
                all_connected.wait()
                down.wait()
                await asyncio.gather(*(client.run(ECHO, [number]) for number in range(20)))

            all_connected, down = threading.Barrier(4), threading.Event()
            with ThreadPoolExecutor(3) as threads:
                calling = [threads.submit(asyncio.run, call_often()) for _ in range(3)]
                await asyncio.to_thread(all_connected.wait)
                server.stop()
                down.set()
                await eventually(lambda: len(said_of_the_server(caplog)) == 1)
                server.start()
                await asyncio.to_thread(lambda: [done.result() for done in calling])

    lost, back = said_of_the_server(caplog)
    address = re.escape(f"127.0.0.1:{server.port}")
    assert re.fullmatch(rf"Redis at {address} cannot be used \(Connection refused\), trying again", lost)
    assert re.fullmatch(rf"Redis at {address} is back after \d+\.\d s", back)


async def test_a_server_that_stays_away_is_reported_when_patience_is_over() -> None:
    with Server("valkey") as server:
        url, port = server.url, server.port
    async with connected(url) as client:
        refused = rf"Redis at 127.0.0.1:{port} cannot be used .Connection refused.; nothing was done\."
        with pytest.raises(StoreUnavailable, match=refused):
            await client.run(ECHO, [], patience_seconds=0.3)


async def test_of_a_call_that_was_sent_nobody_says_that_it_was_not_done() -> None:
    with Server("valkey") as server:
        async with connected(server.url) as client:
            await client.run(ECHO, [])
            with frozen(server), pytest.raises(StoreUnavailable, match=r"may or may not have been done\."):
                await client.run(ECHO, [], patience_seconds=0.3)


def test_pauses_grow_up_to_half_a_second_and_stay_there() -> None:
    pauses = [pause_seconds(attempts) for attempts in range(100_000)]

    assert 0.025 <= pauses[0] <= 0.05
    assert all(0.25 <= pause <= 0.5 for pause in pauses[10:])


async def test_something_else_that_answers_there_is_told_from_redis() -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as other:
        port = other.sockets[0].getsockname()[1]
        async with connected(f"redis://127.0.0.1:{port}") as client:
            with pytest.raises(StoreUnavailable, match=r"\(what answers there is not Redis\)"):
                await client.command("PING", patience_seconds=0.2)


async def test_a_silent_server_is_left_and_asked_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Server("valkey") as server:
        async with connected(server.url) as client:
            await client.run(ADD_ONCE, ["load"])
            monkeypatch.setattr(pipeline, "READ_SECONDS", 0.2)
            monkeypatch.setattr(nodes_module, "CONNECT_SECONDS", 0.2)
            with frozen(server):
                calling = asyncio.ensure_future(client.run(ADD_ONCE, ["asked twice"]))
                await eventually(lambda: bool(said_of_the_server(caplog)))
            await calling

            assert await added(client) == ["load", "asked twice"]


async def test_a_slow_function_is_run_once() -> None:
    slow = Function.alone("for _ = 1, 5e7 do end\nreturn redis.call('INCR', keys[1] .. 'runs')")
    with Server("valkey") as server:
        async with connected(server.url) as client:
            slowly, quickly = await asyncio.gather(client.run(slow, []), client.run(ECHO, ["behind it"]))

            assert (slowly, quickly[1]) == (1, b"behind it")
            assert await client.command("GET", f"{client.prefix}runs") == b"1"


async def test_a_replica_is_asked_until_it_takes_writes(caplog: pytest.LogCaptureFixture) -> None:
    with Server("valkey") as server:
        async with connected(server.url) as client, connected(server.url) as operator:
            await operator.command("REPLICAOF", "127.0.0.1", 1)
            calls = [asyncio.ensure_future(client.run(ADD_ONCE, [number])) for number in range(10)]
            await eventually(lambda: bool(said_of_the_server(caplog)))
            await operator.command("REPLICAOF", "NO", "ONE")
            await asyncio.gather(*calls)

            assert await added(client) == [str(number) for number in range(10)]
    lost, back = said_of_the_server(caplog)
    assert "READONLY" in lost or "MASTERDOWN" in lost
    assert "is back" in back


async def test_a_server_that_is_loading_its_data_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    def answers() -> bool:
        try:
            socket.create_connection(("127.0.0.1", server.port)).close()
        except ConnectionRefusedError:
            return False
        return True

    slow_to_load = ["save 3600 1", "key-load-delay 1000", "loading-process-events-interval-bytes 1024"]
    namespace = new_namespace()
    with Server("valkey", config=slow_to_load) as server:
        async with connected(server.url, namespace=namespace) as client:
            await client.run(ADD_ONCE, ["before"])
            await asyncio.gather(*(client.command("SET", f"{client.prefix}{number}", "") for number in range(500)))
        server.stop()
        starting = asyncio.ensure_future(asyncio.to_thread(server.start))
        await eventually(answers)
        async with connected(server.url, namespace=namespace) as client:
            assert await client.run(ADD_ONCE, ["after"]) == 2
        await starting

    loading, back = said_of_the_server(caplog)
    assert "LOADING" in loading
    assert "is back" in back


async def test_a_server_out_of_memory_says_so_at_once_and_still_takes_what_may_go_over() -> None:
    urgent = Function.alone(ADDING_ONCE, "allow-oom")
    with Server("valkey") as server:
        async with connected(server.url) as client:
            for function in (ADD_ONCE, urgent):
                await client.run(function, ["before"])
            await client.command("CONFIG", "SET", "maxmemory", 1)
            with pytest.raises(StoreUnavailable, match="is out of memory, nothing was changed"):
                await client.run(ADD_ONCE, ["too much"])
            assert await client.run(urgent, ["urgent"]) == 2


@pytest.mark.parametrize("kind", KINDS)
async def test_an_operations_time_is_read_when_it_runs_and_not_when_it_is_called(kind: Kind) -> None:
    with Server(kind) as server:
        store = await RedisStore.open(server.url)
        try:
            with frozen(server):
                called_at = time.time_ns() // 1_000_000
                call = asyncio.create_task(store.submit([Submission(id="a", task="build")]))
                await asyncio.sleep(0.1)  # by which the time of the call and of its run differ
                back_at = time.time_ns() // 1_000_000
            (answer,) = await call
        finally:
            await store.close()

    assert isinstance(answer, Accepted)
    assert answer.job.submitted_at >= moment(back_at) > moment(called_at)
