"""The way to a Redis server, on real ones: batches, repeats, other loops, logins."""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import pytest
from redis import Redis
from redis.crc import key_slot
from redis_calls import ADD_ONCE, ECHO, KINDS, added, connected, eventually, freeze, frozen, new_namespace, on_shared
from servers import SLOTS, Cluster, Kind, Server, shared_server

from qo.errors import SettingsError, StoreUnavailable
from qo.store.redis import client as client_module
from qo.store.redis.client import Client, Connection, ServerRefused, parse_address
from qo.store.redis.scripts import Script


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Everything that is written to a socket, as it is."""
    seen: list[bytes] = []
    send = Connection.send

    def recorded(connection: Connection, packed: bytes) -> None:
        seen.append(packed)
        send(connection, packed)

    monkeypatch.setattr(Connection, "send", recorded)
    return seen


def said_of_the_server(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "qo.store"]


# --- calls ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
async def test_a_script_is_given_the_prefix_and_its_arguments_and_answers_in_bytes(kind: Kind) -> None:
    async with on_shared(kind) as client:
        assert await client.run(ECHO, ["text", b"\x00\xff", 2**53]) == [
            client.prefix.encode(), b"text", b"\x00\xff", b"9007199254740992",
        ]  # fmt: skip
        assert await client.run(Script.of("values", "#!lua\nreturn {1, 'a', {}, false}"), []) == [1, b"a", [], None]


async def test_an_error_of_a_script_is_its_own_callers_alone() -> None:
    refusing = Script.of("refusing", "#!lua\nreturn redis.error_reply('STALE nothing was changed')")
    async with on_shared("valkey") as client:
        before, refused, after = await asyncio.gather(
            client.run(ECHO, ["before"]), client.run(refusing, []), client.run(ECHO, ["after"]), return_exceptions=True
        )

    assert (before[1], after[1]) == (b"before", b"after")
    assert isinstance(refused, ServerRefused)
    assert (refused.code, str(refused)) == ("STALE", "STALE nothing was changed")


async def test_what_cannot_be_sent_is_refused_before_anything_is(writes: list[bytes]) -> None:
    async with on_shared("valkey") as client:
        await client.command("PING")
        writes.clear()
        with pytest.raises(UnicodeEncodeError):
            await client.run(ECHO, ["\ud800"])
        assert writes == []


async def test_a_lone_call_is_sent_at_once(writes: list[bytes]) -> None:
    async with on_shared("valkey") as client:
        await client.command("PING")
        writes.clear()
        calling = asyncio.ensure_future(client.run(ECHO, ["alone"]))
        await asyncio.sleep(0)

        assert len(writes) == 1
        await calling


async def test_calls_made_while_others_are_in_flight_go_together(writes: list[bytes]) -> None:
    async with on_shared("valkey") as client:
        await client.run(ECHO, ["load"])
        writes.clear()
        answers = await asyncio.gather(*(client.run(ECHO, [number]) for number in range(200)))

    assert [int(answer[1]) for answer in answers] == list(range(200))
    assert len(writes) == client_module.BATCHES_IN_FLIGHT + 1


async def test_full_buffers_on_both_sides_do_not_hold_each_other_up() -> None:
    large = b"x" * 300_000
    async with on_shared("valkey") as client:
        answers = await asyncio.gather(*(client.run(ECHO, [number, large]) for number in range(100)))

    assert all(answer[1:] == [str(number).encode(), large] for number, answer in enumerate(answers))


async def test_a_cancelled_caller_disturbs_nobody_and_what_was_not_sent_is_never_done() -> None:
    with Server("valkey") as server:
        async with connected(server.url) as client:
            await client.run(ADD_ONCE, ["load"])
            with frozen(server):
                calls = [asyncio.ensure_future(client.run(ADD_ONCE, [number])) for number in range(20)]
                await asyncio.sleep(0)  # the first are in flight now, the others gather
                calls[0].cancel()
                calls[10].cancel()
                await asyncio.gather(calls[0], calls[10], return_exceptions=True)
            answers = await asyncio.gather(*calls, return_exceptions=True)

            assert [number for number, answer in enumerate(answers) if isinstance(answer, BaseException)] == [0, 10]
            assert await added(client) == ["load", *(str(number) for number in range(20) if number != 10)]
            assert [answer for answer in answers if isinstance(answer, int)] == list(range(3, 21))


# --- scripts that the server does not have ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
async def test_a_flushed_script_is_brought_once_however_many_calls_are_in_flight(kind: Kind) -> None:
    with Server(kind) as server:
        async with connected(server.url) as client:
            await client.run(ADD_ONCE, ["load"])
            await client.command("CONFIG", "RESETSTAT")
            with frozen(server):
                lone = asyncio.ensure_future(client.command("PING"))
                flushing = asyncio.ensure_future(client.command("SCRIPT", "FLUSH"))
                calls = [asyncio.ensure_future(client.run(ADD_ONCE, [number])) for number in range(50)]
                await asyncio.sleep(0)
            await asyncio.gather(lone, flushing, *calls)

            assert await added(client) == ["load", *map(str, range(50))]
            statistics = (await client.command("INFO", "commandstats")).decode()
            assert "cmdstat_eval:calls=1," in statistics


async def test_scripts_flushed_while_calls_go_on_cost_no_call() -> None:
    with Server("valkey") as server:
        async with connected(server.url) as client, connected(server.url) as operator:
            calling = asyncio.gather(*(client.run(ADD_ONCE, [number]) for number in range(2000)))
            while not calling.done():
                await operator.command("SCRIPT", "FLUSH")
            await calling

            assert sorted(await added(client), key=int) == [str(number) for number in range(2000)]


async def test_a_script_that_does_not_compile_says_so() -> None:
    broken = Script.of("broken", "#!lua\nreturn )")
    async with on_shared("valkey") as client:
        with pytest.raises(ServerRefused, match="compiling"):
            await client.run(broken, [])


# --- a server that goes away ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
async def test_calls_in_flight_when_the_server_is_killed_are_sent_again_in_their_order(kind: Kind) -> None:
    with Server(kind, aof="always") as server:
        async with connected(server.url) as client:
            await client.run(ADD_ONCE, ["before"])
            freeze(server)
            calls = [asyncio.ensure_future(client.run(ADD_ONCE, [number])) for number in range(100)]
            await asyncio.sleep(0)  # now the first are in flight, and the others gather
            server.kill()
            server.start()
            await asyncio.gather(*calls)

            assert await added(client) == ["before", *map(str, range(100))]


async def test_restarts_under_load_lose_nothing_and_double_nothing() -> None:
    with Server("valkey", aof="always") as server:
        async with connected(server.url) as client:
            acknowledged: list[str] = []
            stopped = False

            async def submit_on(name: str) -> None:
                number = 0
                while not stopped:
                    await client.run(ADD_ONCE, [f"{name}-{number}"])
                    acknowledged.append(f"{name}-{number}")
                    number += 1

            submitting = [asyncio.ensure_future(submit_on(str(number))) for number in range(10)]
            for _ in range(3):
                before = len(acknowledged)
                await eventually(lambda before=before: len(acknowledged) > before + 100)
                await asyncio.to_thread(server.restart)
                before = len(acknowledged)
                await eventually(lambda before=before: len(acknowledged) > before + 100)
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)
            stopped = True
            await asyncio.gather(*submitting)

            assert sorted(await added(client)) == sorted(acknowledged)


async def test_a_connection_that_ends_while_nobody_calls_is_made_anew_without_a_word(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with on_shared("valkey") as client:
        own = await client.command("CLIENT", "ID")
        async with on_shared("valkey") as operator:
            await operator.command("CLIENT", "KILL", "ID", own)

        assert await client.command("CLIENT", "ID") != own
    assert said_of_the_server(caplog) == []


async def test_a_lost_server_is_told_once_and_its_return_once_however_many_loops_call(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Server("valkey") as server:
        async with connected(server.url) as client:

            async def call_often() -> None:
                await client.command("PING")
                all_connected.wait()
                down.wait()
                await asyncio.gather(*(client.run(ECHO, [number]) for number in range(20)))

            all_connected, down = threading.Barrier(4), threading.Event()
            with ThreadPoolExecutor(3) as threads:
                calling = [threads.submit(asyncio.run, call_often()) for _ in range(3)]
                await asyncio.to_thread(all_connected.wait)
                server.stop()
                down.set()
                await eventually(lambda: len(said_of_the_server(caplog)) == 1)
                server.start()
                await asyncio.to_thread(lambda: [done.result() for done in calling])

    lost, back = said_of_the_server(caplog)
    address = re.escape(f"127.0.0.1:{server.port}")
    assert re.fullmatch(rf"Redis at {address} cannot be used \(Connection refused\), trying again", lost)
    assert re.fullmatch(rf"Redis at {address} is back after \d+\.\d s", back)


async def test_a_server_that_stays_away_is_reported_when_patience_is_over() -> None:
    with Server("valkey") as server:
        url, port = server.url, server.port
    async with connected(url) as client:
        with pytest.raises(StoreUnavailable, match=f"Redis at 127.0.0.1:{port} cannot be used .Connection refused"):
            await client.run(ECHO, [], patience_seconds=0.3)


def test_pauses_grow_up_to_two_seconds_and_stay_there() -> None:
    pauses = [client_module.pause_seconds(attempts) for attempts in range(100_000)]

    assert 0.025 <= pauses[0] <= 0.05
    assert all(1 <= pause <= 2 for pause in pauses[10:])


async def test_something_else_that_answers_there_is_told_from_redis() -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as other:
        port = other.sockets[0].getsockname()[1]
        async with connected(f"redis://127.0.0.1:{port}") as client:
            with pytest.raises(StoreUnavailable, match=r"\(what answers there is not Redis\)"):
                await client.command("PING", patience_seconds=0.2)


async def test_a_silent_server_is_left_and_asked_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Server("valkey") as server:
        async with connected(server.url) as client:
            await client.run(ADD_ONCE, ["load"])
            monkeypatch.setattr(client_module, "READ_SECONDS", 0.2)
            monkeypatch.setattr(client_module, "CONNECT_SECONDS", 0.2)
            with frozen(server):
                calling = asyncio.ensure_future(client.run(ADD_ONCE, ["asked twice"]))
                await eventually(lambda: bool(said_of_the_server(caplog)))
            await calling

            assert await added(client) == ["load", "asked twice"]


async def test_a_slow_script_is_run_once() -> None:
    slow = Script.of("slow", "#!lua\nfor _ = 1, 5e7 do end\nreturn redis.call('INCR', KEYS[1] .. 'runs')")
    with Server("valkey") as server:
        async with connected(server.url) as client:
            slowly, quickly = await asyncio.gather(client.run(slow, []), client.run(ECHO, ["behind it"]))

            assert (slowly, quickly[1]) == (1, b"behind it")
            assert await client.command("GET", f"{client.prefix}runs") == b"1"


async def test_a_replica_is_asked_until_it_takes_writes(caplog: pytest.LogCaptureFixture) -> None:
    with Server("valkey") as server:
        async with connected(server.url) as client, connected(server.url) as operator:
            await operator.command("REPLICAOF", "127.0.0.1", 1)
            calls = [asyncio.ensure_future(client.run(ADD_ONCE, [number])) for number in range(10)]
            await eventually(lambda: bool(said_of_the_server(caplog)))
            await operator.command("REPLICAOF", "NO", "ONE")
            await asyncio.gather(*calls)

            assert await added(client) == [str(number) for number in range(10)]
    lost, back = said_of_the_server(caplog)
    assert "READONLY" in lost or "MASTERDOWN" in lost
    assert "is back" in back


async def test_a_server_that_is_loading_its_data_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    def answers() -> bool:
        try:
            socket.create_connection(("127.0.0.1", server.port)).close()
        except ConnectionRefusedError:
            return False
        return True

    slow_to_load = ["save 3600 1", "key-load-delay 1000", "loading-process-events-interval-bytes 1024"]
    namespace = new_namespace()
    with Server("valkey", config=slow_to_load) as server:
        async with connected(server.url, namespace=namespace) as client:
            await client.run(ADD_ONCE, ["before"])
            await asyncio.gather(*(client.command("SET", f"{client.prefix}{number}", "") for number in range(500)))
        server.stop()
        starting = asyncio.ensure_future(asyncio.to_thread(server.start))
        await eventually(answers)
        async with connected(server.url, namespace=namespace) as client:
            assert await client.run(ADD_ONCE, ["after"]) == 2
        await starting

    loading, back = said_of_the_server(caplog)
    assert "LOADING" in loading
    assert "is back" in back


async def test_a_server_out_of_memory_says_so_at_once_and_still_takes_what_may_go_over() -> None:
    urgent = Script.of("urgent", "#!lua flags=allow-oom\n" + ADD_ONCE.text.partition("\n")[2])
    with Server("valkey") as server:
        async with connected(server.url) as client:
            await client.command("CONFIG", "SET", "maxmemory", 1)
            with pytest.raises(StoreUnavailable, match="is out of memory, nothing was changed"):
                await client.run(ADD_ONCE, ["too much"])
            assert await client.run(urgent, ["urgent"]) == 1


# --- event loops ------------------------------------------------------------------------------------------------


async def test_two_loops_in_two_threads_call_at_once_and_each_connection_ends_with_its_loop() -> None:
    both_have_called = threading.Barrier(2)

    async def call_often(name: str) -> None:
        await client.run(ADD_ONCE, [f"{name}-first"])
        both_have_called.wait()
        await asyncio.gather(*(client.run(ADD_ONCE, [f"{name}-{number}"]) for number in range(500)))

    async def connections() -> int:
        return (await operator.command("CLIENT", "LIST")).decode().count("lib-name=qo")

    with Server("valkey") as server:
        async with connected(server.url) as client, connected(server.url) as operator:
            await client.command("PING")
            with ThreadPoolExecutor(2) as threads:
                await asyncio.gather(
                    *(asyncio.wrap_future(threads.submit(asyncio.run, call_often(name))) for name in "ab")
                )

            assert len(await added(client)) == 1002

            async def two_are_left() -> bool:
                return await connections() == 2

            await eventually(two_are_left)


async def test_a_closed_client_answers_what_was_asked_and_takes_nothing_more() -> None:
    client = Client(shared_server("valkey").url, namespace=new_namespace())
    calls = [asyncio.ensure_future(client.run(ECHO, [number])) for number in range(10)]
    await asyncio.sleep(0)
    await client.close()
    await client.close()

    assert [answer[1] for answer in await asyncio.gather(*calls)] == [str(number).encode() for number in range(10)]
    with pytest.raises(StoreUnavailable, match="is closed; connect again"):
        await client.command("PING")


# --- urls, logins, names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
async def test_a_unix_socket_and_a_database_are_named_in_the_url(kind: Kind) -> None:
    namespace = new_namespace()
    server = shared_server(kind)
    async with (
        connected(f"{server.socket_url}?db=3", namespace=namespace) as by_socket,
        connected(f"{server.url}/3", namespace=namespace) as by_port,
        connected(server.url, namespace=namespace) as elsewhere,
    ):
        await by_socket.run(ADD_ONCE, ["one"])

        assert await added(by_port) == ["one"]
        assert await added(elsewhere) == []


PASSWORD = "p@ss/w:rd %#?é"


async def test_an_acl_user_logs_in_with_any_password() -> None:
    rule = f"user 'the user' on '>{PASSWORD}' ~qo:* &qo:* +@all".replace("'", '"')
    with Server("valkey", config=[rule.replace('"the user"', "u%ser"), "user default off"]) as server:
        login = f"{quote('u%ser', safe='')}:{quote(PASSWORD, safe='')}"
        async with connected(f"redis://{login}@127.0.0.1:{server.port}") as client:
            assert await client.command("ACL", "WHOAMI") == b"u%ser"


async def test_a_user_who_may_not_do_what_scripts_do_is_told_so() -> None:
    rule = "user reader on >word ~qo:* &* +@all -evalsha"
    with Server("valkey", config=[rule], login="reader:word") as server:
        async with connected(server.url) as client:
            with pytest.raises(StoreUnavailable, match=r"does not let the user of store\.url do what qo does \(NOPERM"):
                await client.run(ADD_ONCE, ["not allowed"])
            with pytest.raises(ServerRefused, match="NOPERM"):
                await client.command("EVALSHA", ADD_ONCE.sha, 0)


@pytest.mark.parametrize("login", ["", ":wrong@", "nobody:wrong@"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_refused_login_is_told_at_once_without_the_password(
    kind: Kind, login: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Server(kind, config=["requirepass secret"]) as server:
        async with connected(f"redis://{login}127.0.0.1:{server.port}", patience_seconds=1000) as client:
            with pytest.raises(StoreUnavailable) as refused:
                await client.command("PING")

    assert re.fullmatch(
        rf"Redis at 127\.0\.0\.1:{server.port} refused the login of (nobody|the default user) "
        rf"\((NOAUTH|WRONGPASS) .*\); check user and password in store\.url\.",
        str(refused.value),
    )
    assert said_of_the_server(caplog) == []


async def test_tls_trusts_only_who_it_was_told_to() -> None:
    with Server("redis", tls=True) as server:
        async with connected(server.url) as trusting:
            assert await trusting.run(ADD_ONCE, ["over TLS"]) == 1
        bare = f"rediss://127.0.0.1:{server.port}"
        async with connected(bare) as distrusting:
            with pytest.raises(StoreUnavailable, match=r"no TLS that both accept .self-signed certificate"):
                await distrusting.command("PING")
        async with connected(f"{bare}?ssl_cert_reqs=none") as careless:
            assert await careless.command("PING") == b"PONG"


async def test_tls_to_a_port_without_it_is_reported() -> None:
    async with connected(shared_server("valkey").url.replace("redis://", "rediss://"), patience_seconds=0.5) as client:
        with pytest.raises(StoreUnavailable, match="cannot be used"):
            await client.command("PING")


async def test_a_database_that_is_not_there_is_told_at_once() -> None:
    async with connected(f"{shared_server('valkey').url}/99", patience_seconds=1000) as client:
        with pytest.raises(StoreUnavailable, match="has no database 99"):
            await client.command("PING")


@pytest.mark.parametrize(
    "url",
    [
        "redis://host:port",
        "redis://host/name",
        "redis://host/-1",
        "redis://:pass/word@host",
        "redis://:pass#word@host",
        "redis://user:password@host?password",
        "redis://user:password@host?ssl_ca_certs=file",
        "rediss://user:password@host?ssl_ca_certs=missing.pem",
        "rediss://user:password@host?ssl_cert_reqs=perhaps",
        "unix://",
        "http://user:password@host",
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(SettingsError, match=r"^store\.url .*\.$") as refused:
        parse_address(url)
    assert "word" not in str(refused.value).replace("user and password percent-encoded", "").replace(
        "[user:password@]", ""
    )


def test_an_address_never_shows_its_password() -> None:
    address = parse_address("redis://user:secret@host:1/2")

    assert (address.user, address.password, address.database, str(address)) == ("user", "secret", 2, "host:1")
    assert "secret" not in repr(address)


@pytest.mark.parametrize(
    "namespace", ["team a", "}{", "{x}", "a:b", "a%7Bb", "~", "é\n\x00", "*?[x]", "..", "\ud800", "x" * 1000]
)
async def test_a_namespace_of_any_characters_keeps_to_itself(namespace: str) -> None:
    async with (
        connected(shared_server("valkey").url, namespace=namespace) as client,
        connected(shared_server("valkey").url, namespace=client.prefix) as another,
    ):
        assert re.fullmatch(r"qo:\{[A-Za-z0-9_.%-]+\}:", client.prefix)
        assert another.prefix != client.prefix
        await client.run(ADD_ONCE, ["mine"])
        assert await added(client) == ["mine"]
        assert await added(another) == []
        await client.command("DEL", f"{client.prefix}known", f"{client.prefix}list")


def test_different_namespaces_have_different_prefixes() -> None:
    odd = ["a", "A", "a b", "a%20b", "a+b", "é", "e\u0301", "a/b", "a~b", "a%7Eb"]

    assert len({Client("redis://", namespace=namespace).prefix for namespace in odd}) == len(odd)


def test_an_empty_namespace_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"store\.namespace is empty"):
        Client("redis://", namespace="")


def test_without_the_driver_the_sentence_says_what_to_install() -> None:
    program = "import sys; sys.modules['hiredis'] = None; import qo.store.redis.client"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=Path(__file__).parent)

    assert "install qo[redis]" in ended.stderr.splitlines()[-1]


# --- a cluster --------------------------------------------------------------------------------------------------


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
