"""Waking by messages, on real servers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import pytest

from qo.errors import StoreUnavailable
from qo.store.redis.server import waking as waking_module
from qo.store.redis.server.client import Client
from qo.store.redis.server.waking import Waking
from tests.servers.redis import Kind, Server
from tests.store.redis.redis_calls import KINDS, connected, eventually, frozen, on_shared

NOT_EXPECTED_SECONDS = 0.02
"""how long to look for what must not come; looking longer would find no more, because all is in order of arrival"""
EXPECTED_SECONDS = 20


@asynccontextmanager
async def waking_on(client: Client) -> AsyncIterator[Waking]:
    waking = Waking(client)
    try:
        yield waking
    finally:
        await waking.close()


async def publish(client: Client, channel: str, message: str = "") -> int:
    receivers: int = await client.command("SPUBLISH", channel, message)
    return receivers


async def subscribers(client: Client, channel: str) -> int:
    return int((await client.command("PUBSUB", "SHARDNUMSUB", channel))[1])


@pytest.mark.parametrize("kind", KINDS)
async def test_a_message_published_after_entering_wakes_and_is_heard_once(kind: Kind) -> None:
    async with on_shared(kind) as client, waking_on(client) as waking:
        channel = f"{client.prefix}wake:é"
        async with waking.listen(channel) as listening:
            assert await publish(client, channel) == 1
            assert await listening.message(EXPECTED_SECONDS) is not None
            assert await listening.message(NOT_EXPECTED_SECONDS) is None


async def test_a_message_is_returned_in_the_next_turn_and_once_whether_it_was_waited_for_or_had_come_before() -> None:
    async with on_shared("valkey") as client, waking_on(client) as waking:
        channel = f"{client.prefix}mine"
        async with waking.listen(channel) as listening:
            waiting = asyncio.create_task(listening.message(EXPECTED_SECONDS))
            await asyncio.sleep(0)
            listening.tell(b"waited for")
            listening.tell(b"came before")
            await asyncio.sleep(0)
            assert waiting.done(), "a job waits for every turn of the event loop that is spent here"
            assert waiting.result() == b"waited for"

            assert await listening.message(EXPECTED_SECONDS) == b"came before"
            assert await listening.message(NOT_EXPECTED_SECONDS) is None


async def test_a_message_from_before_entering_or_on_another_channel_wakes_nobody() -> None:
    async with on_shared("valkey") as client, waking_on(client) as waking:
        mine, theirs = f"{client.prefix}mine", f"{client.prefix}theirs"
        async with waking.listen(theirs) as marker:
            async with waking.listen(mine):
                pass
            await publish(client, mine)
            await publish(client, theirs)
            assert await marker.message(EXPECTED_SECONDS) is not None  # so what came before it has been dealt with too
            async with waking.listen(mine) as listening:
                await publish(client, theirs)
                assert await marker.message(EXPECTED_SECONDS) is not None
                assert await listening.message(NOT_EXPECTED_SECONDS) is None


async def test_messages_come_in_order_and_who_is_slower_is_told_that_some_were_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waking_module, "MESSAGES_AT_MOST", 10)
    async with on_shared("valkey") as client, waking_on(client) as waking:
        busy, marker_channel = f"{client.prefix}busy", f"{client.prefix}marker"
        async with waking.listen(busy) as listening, waking.listen(marker_channel) as marker:
            for number in range(3):
                await publish(client, busy, f"{number}")
            assert [await listening.message(EXPECTED_SECONDS) for _ in range(3)] == [b"0", b"1", b"2"]

            for number in range(12):
                await publish(client, busy, f"{number}")
            await publish(client, marker_channel)
            assert await marker.message(EXPECTED_SECONDS) is not None

            assert [await listening.message(EXPECTED_SECONDS) for _ in range(2)] == [b"", b"11"]
            assert await listening.message(NOT_EXPECTED_SECONDS) is None


async def test_every_listener_of_a_channel_is_woken_over_one_connection_a_loop() -> None:
    async def listen(number: int) -> bool:
        async with waking.listen(channel) as one, waking.listen(channel) as other:
            entered.wait()
            heard = [await one.message(EXPECTED_SECONDS), await other.message(EXPECTED_SECONDS)]
            return None not in heard

    entered = threading.Barrier(4)
    async with on_shared("valkey") as client, waking_on(client) as waking:
        channel = f"{client.prefix}events"
        with ThreadPoolExecutor(3) as threads:
            listeners = [asyncio.wrap_future(threads.submit(asyncio.run, listen(number))) for number in range(3)]
            await asyncio.to_thread(entered.wait)
            assert await publish(client, channel) == 3  # receivers are connections
            assert await asyncio.gather(*listeners) == [True, True, True]


async def test_a_cancelled_listener_leaves_the_others_listening() -> None:
    async with on_shared("valkey") as client, waking_on(client) as waking:
        channel = f"{client.prefix}events"
        async with waking.listen(channel) as staying, waking.listen(channel) as going:
            waiting = asyncio.ensure_future(going.message(EXPECTED_SECONDS))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
            await publish(client, channel)

            assert await staying.message(EXPECTED_SECONDS) is not None
            assert await going.message(EXPECTED_SECONDS) is not None


async def test_a_channel_stays_subscribed_for_a_while_and_is_then_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waking_module, "TICK_SECONDS", 0.02)
    async with on_shared("valkey") as client, waking_on(client) as waking:
        channel, kept = f"{client.prefix}wake:worker", f"{client.prefix}events"
        async with waking.listen(kept) as listening:
            async with waking.listen(channel):
                pass
            assert await subscribers(client, channel) == 1
            monkeypatch.setattr(waking_module, "LINGER_SECONDS", 0)

            async def nobody_listens() -> bool:
                return await subscribers(client, channel) == 0

            await eventually(nobody_listens)
            async with waking.listen(channel) as again:
                await publish(client, channel)
                assert await again.message(EXPECTED_SECONDS) is not None
            await publish(client, kept)
            assert await listening.message(EXPECTED_SECONDS) is not None


async def test_after_a_restart_every_listener_is_woken_once_and_hears_again() -> None:
    with Server("valkey") as server:
        async with (
            connected(server.url) as client,
            waking_on(client) as waking,
            waking.listen("one") as one,
            waking.listen("two") as two,
        ):
            server.restart()
            assert await one.message(EXPECTED_SECONDS) is not None
            assert await two.message(EXPECTED_SECONDS) is not None
            assert await one.message(NOT_EXPECTED_SECONDS) is None

            assert await publish(client, "one") == 1
            assert await one.message(EXPECTED_SECONDS) is not None
            assert await two.message(NOT_EXPECTED_SECONDS) is None


async def test_a_server_that_falls_silent_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waking_module, "TICK_SECONDS", 0.05)
    monkeypatch.setattr(waking_module, "READ_SECONDS", 0.1)
    with Server("valkey") as server:
        async with (
            connected(server.url) as client,
            waking_on(client) as waking,
            waking.listen("channel") as listening,
        ):
            with frozen(server):
                await eventually(lambda: waking.ear_of_this_loop().trouble is not None)
            assert await listening.message(EXPECTED_SECONDS) is not None


async def test_who_cannot_listen_is_told_when_patience_is_over() -> None:
    with Server("valkey") as server:
        url = server.url
    async with connected(url, patience_seconds=0.2) as client, waking_on(client) as waking:
        with pytest.raises(StoreUnavailable, match=r"cannot be listened to \(Connection refused\)"):
            async with waking.listen("channel"):
                pass


async def test_a_user_who_may_not_listen_is_told_what_to_allow() -> None:
    rule = "user deaf on >word ~* resetchannels +@all"
    with Server("valkey", config=[rule], login="deaf:word") as server:
        async with connected(server.url, namespace="team") as client, waking_on(client) as waking:
            with pytest.raises(StoreUnavailable, match=r"NOPERM.*allow the channels qo:\{team\}:\* in its ACL"):
                async with waking.listen(f"{client.prefix}events"):
                    pass


async def test_closing_takes_nothing_more_and_ends_the_connection() -> None:
    async with on_shared("valkey") as client:
        waking = Waking(client)
        channel = f"{client.prefix}channel"
        async with waking.listen(channel):
            assert await publish(client, channel) == 1
        await waking.close()
        await waking.close()

        async def nobody_listens() -> bool:
            return await publish(client, channel) == 0

        await eventually(nobody_listens)
        with pytest.raises(StoreUnavailable, match="is closed; connect again"):
            async with waking.listen("channel"):
                pass
