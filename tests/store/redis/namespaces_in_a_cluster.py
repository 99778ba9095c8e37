"""Namespaces in a cluster: chosen by their node, moved as an operator moves them, and replicated."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from redis import Redis
from redis.crc import key_slot

from qo.store.redis.server.address import prefix_of
from tests.servers.redis import SLOTS, Cluster, Server
from tests.store.redis.redis_calls import eventually, new_namespace

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
        self.target_id: bytes = ask(self.target, "CLUSTER MYID")

    def begin(self) -> None:
        source_id: bytes = ask(self.source, "CLUSTER MYID")
        ask(self.target, "CLUSTER SETSLOT", self.slot, "IMPORTING", source_id)
        ask(self.source, "CLUSTER SETSLOT", self.slot, "MIGRATING", self.target_id)

    def move_keys(self) -> None:
        keys: list[str | bytes] = ask(self.source, "CLUSTER GETKEYSINSLOT", self.slot, 1000)
        ask(self.source, "MIGRATE", "127.0.0.1", self.target_port, "", 0, 5000, "KEYS", *keys)

    def end(self) -> None:
        for node in (self.target, self.source):
            ask(node, "CLUSTER SETSLOT", self.slot, "NODE", self.target_id)

    def keys_at_target(self) -> int:
        return int(ask(self.target, "CLUSTER COUNTKEYSINSLOT", self.slot))

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
        primary_id = ask(leader, "CLUSTER MYID").decode()
        ask(follower, "CLUSTER MEET", "127.0.0.1", cluster.nodes[0].port)
        await eventually(lambda: primary_id in str(ask(follower, "CLUSTER NODES")))
        ask(follower, "CLUSTER REPLICATE", primary_id)
        for each in cluster.nodes:
            await eventually(partial(is_replica, replica, seen_by=each))
        yield replica


def is_replica(server: Server, *, seen_by: Server) -> bool:
    return flags_of(server, seen_by=seen_by) == "slave"


def flags_of(server: Server, *, seen_by: Server) -> str | None:
    with Redis(port=seen_by.port) as node:
        known: dict[str, dict[str, str]] = ask(node, "CLUSTER NODES")
    return known.get(f"127.0.0.1:{server.port}", {}).get("flags")


def ask(node: Redis, *words: str | bytes | int) -> Any:
    return node.execute_command(*words)  # type: ignore[no-untyped-call]  # redis-py does not annotate it
