"""Calls to a Redis server, on real ones: batches, functions that it does not have, several event loops."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from qo.errors import StoreUnavailable
from qo.store.redis.server import pipeline
from qo.store.redis.server.client import Client
from qo.store.redis.server.connection import BUFFER_BYTES, Connection, ServerRefused
from qo.store.redis.server.functions import Function
from tests.servers.redis import Kind, Server, shared_server
from tests.store.redis.redis_calls import (
    ADD_ONCE,
    ECHO,
    KINDS,
    added,
    connected,
    eventually,
    frozen,
    new_namespace,
    on_shared,
)


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Everything that is written to a socket, as it is."""
    seen: list[bytes] = []
    send = Connection.send

    def recorded(connection: Connection, packed: bytes) -> None:
        seen.append(packed)
        send(connection, packed)

    monkeypatch.setattr(Connection, "send", recorded)
    return seen


# --- calls ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
async def test_a_function_is_given_the_prefix_and_its_arguments_and_answers_in_bytes(kind: Kind) -> None:
    async with on_shared(kind) as client:
        assert await client.run(ECHO, ["text", b"\x00\xff", 2**53]) == [
            client.prefix.encode(), b"text", b"\x00\xff", b"9007199254740992",
        ]  # fmt: skip
        assert await client.run(Function.alone("return {1, 'a', {}, false}"), []) == [1, b"a", [], None]


@pytest.mark.parametrize("size", [1, BUFFER_BYTES - 1, BUFFER_BYTES, 3 * BUFFER_BYTES + 1])
async def test_answers_of_any_size_come_whole_and_in_order(size: int) -> None:
    texts = [bytes([97 + number]) * size for number in range(6)]
    async with on_shared("valkey") as client:
        answers = await asyncio.gather(*(client.run(ECHO, [text]) for text in texts))

    assert [text for _, text in answers] == texts


async def test_an_error_of_a_function_is_its_own_callers_alone() -> None:
    refusing = Function.alone("return redis.error_reply('STALE nothing was changed')")
    async with on_shared("valkey") as client:
        answers = await asyncio.gather(
            client.run(ECHO, ["before"]), client.run(refusing, []), client.run(ECHO, ["after"]), return_exceptions=True
        )

    before, refused, after = answers
    assert isinstance(before, list)
    assert isinstance(after, list)
    assert (before[1], after[1]) == (b"before", b"after")
    assert isinstance(refused, ServerRefused)
    assert (refused.code, str(refused)) == ("STALE", "STALE nothing was changed")


async def test_what_cannot_be_sent_is_refused_before_anything_is(writes: list[bytes]) -> None:
    async with on_shared("valkey") as client:
        await client.command("PING")
        writes.clear()
        with pytest.raises(UnicodeEncodeError):
            await client.run(ECHO, ["\ud800"])
        assert writes == []


async def test_a_lone_call_is_sent_at_once(writes: list[bytes]) -> None:
    async with on_shared("valkey") as client:
        await client.command("PING")
        writes.clear()
        calling = asyncio.ensure_future(client.run(ECHO, ["alone"]))
        await asyncio.sleep(0)

        assert len(writes) == 1
        await calling


async def test_calls_made_while_others_are_in_flight_go_together(writes: list[bytes]) -> None:
    async with on_shared("valkey") as client:
        await client.run(ECHO, ["load"])
        writes.clear()
        answers = await asyncio.gather(*(client.run(ECHO, [number]) for number in range(200)))

    assert [int(answer[1]) for answer in answers] == list(range(200))
    assert len(writes) == pipeline.BATCHES_IN_FLIGHT + 1


async def test_full_buffers_on_both_sides_do_not_hold_each_other_up() -> None:
    large = b"x" * 300_000
    async with on_shared("valkey") as client:
        answers = await asyncio.gather(*(client.run(ECHO, [number, large]) for number in range(100)))

    assert all(answer[1:] == [str(number).encode(), large] for number, answer in enumerate(answers))


