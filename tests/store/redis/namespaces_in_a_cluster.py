"""Namespaces in a cluster: chosen by their node, moved as an operator moves them, and replicated."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from redis import Redis
from redis.crc import key_slot
from redis_calls import eventually, new_namespace
from servers import SLOTS, Cluster, Server

from qo.store.redis.client import prefix_of

SOON_PROMOTED = ("cluster-node-timeout 1000", "repl-diskless-sync-delay 0")
"""how nodes are configured whose replicas take over within seconds"""


def node_of(namespace: str) -> int:
    """Which of the cluster's three nodes its slot belongs to at first."""
    return int(key_slot(prefix_of(namespace).encode()) * 3 // SLOTS)


def namespace_on(node: int) -> str:
    while True:
        namespace = new_namespace()
        if node_of(namespace) == node:
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

    def move_all(self) -> None:
        self.begin()
        self.move_keys()
        self.end()


@asynccontextmanager
async def replica_of(cluster: Cluster, node: int) -> AsyncIterator[Server]:
    """A replica that all nodes know, for only who knows of it can vote for it."""
    lines = ["cluster-enabled yes", "cluster-announce-ip 127.0.0.1", *SOON_PROMOTED]
    primary = cluster.nodes[node]
    with (
        Server(cluster.kind, config=lines) as replica,
        Redis(port=primary.port) as leader,
        Redis(port=replica.port) as follower,
    ):
        primary_id = leader.execute_command("CLUSTER MYID").decode()
        follower.execute_command("CLUSTER MEET", "127.0.0.1", cluster.nodes[0].port)
        await eventually(lambda: primary_id in str(follower.execute_command("CLUSTER NODES")))
        follower.execute_command("CLUSTER REPLICATE", primary_id)
        for each in cluster.nodes:
            await eventually(lambda each=each: flags_of(replica, seen_by=each) == "slave")
        yield replica


def flags_of(server: Server, *, seen_by: Server) -> str | None:
    with Redis(port=seen_by.port) as node:
        known = node.execute_command("CLUSTER NODES")
    return known.get(f"127.0.0.1:{server.port}", {}).get("flags")
