"""A namespace in a cluster: found, moved, and kept through the loss of nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.servers.redis import Cluster
from tests.store.redis.namespaces_in_a_cluster import SOON_PROMOTED, Moving, namespace_on, replica_of
from tests.store.redis.redis_calls import ADD_ONCE, KINDS, added, connected, eventually, said_of_the_server


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
                await asyncio.to_thread(moving.move_all)
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
                moving.move_all()
            cluster.nodes[0].kill()
            cluster.nodes[1].kill()

            assert await client.run(ADD_ONCE, ["after"]) == 2


async def test_after_a_failover_the_promoted_replica_is_found_with_everything_it_had(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Cluster("valkey", config=SOON_PROMOTED) as cluster:
        async with replica_of(cluster, 1) as replica, connected(cluster.url, namespace=namespace_on(1)) as client:
            await client.run(ADD_ONCE, ["before"])
            assert await client.command("WAIT", 1, 20_000) == 1
            cluster.nodes[1].kill()

            assert await client.run(ADD_ONCE, ["after"]) == 2
            assert client.address == f"127.0.0.1:{replica.port}"
    assert len(said_of_the_server(caplog)) == 2
