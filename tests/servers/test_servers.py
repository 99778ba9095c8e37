"""The servers that tests start: they are real and new enough, they keep what they promise, and none is left behind."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import redis
from redis import Redis
from redis.cluster import RedisCluster

from tests.processes import environment
from tests.servers import local
from tests.servers import redis as servers
from tests.servers.local import PATIENCE_SECS, POLL_SECS
from tests.servers.redis import Cluster, Kind, Server, server_binary, shared_server

KINDS = ["valkey", "redis"]
each_kind = pytest.mark.parametrize("kind", KINDS)

STARTED_ELSEWHERE = """
import sys
from tests.servers.redis import Server
for kind in sys.argv[1:]:
    server = Server(kind)
    server.start()
    print(server.pid, server.folder, flush=True)
sys.stdin.read()
"""


def is_running(pid: int) -> bool:
    """A zombie is not: it only waits for a parent to take note of its end."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@each_kind
def test_the_shared_server_is_of_its_kind_and_new_enough(kind: Kind) -> None:
    with Redis.from_url(shared_server(kind).url) as client:
        about = client.info("server")

    assert about["process_id"] == shared_server(kind).pid
    assert ("valkey_version" in about) == (kind == "valkey")
    assert int(about.get("valkey_version", about["redis_version"]).split(".")[0]) >= 7


@each_kind
def test_port_and_socket_lead_to_the_same_server(kind: Kind) -> None:
    server = shared_server(kind)
    with Redis.from_url(server.url) as by_port, Redis.from_url(server.socket_url) as by_socket:
        by_port.set("test-servers", "seen")

        assert by_socket.getdel("test-servers") == b"seen"


@each_kind
def test_with_aof_the_data_stays_through_restart_and_kill(kind: Kind) -> None:
    with Server(kind, aof="always") as server, Redis.from_url(server.url) as client:
        first, port = server.pid, server.port
        client.set("key", "kept")
        server.restart()
        second = server.pid
        after_restart = client.get("key")
        server.kill()
        with pytest.raises(redis.ConnectionError):
            client.ping()
        server.start()

        assert (after_restart, client.get("key")) == (b"kept", b"kept")
        assert server.port == port
        assert [is_running(pid) for pid in (first, second, server.pid)] == [False, False, True]


@each_kind
def test_without_aof_nothing_stays(kind: Kind) -> None:
    with Server(kind) as server, Redis.from_url(server.url) as client:
        client.set("key", "lost")
        server.restart()

        assert client.dbsize() == 0


@each_kind
def test_a_closed_server_leaves_neither_process_nor_folder(kind: Kind) -> None:
    with Server(kind) as server:
        pids = [process.pid for process in server.processes]
        running = [is_running(pid) for pid in pids]

    assert running == [True, True]
    assert [is_running(pid) for pid in pids] == [False, False]
    assert not server.folder.exists()


@pytest.mark.parametrize("killed", [True, False])
def test_servers_end_with_the_test_process(killed: bool) -> None:
    command = [sys.executable, "-c", STARTED_ELSEWHERE, *KINDS]
    with subprocess.Popen(command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline().decode().split() for _ in KINDS]
        pids, folders = [int(pid) for pid, _ in lines], [Path(folder) for _, folder in lines]
        running = [is_running(pid) for pid in pids]
        if killed:
            process.kill()

    deadline = time.monotonic() + PATIENCE_SECS
    while any(map(is_running, pids)) or any(folder.exists() for folder in folders):
        assert time.monotonic() < deadline, "a server outlived the process that started it"
        time.sleep(POLL_SECS)
    assert running == [True, True]


@each_kind
def test_a_taken_port_is_given_up_for_another(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        choose = local.new_port
        ports = iter([taken.getsockname()[1]])
        monkeypatch.setattr(servers, "new_port", lambda: next(ports, None) or choose())
        with Server(kind) as server, Redis.from_url(server.url) as client:
            assert client.ping()
            assert server.port != taken.getsockname()[1]


def test_no_port_is_given_to_two_tests(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A client of an ended server may still look for it there."""
    monkeypatch.setattr(local, "GIVEN_OUT", tmp_path)
    monkeypatch.setattr(local, "PORTS", range(12_000, 12_010))

    assert sorted(local.new_port() for _ in range(10)) == list(range(12_000, 12_010))
    os.utime(tmp_path / "12003", (0, 0))
    assert local.new_port() == 12_003


@each_kind
def test_a_server_that_does_not_start_says_why(kind: Kind) -> None:
    server = Server(kind, config=["no-such-setting yes"])
    with pytest.raises(RuntimeError, match="no-such-setting"):
        server.start()
    server.close()


@each_kind
def test_the_urls_carry_the_login(kind: Kind) -> None:
    config = ["user default off", "user ann on >s3cret ~* &* +@all"]
    with Server(kind, config=config, login="ann:s3cret") as server:
        for url in (server.url, server.socket_url):
            with Redis.from_url(url) as client:
                assert client.acl_whoami() == "ann"


def test_with_tls_the_port_is_encrypted_and_only_its_certificate_trusted() -> None:
    with Server("redis", tls=True) as server:
        with Redis.from_url(server.url) as client:
            assert client.ping()
        with Redis.from_url(server.url.partition("?")[0]) as distrusting, pytest.raises(redis.ConnectionError):
            distrusting.ping()


@each_kind
def test_a_cluster_spreads_its_keys_over_its_nodes(kind: Kind) -> None:
    with Cluster(kind) as cluster:
        with RedisCluster.from_url(cluster.url) as client:
            client.set("{one}key", 1)
            client.set("{two}key", 2)
            client.disconnect_connection_pools()  # which closing the client leaves to the garbage collector
        found = []
        for node in cluster.nodes:
            with Redis.from_url(node.url) as client:
                found += [client.keys()]

    assert sorted(filter(None, found)) == [[b"{one}key"], [b"{two}key"]]


@each_kind
def test_a_named_server_that_is_missing_or_of_the_other_kind_is_refused(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    other: Kind = "redis" if kind == "valkey" else "valkey"
    for binary in (server_binary(other), Path("/no/such/server")):
        monkeypatch.setenv(f"QO_{kind.upper()}_SERVER", str(binary))
        with pytest.raises(RuntimeError, match=f"No {kind}-server of version 7 or newer runs here"):
            server_binary(kind)
