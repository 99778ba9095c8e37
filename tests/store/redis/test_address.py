"""Urls of Redis servers, logging in, and namespaces of any characters."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest

from qo.errors import SettingsError, StoreUnavailable
from qo.store.redis.server.address import parse_server_url, prefix_of
from qo.store.redis.server.connection import ServerRefused
from tests.servers.redis import Kind, Server, shared_server
from tests.store.redis.redis_calls import ADD_ONCE, KINDS, added, connected, new_namespace, said_of_the_server


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


async def test_a_user_who_may_not_call_functions_is_told_so() -> None:
    rule = "user reader on >word ~qo:* &* +@all -fcall"
    with Server("valkey", config=[rule], login="reader:word") as server:
        async with connected(server.url) as client:
            with pytest.raises(StoreUnavailable, match=r"does not let the user of store\.url do what qo does \(NOPERM"):
                await client.run(ADD_ONCE, ["not allowed"])
            with pytest.raises(ServerRefused, match="NOPERM"):
                await client.command("FCALL", ADD_ONCE.name, 0)


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
        with pytest.raises(StoreUnavailable, match=r"nothing was done\. Check .* that its port is one for TLS\.$"):
            await client.command("PING")


async def test_a_port_for_tls_without_it_is_reported() -> None:
    with Server("redis", tls=True) as server:
        async with connected(f"redis://127.0.0.1:{server.port}", patience_seconds=0.5) as client:
            with pytest.raises(StoreUnavailable, match=r"wants TLS there; write rediss:// in store\.url"):
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
        parse_server_url(url)
    assert "word" not in str(refused.value).replace("user and password percent-encoded", "").replace(
        "[user:password@]", ""
    )


def test_an_address_never_shows_its_password() -> None:
    address = parse_server_url("redis://user:secret@host:1/2")

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

    assert len({prefix_of(namespace) for namespace in odd}) == len(odd)


def test_an_empty_namespace_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"store\.namespace is empty"):
        prefix_of("")


def test_without_the_driver_the_sentence_says_what_to_install() -> None:
    program = "import sys; sys.modules['hiredis'] = None; import qo.store.redis.server.client"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=Path(__file__).parent)

    assert "install it with: pip install 'qo-queue[redis]'." in ended.stderr.splitlines()[-1]
