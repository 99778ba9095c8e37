"""What qo says about a server's persistence, and which servers it refuses."""

from __future__ import annotations

import pytest

from qo.errors import StoreUnavailable
from qo.store.redis.server.durability import describe, judge
from qo.store.redis.store import RedisStore
from tests.servers.redis import Cluster, Kind, Server
from tests.store.redis.redis_calls import KINDS, connected


async def described(server: Server, *, accept_eviction: bool = False) -> str:
    async with connected(server.url) as client:
        text = await describe(client, accept_eviction=accept_eviction)
        assert text.startswith(f"{server.binary.name.removesuffix('-server').capitalize()} ")
        assert f" at 127.0.0.1:{server.port}: " in text
        assert "\n" not in text
        return text.partition(": ")[2]


@pytest.mark.parametrize("kind", KINDS)
async def test_without_persistence_a_restart_loses_every_job(kind: Kind) -> None:
    with Server(kind) as server:
        assert await described(server) == "no persistence: a restart of the server loses every job"


@pytest.mark.parametrize("kind", KINDS)
async def test_an_append_only_file_is_as_good_as_it_is_synced(kind: Kind) -> None:
    with Server(kind, aof="everysec") as server:
        assert await described(server) == (
            "append-only file, synced every second: a crash of the server process may cost what was acknowledged "
            "during the last sync, a power loss the last second or two"
        )
        async with connected(server.url) as client:
            await client.command("CONFIG", "SET", "appendfsync", "always")
            assert (await described(server)).endswith("survives a crash of the server process and a power loss")
            await client.command("CONFIG", "SET", "no-appendfsync-on-rewrite", "yes")
            assert "but not while it is rewritten" in await described(server)
            await client.command("CONFIG", "SET", "appendfsync", "no")
            assert (await described(server)).endswith("a power loss may cost the last half minute")


async def test_snapshots_lose_what_came_after_the_last_one() -> None:
    with Server("valkey", config=["save 3600 1 300 100"]) as server:
        assert await described(server) == (
            "snapshots only (save 3600 1 300 100): "
            "a crash of the server loses every job acknowledged since the last one"
        )


async def test_a_server_that_does_not_tell_its_settings_is_taken_at_what_is_known() -> None:
    rule, login = "user managed on >word ~* &* +@all -config", "managed:word"
    with Server("valkey", config=[rule], login=login) as server:
        assert "whether there are snapshots is not told" in await described(server)
    with Server("valkey", aof="everysec", config=[rule], login=login) as server:
        assert "how often it is synced is not told" in await described(server)


async def test_a_server_that_tells_nothing_is_taken_and_one_that_refuses_the_keys_is_not() -> None:
    rules = ["user silent on >word ~qo:* &* +@all -info", "user elsewhere on >word ~other:* &* +@all"]
    with Server("valkey", config=rules) as server:
        async with connected(f"redis://silent:word@127.0.0.1:{server.port}") as client:
            assert "what an acknowledged job survives there is not told (NOPERM" in await describe(
                client, accept_eviction=False
            )
        async with connected(f"redis://elsewhere:word@127.0.0.1:{server.port}", namespace="team") as client:
            with pytest.raises(StoreUnavailable, match=r"use the keys qo:\{team\}:\* \(NOPERM"):
                await describe(client, accept_eviction=False)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_server_that_may_throw_jobs_away_is_refused_unless_that_is_accepted(kind: Kind) -> None:
    with Server(kind, config=["maxmemory 100mb", "maxmemory-policy allkeys-lru"]) as server:
        with pytest.raises(StoreUnavailable) as refused:
            await described(server)
        assert "(maxmemory-policy allkeys-lru, maxmemory 104857600)" in str(refused.value)
        assert "set its maxmemory-policy to noeviction" in str(refused.value)
        assert str(refused.value).endswith(
            "store.accept_eviction = true in .qo.toml (or QO_STORE__ACCEPT_EVICTION=true)."
        )
        assert (await described(server, accept_eviction=True)).endswith("(allkeys-lru), which was accepted")


@pytest.mark.parametrize("config", [["maxmemory 100mb"], ["maxmemory-policy allkeys-lru"]])
async def test_a_memory_limit_or_a_policy_alone_throws_nothing_away(config: list[str]) -> None:
    with Server("valkey", config=config) as server:
        assert await described(server) == "no persistence: a restart of the server loses every job"


async def test_a_store_opens_on_a_full_server_but_begins_no_namespace_there() -> None:
    with Server("valkey") as server:
        await (await RedisStore.open(server.url, namespace="known")).close()
        async with connected(server.url) as client:
            await client.command("CONFIG", "SET", "maxmemory", 1)

        await (await RedisStore.open(server.url, namespace="known")).close()
        with pytest.raises(StoreUnavailable, match=r"takes no new namespace \(OOM"):
            await RedisStore.open(server.url, namespace="new")


async def test_replicas_are_told_of_and_a_replica_is_refused() -> None:
    with (
        Server("valkey", config=["repl-diskless-sync-delay 0"]) as primary,
        Server("valkey", config=[f"replicaof 127.0.0.1 {primary.port}"]) as replica,
    ):
        with pytest.raises(StoreUnavailable, match=r"is a replica, which takes no writes; name its primary"):
            await described(replica)
        async with connected(primary.url) as client:
            assert await client.command("WAIT", 1, 20_000) == 1
            told = await described(primary)
            await client.command("CONFIG", "SET", "min-replicas-to-write", 1)
        assert told.endswith("goes on taking what is lost (set min-replicas-to-write to 1)")
        assert (await described(primary)).endswith("; a failover may cost what had not reached the replica")


async def test_in_a_cluster_the_node_that_has_the_namespace_is_described() -> None:
    with Cluster("valkey") as cluster:
        for node in cluster.nodes[:2]:
            async with connected(node.url) as client:
                await client.command("CONFIG", "SET", "appendonly", "yes")
        # 'foo' is in slot 12182, which is the last node's.
        async with connected(cluster.url, namespace="foo") as client:
            text = await describe(client, accept_eviction=False)
        assert f"at 127.0.0.1:{cluster.nodes[2].port}: no persistence" in text


def test_an_old_server_is_refused() -> None:
    with pytest.raises(StoreUnavailable, match=r"^Redis 6\.2\.14 at host:1 is too old; qo needs Redis 7 or newer, or "):
        judge("host:1", {"redis_version": "6.2.14", "role": "master"}, {}, accept_eviction=True)


def test_a_file_that_cannot_be_written_promises_nothing() -> None:
    info = {"redis_version": "7.4.0", "role": "master", "aof_enabled": "1", "aof_last_write_status": "err"}

    assert "its last write failed" in judge("host:1", info, {"appendfsync": "always"}, accept_eviction=False)
