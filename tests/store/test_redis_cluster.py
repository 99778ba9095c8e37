"""A namespace in a cluster: found, moved, and kept through the loss of nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from redis import Redis
from redis.crc import key_slot
from redis_calls import ADD_ONCE, KINDS, added, connected, eventually, new_namespace, said_of_the_server
from servers import SLOTS, Cluster, Server


def namespace_on(node: int) -> str:
    """One whose slot belongs to that of the cluster's three nodes."""
    while True:
        namespace = new_namespace()
        if key_slot(namespace.encode()) * 3 // SLOTS == node:
            return namespace


class Moving:
    """The slot of a namespace, on its way from one node to another, as an operator moves it."""

    def __init__(self, cluster: Cluster, namespace: str, *, source: int, target: int) -> None:
        self.slot = key_slot(namespace.encode())
        self.source, self.target = (Redis(port=cluster.nodes[node].port) for node in (source, target))
        self.target_port = cluster.nodes[target].port
        self.target_id = self.target.execute_command("CLUSTER MYID")

    def begin(self) -> None:
        source_id = self.source.execute_command("CLUSTER MYID")
        self.target.execute_command("CLUSTER SETSLOT", self.slot, "IMPORTING", source_id)
        self.source.execute_command("CLUSTER SETSLOT", self.slot, "MIGRATING", self.target_id)

    def move_keys(self) -> None:
        keys = self.source.execute_command("CLUSTER GETKEYSINSLOT", self.slot, 1000)
        self.source.execute_command("MIGRATE", "127.0.0.1", self.target_port, "", 0, 5000, "KEYS", *keys)

    def end(self) -> None:
        for node in (self.target, self.source):
            node.execute_command("CLUSTER SETSLOT", self.slot, "NODE", self.target_id)

    def keys_at_target(self) -> int:
        return int(self.target.execute_command("CLUSTER COUNTKEYSINSLOT", self.slot))

    def __enter__(self) -> Moving:
        return self

    def __exit__(self, *_: object) -> None:
        self.source.close()
        self.target.close()


@pytest.fixture(scope="module", params=KINDS)
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(request.param) as running:
        yield running


async def test_a_namespace_is_found_on_whatever_node_it_lives(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    for node in range(3):
        async with connected(cluster.url, namespace=namespace_on(node)) as client:
            await asyncio.gather(*(client.run(ADD_ONCE, [number]) for number in range(20)))

            assert client.address == f"127.0.0.1:{cluster.nodes[node].port}"
            assert await added(client) == [str(number) for number in range(20)]
    assert said_of_the_server(caplog) == []


async def test_a_namespace_that_is_being_moved_is_left_alone_until_it_is_whole(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    namespace = namespace_on(1)
    with Moving(cluster, namespace, source=1, target=2) as moving:
        async with connected(cluster.url, namespace=namespace) as client:
            await client.run(ADD_ONCE, ["before"])
            moving.begin()
            calls = [asyncio.ensure_future(client.run(ADD_ONCE, [number])) for number in range(10)]
            await eventually(lambda: bool(said_of_the_server(caplog)))
            assert "ASK" in said_of_the_server(caplog)[0]
            assert moving.keys_at_target() == 0  # a script sent there would have begun a second namespace
            moving.move_keys()
            moving.end()
            await asyncio.gather(*calls)

            assert client.address == f"127.0.0.1:{moving.target_port}"
            assert await added(client) == ["before", *(str(number) for number in range(10))]
    assert len(said_of_the_server(caplog)) == 2


async def test_moving_a_namespace_under_load_loses_nothing_and_doubles_nothing(cluster: Cluster) -> None:
    namespace = namespace_on(0)
    acknowledged: list[str] = []
    stopped = False

    async def submit_on(name: str) -> None:
        while not stopped:
            job = f"{name}-{len(acknowledged)}"
            await client.run(ADD_ONCE, [job])
            acknowledged.append(job)

    async def submitted_more() -> None:
        before = len(acknowledged)
        await eventually(lambda: len(acknowledged) > before + 100)

    async with connected(cluster.url, namespace=namespace) as client:
        submitting = [asyncio.ensure_future(submit_on(str(number))) for number in range(10)]
        for source, target in ((0, 1), (1, 2), (2, 0)):
            with Moving(cluster, namespace, source=source, target=target) as moving:
                await submitted_more()
                for step in (moving.begin, moving.move_keys, moving.end):
                    await asyncio.to_thread(step)
                await submitted_more()
        stopped = True
        await asyncio.gather(*submitting)

        assert sorted(await added(client)) == sorted(acknowledged)


async def test_a_namespace_is_found_when_its_old_node_and_that_of_the_url_are_gone() -> None:
    namespace = namespace_on(1)
    # The last node must not notice that it is alone: it would rightly answer nobody.
    with Cluster("valkey", config=["cluster-node-timeout 60000"]) as cluster:
        async with connected(cluster.url, namespace=namespace) as client:
            await client.run(ADD_ONCE, ["before"])
            with Moving(cluster, namespace, source=1, target=2) as moving:
                for step in (moving.begin, moving.move_keys, moving.end):
                    step()
            cluster.nodes[0].kill()
            cluster.nodes[1].kill()

            assert await client.run(ADD_ONCE, ["after"]) == 2


async def test_after_a_failover_the_promoted_replica_is_found_with_everything_it_had(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lines = ["cluster-node-timeout 1000", "repl-diskless-sync-delay 0"]
    with (
        Cluster("valkey", config=lines) as cluster,
        Server("valkey", config=["cluster-enabled yes", "cluster-announce-ip 127.0.0.1", *lines]) as replica,
        Redis(port=cluster.nodes[1].port) as master,
        Redis(port=replica.port) as follower,
    ):
        master_id = master.execute_command("CLUSTER MYID").decode()
        follower.execute_command("CLUSTER MEET", "127.0.0.1", cluster.nodes[0].port)
        await eventually(lambda: master_id in str(follower.execute_command("CLUSTER NODES")))
        follower.execute_command("CLUSTER REPLICATE", master_id)
        for node in cluster.nodes:
            # Only who knows of a replica can vote for it.
            await eventually(lambda node=node: flags_of(replica, seen_by=node) == "slave")

        async with connected(cluster.url, namespace=namespace_on(1)) as client:
            await client.run(ADD_ONCE, ["before"])
            assert await client.command("WAIT", 1, 20_000) == 1
            cluster.nodes[1].kill()

            assert await client.run(ADD_ONCE, ["after"]) == 2
            assert client.address == f"127.0.0.1:{replica.port}"
    assert len(said_of_the_server(caplog)) == 2


def flags_of(server: Server, *, seen_by: Server) -> str | None:
    with Redis(port=seen_by.port) as node:
        known = node.execute_command("CLUSTER NODES")
    return known.get(f"127.0.0.1:{server.port}", {}).get("flags")
