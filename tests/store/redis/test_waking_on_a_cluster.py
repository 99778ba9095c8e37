"""Listening where the namespace is: led there, moved with it, and without a word to the other nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from redis import Redis
from redis.crc import key_slot

import qo
from qo.store.redis.server import waking as waking_module
from qo.store.redis.server.client import Client
from qo.store.redis.server.waking import Waking
from tests.servers.redis import SLOTS, Cluster, Server
from tests.store.redis.namespaces_in_a_cluster import SOON_PROMOTED, Moving, namespace_on, replica_of
from tests.store.redis.redis_calls import ADD_ONCE, KINDS, connected, eventually, said_of_the_server

EXPECTED_SECONDS = 20
"""a net for what never happens"""


@pytest.fixture(scope="module", params=KINDS)
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(request.param) as running:
        yield running


def listeners_at(server: Server, channel: str) -> int:
    with Redis(port=server.port) as node:
        ((_, listeners),) = node.pubsub_shardnumsub(channel)
        return int(listeners)


def publish_at(server: Server, channel: str, message: str) -> None:
    with Redis(port=server.port) as node:
        node.execute_command("SPUBLISH", channel, message)


def channel_of(client: Client) -> str:
    return f"{client.prefix}channel"


@pytest.mark.parametrize("node", [0, 1, 2])
async def test_who_listens_is_led_to_the_node_that_has_the_namespace(
    cluster: Cluster, node: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with connected(cluster.url, namespace=namespace_on(node)) as client:
        waking, channel = Waking(client), channel_of(client)
        async with waking.listen(channel) as listening:
            publish_at(cluster.nodes[node], channel, "word")

            assert await listening.message(EXPECTED_SECONDS) == b"word"
        await waking.close()
    assert said_of_the_server(caplog) == []


async def test_who_listens_goes_with_a_namespace_that_is_moved_and_looks_for_what_was_missed(cluster: Cluster) -> None:
    namespace = namespace_on(1)
    async with connected(cluster.url, namespace=namespace) as client:
        await client.run(ADD_ONCE, ["before"])
        waking, channel = Waking(client), channel_of(client)
        async with waking.listen(channel) as listening:
            with Moving(cluster, namespace, source=1, target=2) as moving:
                await asyncio.to_thread(moving.move_all)
            assert await listening.message(EXPECTED_SECONDS) == b""
            publish_at(cluster.nodes[2], channel, "word")

            assert await listening.message(EXPECTED_SECONDS) == b"word"
            assert listeners_at(cluster.nodes[1], channel) == 0
        await waking.close()


async def test_who_listens_goes_to_the_node_at_which_calls_have_found_the_namespace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waking_module, "TICK_SECONDS", 0.05)
    with Cluster("valkey", config=SOON_PROMOTED) as cluster:
        async with replica_of(cluster, 1) as replica, connected(cluster.url, namespace=namespace_on(1)) as client:
            await client.run(ADD_ONCE, ["before"])
            assert await client.command("WAIT", 1, 20_000) == 1
            waking, channel = Waking(client), channel_of(client)
            async with waking.listen(channel) as listening:
                with Redis(port=replica.port) as follower:
                    follower.execute_command("CLUSTER FAILOVER")
                    await eventually(lambda: follower.role()[0] == b"master")
                # The old primary lives on as a replica, and so does the connection to it.
                assert await client.run(ADD_ONCE, ["after"]) == 2

                await eventually(lambda: listeners_at(replica, channel) == 1)
                assert await listening.message(EXPECTED_SECONDS) == b""
            await waking.close()


async def test_who_listens_waits_for_a_cluster_that_is_down(caplog: pytest.LogCaptureFixture) -> None:
    namespace = namespace_on(1)
    no_listening_then = ["cluster-allow-pubsubshard-when-down no"]
    with Cluster("valkey", config=no_listening_then) as cluster, Redis(port=cluster.nodes[1].port) as node:
        slot = SLOTS // 2  # one of its own, but not that of the namespace
        slot += slot == key_slot(namespace.encode())
        async with connected(cluster.nodes[1].url, namespace=namespace) as client:
            waking, channel = Waking(client), channel_of(client)
            node.execute_command("CLUSTER DELSLOTS", slot)
            async with asyncio.TaskGroup() as together:

                async def listen() -> bytes | None:
                    async with waking.listen(channel) as listening:
                        publish_at(cluster.nodes[1], channel, "word")
                        return await listening.message(EXPECTED_SECONDS)

                heard = together.create_task(listen())
                await eventually(lambda: bool(said_of_the_server(caplog)))
                node.execute_command("CLUSTER ADDSLOTS", slot)
            await waking.close()

    assert heard.result() == b"word"
    down, back = said_of_the_server(caplog)
    assert "CLUSTERDOWN" in down
    assert "is back" in back


async def test_what_is_told_in_one_namespace_is_not_sent_to_the_other_nodes(cluster: Cluster) -> None:
    before = [broadcasts(node) for node in cluster.nodes]
    for node in range(3):
        async with await qo.connect(cluster.url, namespace=namespace_on(node)) as queue:
            worker = qo.Worker(queue, "worker-1")
            worker.task("build")(lambda: "done")
            run = asyncio.create_task(worker.run())
            job = await queue.submit("build")
            assert (await queue.wait(job.id, timeout=EXPECTED_SECONDS)).result == "done"
            worker.stop_now()
            await run

    assert [broadcasts(node) for node in cluster.nodes] == before


def broadcasts(server: Server) -> int:
    """How many messages of channels it has got from the other nodes."""
    with Redis(port=server.port) as node:
        info = node.execute_command("CLUSTER INFO")
    return sum(int(value) for name, value in info.items() if "publish" in name and name.endswith("received"))
