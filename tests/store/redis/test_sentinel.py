"""Servers that sentinels watch over: the primary is found, and found again when another one is promoted."""

from __future__ import annotations

import asyncio

import pytest
from redis import Redis

import qo
from qo.errors import SettingsError, StoreUnavailable
from qo.store.redis.server.client import Client
from qo.store.redis.server.waking import Waking
from tests.servers.redis import Kind
from tests.store.redis.redis_calls import ADD_ONCE, KINDS, added, connected, eventually, said_of_the_server
from tests.store.redis.watched_servers import NAME, watched

EXPECTED_SECONDS = 60
"""a net for what never happens"""


@pytest.mark.parametrize("kind", KINDS)
async def test_a_primary_that_is_killed_is_replaced_and_everything_that_was_replicated_is_there(
    kind: Kind, caplog: pytest.LogCaptureFixture
) -> None:
    async with watched(kind) as servers, connected(servers.url, patience_seconds=EXPECTED_SECONDS) as client:
        waking, channel = Waking(client), f"{client.prefix}channel"
        async with waking.listen(channel) as listening:
            await client.run(ADD_ONCE, ["before"])
            assert client.address == f"127.0.0.1:{servers.primary.port}"
            await eventually(servers.has_replicated)
            servers.primary.kill()

            assert await client.run(ADD_ONCE, ["after"]) == 2
            assert client.address == f"127.0.0.1:{servers.replica.port}"
            assert await added(client) == ["before", "after"]
            assert await listening.message(EXPECTED_SECONDS) == b""  # it listens there, too, and looks what it missed
        await waking.close()
    assert len(said_of_the_server(caplog)) == 2


async def test_jobs_and_workers_go_on_when_the_primary_is_killed() -> None:
    async with watched("valkey") as servers, await qo.connect(servers.url, settings={}) as queue:
        worker = qo.Worker(queue, "worker-1")
        runs: list[str] = []

        @worker.task
        async def build(data: None, ctx: qo.Context) -> None:
            runs.append(ctx.job.id)

        working = asyncio.create_task(worker.run())
        first = await queue.submit("build")
        await queue.wait(first.id, timeout=EXPECTED_SECONDS)
        await eventually(servers.has_replicated)
        servers.primary.kill()

        second = await queue.submit("build")
        ended = await queue.wait(second.id, timeout=EXPECTED_SECONDS)
        worker.stop_now()
        await working

    assert ended.state == qo.State.SUCCEEDED
    assert runs == [first.id, second.id]


async def test_a_primary_that_was_replaced_is_left_before_it_knows_itself() -> None:
    """What it still takes is lost."""
    async with watched("valkey") as servers, connected(servers.url, patience_seconds=EXPECTED_SECONDS) as client:
        await client.run(ADD_ONCE, ["before"])
        await eventually(servers.has_replicated)
        servers.promote_the_replica()

        async def has_moved() -> bool:
            await client.command("PING")
            return client.address == f"127.0.0.1:{servers.replica.port}"

        await eventually(has_moved)
        with Redis(port=servers.primary.port) as replaced:
            assert replaced.role()[0] == b"master"
        assert await client.run(ADD_ONCE, ["after"]) == 2


async def test_sentinels_that_are_gone_are_passed_by_while_one_is_left() -> None:
    async with watched("valkey") as servers:
        async with connected(f"redis+sentinel://{servers.hosts}/other", patience_seconds=1000) as client:
            with pytest.raises(StoreUnavailable, match=r"know no primary 'other'; check the name in store.url"):
                await client.command("PING")

        servers.sentinels[0].kill()
        servers.sentinels[1].kill()
        async with connected(servers.url) as client:
            assert await client.command("PING") == b"PONG"

        servers.sentinels[2].kill()
        async with connected(servers.url, patience_seconds=0.3) as client:
            told = rf"Redis at {NAME} cannot be used .no sentinel tells where it is, .* refused.; nothing .* right.$"
            with pytest.raises(StoreUnavailable, match=told):
                await client.command("PING")


async def test_sentinels_may_ask_for_a_password_of_their_own() -> None:
    async with watched("valkey", password="secret") as servers:
        async with connected(f"{servers.url}?sentinel_password=secret") as client:
            assert await client.command("PING") == b"PONG"
        async with connected(servers.url, patience_seconds=0.3) as client:
            with pytest.raises(StoreUnavailable, match="NOAUTH"):
                await client.command("PING")


@pytest.mark.parametrize(
    "url",
    [
        "redis+sentinel://host",
        "redis+sentinel://host/",
        "redis+sentinel:///main",
        "redis+sentinel://host,/main",
        "redis+sentinel://host:port/main",
        "redis+sentinel://:pass/word@host/main",
        "redis+sentinel://:password@host/main/0/1",
        "redis+sentinel://:password@host/main/first",
        "redis+sentinel://:password@host/main?unknown=1",
        "redis+sentinel://:password@host/main?password",
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_telling_a_password(url: str) -> None:
    with pytest.raises(SettingsError, match=r"^store\.url .*\.$") as refused:
        Client(url)
    told = str(refused.value).replace("user and password percent-encoded", "").replace("[user:password@]", "")
    assert "word" not in told


def test_a_url_names_sentinels_a_login_and_a_database() -> None:
    client = Client(
        "redis+sentinel://qo:p%40ss@10.0.0.5,sentinel-2:5000,[::1]/main/3?sentinel_user=u&sentinel_password=s"
    )
    sentinels = client.nodes.sentinels
    assert sentinels is not None
    assert str(sentinels) == "10.0.0.5:26379, sentinel-2:5000, [::1]:26379"
    assert {(each.user, each.password, each.database) for each in sentinels.addresses} == {("u", "s", 0)}
    assert (sentinels.server.user, sentinels.server.password, sentinels.server.database) == ("qo", "p@ss", 3)
    assert client.address == "main"
