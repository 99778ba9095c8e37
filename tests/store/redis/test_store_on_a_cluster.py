"""The whole store on a cluster of three: many namespaces, each on one node, used through whatever node."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from redis import Redis

import qo
from qo.store.redis.server.address import prefix_of
from qo.store.redis.store import RedisStore
from tests.servers.redis import Cluster
from tests.store.redis.namespaces_in_a_cluster import namespace_on, node_of
from tests.store.redis.redis_calls import KINDS, eventually

NAMESPACES = 30
AT_MOST_SECONDS = 30
"""a net for what never happens"""
WELL_BELOW_THE_NET_SECONDS = 2.5
"""a worker that was not woken looks again after five"""


@pytest.fixture(scope="module", params=KINDS)
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(request.param) as running:
        yield running


def keys_of(cluster: Cluster, namespace: str) -> list[int]:
    """How many keys of it each node has."""
    return [len(client_keys(node.port, namespace)) for node in cluster.nodes]


def client_keys(port: int, namespace: str) -> list[bytes]:
    with Redis(port=port) as client:
        found: list[bytes] = client.keys(f"{prefix_of(namespace)}*")
        return found


@asynccontextmanager
async def working(worker: qo.Worker) -> AsyncIterator[None]:
    run = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        worker.stop_now()
        await asyncio.wait_for(run, AT_MOST_SECONDS)


async def test_many_namespaces_spread_over_the_nodes_and_each_is_whole_on_one(cluster: Cluster) -> None:
    namespaces = [f"team-{number}" for number in range(NAMESPACES)]
    for number, namespace in enumerate(namespaces):
        url = cluster.nodes[number % 3].url
        async with await qo.connect(url, namespace=namespace) as queue:
            await queue.set_limit("ports", 2)
            jobs = [await queue.submit("build", {"n": n}, user="ada", groups=["ports"]) for n in range(4)]
            worker = qo.Worker(queue, "worker-1")
            worker.task("build")(lambda: namespace)  # noqa: B023 - it has run before the next one is chosen
            async with working(worker):
                results = [(await queue.wait(job.id, timeout=AT_MOST_SECONDS)).result for job in jobs]
            listed = [job.id for job in await queue.jobs(limit=100)]

        assert results == [namespace] * 4
        assert sorted(listed) == sorted(job.id for job in jobs)  # nothing of the others'

    for namespace in namespaces:
        keys = keys_of(cluster, namespace)
        assert [node for node, number in enumerate(keys) if number] == [node_of(namespace)]
    assert min(Counter(map(node_of, namespaces)).values()) > 5
    assert {node_of(namespace) for namespace in namespaces} == {0, 1, 2}


@pytest.mark.parametrize("via", [1, 2])
async def test_a_jobs_way_works_through_a_node_that_does_not_hold_the_namespace(cluster: Cluster, via: int) -> None:
    namespace = namespace_on(0)
    url = cluster.nodes[via].url
    async with await qo.connect(url, namespace=namespace) as queue:
        assert isinstance(queue.store, RedisStore)
        job = await queue.submit("build", {"n": 1})
        seen: list[str] = []

        async def follow() -> None:
            async for event in queue.watch(job.id):
                seen.append(event.kind)

        following = asyncio.create_task(follow())
        await eventually(lambda: bool(seen))
        worker = qo.Worker(queue, "worker-1")
        worker.task("build")(lambda: "done")
        async with working(worker):
            ended = await queue.wait(job.id, timeout=AT_MOST_SECONDS)
            await asyncio.wait_for(following, AT_MOST_SECONDS)

        assert queue.store.client.address == f"127.0.0.1:{cluster.nodes[0].port}"
        assert (ended.state, ended.result, ended.attempts) == (qo.State.SUCCEEDED, "done", 1)
        assert (seen[0], seen[-1]) == (qo.State.QUEUED, qo.State.SUCCEEDED)


async def test_an_idle_worker_is_woken_by_a_submit_through_another_node(cluster: Cluster) -> None:
    namespace = namespace_on(0)
    async with (
        await qo.connect(cluster.nodes[1].url, namespace=namespace) as theirs,
        await qo.connect(cluster.nodes[2].url, namespace=namespace) as ours,
    ):
        worker = qo.Worker(theirs, "worker-1")
        worker.task("build")(lambda: "done")

        async def is_idle() -> bool:
            with Redis(port=cluster.nodes[0].port) as client:
                return bool(client.hexists(f"{prefix_of(namespace)}idle_workers", "worker-1"))

        async with working(worker):
            for _ in range(3):
                await eventually(is_idle)
                job = await ours.submit("build")
                async with asyncio.timeout(WELL_BELOW_THE_NET_SECONDS):
                    ended = await ours.wait(job.id, timeout=AT_MOST_SECONDS)
                assert (ended.result, ended.worker) == ("done", "worker-1")