async def test_a_cancelled_caller_disturbs_nobody_and_what_was_not_sent_is_never_done() -> None:
    with Server("valkey") as server:
        async with connected(server.url) as client:
            await client.run(ADD_ONCE, ["load"])
            with frozen(server):
                calls = [asyncio.ensure_future(client.run(ADD_ONCE, [number])) for number in range(20)]
                await asyncio.sleep(0)  # the first are in flight now, the others gather
                calls[0].cancel()
                calls[10].cancel()
                await asyncio.gather(calls[0], calls[10], return_exceptions=True)
            answers = await asyncio.gather(*calls, return_exceptions=True)

            assert [number for number, answer in enumerate(answers) if isinstance(answer, BaseException)] == [0, 10]
            assert await added(client) == ["load", *(str(number) for number in range(20) if number != 10)]
            assert [answer for answer in answers if isinstance(answer, int)] == list(range(3, 21))


# --- functions that the server does not have ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
async def test_a_flushed_library_is_brought_once_however_many_calls_are_in_flight(kind: Kind) -> None:
    with Server(kind) as server:
        async with connected(server.url) as client:
            await client.run(ADD_ONCE, ["load"])
            await client.command("CONFIG", "RESETSTAT")
            with frozen(server):
                lone = asyncio.ensure_future(client.command("PING"))
                flushing = asyncio.ensure_future(client.command("FUNCTION", "FLUSH"))
                calls = [asyncio.ensure_future(client.run(ADD_ONCE, [number])) for number in range(50)]
                await asyncio.sleep(0)
            await asyncio.gather(lone, flushing, *calls)

            assert await added(client) == ["load", *map(str, range(50))]
            statistics = (await client.command("INFO", "commandstats")).decode()
            assert "cmdstat_function|load:calls=1," in statistics


async def test_functions_flushed_while_calls_go_on_cost_no_call() -> None:
    with Server("valkey") as server:
        async with connected(server.url) as client, connected(server.url) as operator:
            calling = asyncio.gather(*(client.run(ADD_ONCE, [number]) for number in range(2000)))
            while not calling.done():
                await operator.command("FUNCTION", "FLUSH")
            await calling

            assert sorted(await added(client), key=int) == [str(number) for number in range(2000)]


async def test_a_function_that_does_not_compile_says_so() -> None:
    broken = Function.alone("return )")
    async with on_shared("valkey") as client:
        with pytest.raises(ServerRefused, match="compiling"):
            await client.run(broken, [])


# --- event loops ------------------------------------------------------------------------------------------------


async def test_two_loops_in_two_threads_call_at_once_and_each_connection_ends_with_its_loop() -> None:
    both_have_called = threading.Barrier(2)

    async def call_often(name: str) -> None:
        await client.run(ADD_ONCE, [f"{name}-first"])
        both_have_called.wait()
        await asyncio.gather(*(client.run(ADD_ONCE, [f"{name}-{number}"]) for number in range(500)))

    async def connections() -> int:
        listed: bytes = await operator.command("CLIENT", "LIST")
        return listed.count(b"lib-name=qo")

    with Server("valkey") as server:
        async with connected(server.url) as client, connected(server.url) as operator:
            await client.command("PING")
            with ThreadPoolExecutor(2) as threads:
                await asyncio.gather(
                    *(asyncio.wrap_future(threads.submit(asyncio.run, call_often(name))) for name in "ab")
                )

            assert len(await added(client)) == 1002

            async def two_are_left() -> bool:
                return await connections() == 2

            await eventually(two_are_left)


async def test_a_closed_client_answers_what_was_asked_and_takes_nothing_more() -> None:
    client = Client(shared_server("valkey").url, namespace=new_namespace())
    calls = [asyncio.ensure_future(client.run(ECHO, [number])) for number in range(10)]
    await asyncio.sleep(0)
    await client.close()
    await client.close()

    assert [answer[1] for answer in await asyncio.gather(*calls)] == [str(number).encode() for number in range(10)]
    with pytest.raises(StoreUnavailable, match="is closed; connect again"):
        await client.command("PING")
