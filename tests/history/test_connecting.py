"""The way to PostgreSQL: roles and their rights, several hosts, TLS, and servers that are away."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path

import asyncpg
import pytest

from qo.errors import HistoryAway, SettingsError
from qo.history import database
from qo.history.database import connect
from qo.history.reading import HistoryReader
from qo.history.recorder import Recorder
from qo.history.writing import Writer
from qo.loops.system import System
from qo.queue.queue import Queue
from qo.settings import load_settings
from qo.store.redis.store import RedisStore
from tests.conformance.suite.harness import submit, submit_all
from tests.history.staging import Staged, fresh_database, fresh_name, switch_on, until
from tests.servers.certificates import make_certificate
from tests.servers.local import new_port
from tests.servers.postgres import PostgresServer, shared_postgres
from tests.servers.postgres_tls import TlsFront

# --- roles ------------------------------------------------------------------------------------------------------


async def test_the_history_of_another_namespace_is_refused(staged: Staged) -> None:
    await staged.record()
    other = Writer(staged.url, namespace="other", keep_days=90)

    with pytest.raises(SettingsError, match=r"is that of the namespace .* not of other"):
        await other.open()

    await other.close()


async def test_the_role_of_a_recorder_needs_no_right_but_to_call_record(staged: Staged) -> None:
    await staged.record()
    role = f"recorder_{staged.store.client.namespace}"
    grants = f"GRANT USAGE ON SCHEMA history TO {role}; GRANT EXECUTE ON FUNCTION history.record TO {role}"
    await staged.rows(f"CREATE ROLE {role} LOGIN")
    for grant in grants.split(";"):
        await staged.rows(grant)
    url = staged.url.replace("postgres@", f"{role}@")
    limited = Staged(staged.store, url)
    await submit(staged.store, "a")

    await limited.record()

    assert await staged.states() == {"a": "accepted"}
    for forbidden in (
        "SELECT * FROM history.job_rows",
        "DELETE FROM history.job_rows",
        "SELECT history.drop_months(0)",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await limited.rows(forbidden)
    await limited.recorder.close()
    await staged.rows(f"DROP OWNED BY {role}")
    await staged.rows(f"DROP ROLE {role}")


async def test_a_role_without_a_history_gets_a_sentence(store: RedisStore) -> None:
    async with fresh_database() as url:
        await shared_postgres().execute("CREATE ROLE stranger LOGIN")
        writer = Writer(url.replace("postgres@", "stranger@"), namespace="n", keep_days=90)

        with pytest.raises(SettingsError, match="let the owner of the database call `qo record --migrate"):
            await writer.open()

        await writer.close()
    await shared_postgres().execute("DROP ROLE stranger")


async def test_a_database_that_is_not_there_is_a_wrong_setting_and_a_server_that_is_not_there_is_away() -> None:
    with pytest.raises(SettingsError, match=r"refuses the login of history\.url"):
        await connect(shared_postgres().url("no_such_database"))
    with pytest.raises(HistoryAway, match="cannot be used for now"):
        await connect("postgresql://postgres:secret@127.0.0.1:1/x")
    with pytest.raises(SettingsError, match=r"history\.url is 'mysql://host/x'"):
        await connect("mysql://me:secret@host/x")


async def test_a_database_that_lacks_letters_is_a_wrong_setting() -> None:
    server, name = shared_postgres(), fresh_name()
    await server.execute(f"CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    writer = Writer(server.url(name), namespace="n", keep_days=90)

    with pytest.raises(SettingsError, match="has the encoding LATIN1"):
        await writer.open()

    await writer.close()
    await server.execute(f"DROP DATABASE {name}")


ONLY_WITH_PASSWORD = """
local all all trust
host all postgres 127.0.0.1/32 trust
host all all 127.0.0.1/32 scram-sha-256
"""


async def test_a_wrong_password_is_a_wrong_setting_and_is_not_shown(store: RedisStore) -> None:
    with PostgresServer(logins=ONLY_WITH_PASSWORD) as server:
        await server.execute("CREATE ROLE recorder SUPERUSER LOGIN PASSWORD 'right-one'")
        await switch_on(store)
        wrong = Staged(store, server.url(user="recorder:wrong-one"))
        right = Staged(store, server.url(user="recorder:right-one"))
        await submit(store, "a")

        with pytest.raises(SettingsError, match=r"refuses the login of history\.url") as refused:
            await wrong.recorder.run()
        await right.record()

        assert "wrong-one" not in str(refused.value)
        assert await right.states() == {"a": "accepted"}
        await right.recorder.close()


@pytest.mark.parametrize(
    "url", ["postgresql://u:se/cret@h/x", "postgresql://h/x?sslmode", "postgresql://h1,h2/x?sslmode=maybe"]
)
async def test_a_url_that_cannot_be_read_is_a_wrong_setting(url: str) -> None:
    with pytest.raises(SettingsError, match=r"history\.url cannot be read") as wrong:
        await connect(url)

    assert "cret" not in str(wrong.value)


# --- several hosts ----------------------------------------------------------------------------------------------


def with_first(url: str, *hosts: str) -> str:
    """The url with these hosts before its own."""
    return url.replace("@", f"@{','.join(hosts)},")


@contextmanager
def silent_host() -> Iterator[str]:
    """It takes connections and says nothing, as a machine that hangs."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


async def port_of(connection: asyncpg.Connection) -> int:
    found: str = await connection.fetchval("SHOW port")
    await connection.close()
    return int(found)


async def test_a_host_that_is_away_and_one_that_is_silent_are_passed_by(
    staged: Staged, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "CONNECT_SECONDS", 2)
    with silent_host() as silent:
        several = Staged(staged.store, with_first(staged.url, f"127.0.0.1:{new_port()}", silent))
        await submit(staged.store, "a")

        await several.record()

    assert await staged.states() == {"a": "accepted"}
    await several.recorder.close()


async def test_the_recorder_takes_the_host_that_can_be_written_to(staged: Staged) -> None:
    with PostgresServer({"default_transaction_read_only": "on"}) as copy:
        several = with_first(staged.url.replace(staged.url.rpartition("/")[2], "postgres"), f"127.0.0.1:{copy.port}")

        writing = await connect(several, writes=True)
        reading = await connect(several)
        asked = await connect(f"{several}?target_session_attrs=read-write")
        nowhere = f"{copy.url()}?target_session_attrs=read-write".replace("@", "@127.0.0.1:1,")

        assert await port_of(writing) == await port_of(asked) == shared_postgres().port
        assert await port_of(reading) == copy.port
        with pytest.raises(HistoryAway, match="None of the hosts match"):
            await connect(nowhere)


async def test_prefer_standby_takes_another_host_where_there_is_no_standby(staged: Staged) -> None:
    several = with_first(f"{staged.url}?target_session_attrs=prefer-standby", "127.0.0.1:1")

    connection = await connect(several)

    assert await port_of(connection) == shared_postgres().port


# --- away -------------------------------------------------------------------------------------------------------


async def test_a_recorder_asks_less_and_less_often_for_a_server_that_is_away(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []

    async def wait(recorder: Recorder, seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 8:
            recorder.stop()

    monkeypatch.setattr(Recorder, "_pause", wait)
    queue = Queue(store, load_settings(environ={}), system=System(draw=lambda: 1.0))

    await Recorder(queue, "postgresql://postgres@127.0.0.1:1/x").run()

    assert waited == [0.5, 1, 2, 4, 8, 16, 30, 30]


async def test_a_recorder_goes_on_when_its_server_has_been_started_again(store: RedisStore) -> None:
    await switch_on(store)
    with PostgresServer() as server:
        staged = Staged(store, server.url())
        recorder = staged.new_recorder()
        running = asyncio.create_task(recorder.run())
        for name in ("a", "b", "c"):
            await submit(store, name, now=None)
            await staged.until_outbox_is_empty()
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
        recorder.stop()
        await running

        assert await staged.states() == dict.fromkeys("abc", "accepted")


@pytest.mark.nightly
async def test_a_recorder_goes_on_at_the_standby_that_took_over(store: RedisStore) -> None:
    await switch_on(store)
    with PostgresServer() as primary, primary.standby() as standby:
        staged = Staged(store, with_first(standby.url(), f"127.0.0.1:{primary.port}"))
        recorder = staged.new_recorder()
        running = asyncio.create_task(recorder.run())
        await submit(store, "a", now=None)
        await staged.until_outbox_is_empty()

        async def is_copied() -> bool:
            return await Staged(store, standby.url()).count("history.job_rows") == 1

        await until(is_copied)
        primary.kill()
        await submit(store, "b", now=None)
        await standby.execute("SELECT pg_promote()")
        await staged.until_outbox_is_empty()
        recorder.stop()
        await running

        assert await Staged(store, standby.url()).states() == {"a": "accepted", "b": "accepted"}


# --- TLS --------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def behind_tls(staged: Staged, folder: Path) -> AsyncIterator[tuple[TlsFront, str]]:
    """And the url of the same database through it."""
    front = TlsFront(shared_postgres(), folder)
    async with front.running():
        yield front, staged.url.replace(f":{shared_postgres().port}/", f":{front.port}/")


@pytest.mark.parametrize("mode", ["require", "verify-ca", "verify-full"])
async def test_recorders_and_readers_speak_tls_where_the_url_asks_for_it(
    staged: Staged, tmp_path: Path, mode: str
) -> None:
    async with behind_tls(staged, tmp_path) as (front, url):
        encrypted = Staged(staged.store, f"{url}?sslmode={mode}&sslrootcert={front.certificate}")
        await submit_all(staged.store, ["a", "b"])

        await encrypted.record()
        reader = HistoryReader(encrypted.url)
        page = await reader.page(limit=1)
        await reader.close()
        await encrypted.recorder.close()

        assert await staged.states() == {"a": "accepted", "b": "accepted"}
        assert page.jobs == ()
        assert front.encrypted == 2


async def test_a_certificate_that_nobody_vouches_for_is_refused(staged: Staged, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    make_certificate(other, tmp_path / "other.key", names=["IP:127.0.0.1"])
    async with behind_tls(staged, tmp_path) as (front, url):
        with pytest.raises(HistoryAway, match="certificate verify failed"):
            await connect(f"{url}?sslmode=verify-full&sslrootcert={other}")
        named = url.replace("127.0.0.1", "localhost")
        with pytest.raises(HistoryAway, match="certificate is not valid for 'localhost'"):
            await connect(f"{named}?sslmode=verify-full&sslrootcert={front.certificate}")


async def test_nothing_is_sent_in_the_clear_where_the_url_asks_for_tls(staged: Staged, tmp_path: Path) -> None:
    with pytest.raises(HistoryAway, match="rejected SSL upgrade"):
        await connect(f"{staged.url}?sslmode=require")  # this server has no TLS
    async with behind_tls(staged, tmp_path) as (front, url):
        with pytest.raises(HistoryAway):
            await connect(f"{url}?sslmode=disable")
        assert (front.encrypted, front.turned_away) == (0, 1)


async def test_several_hosts_with_tls_of_which_the_first_is_away(staged: Staged, tmp_path: Path) -> None:
    async with behind_tls(staged, tmp_path) as (front, url):
        several = with_first(f"{url}?sslmode=verify-full&sslrootcert={front.certificate}", f"127.0.0.1:{new_port()}")

        connection = await connect(several, writes=True)

        assert front.encrypted == 1
        await connection.close()
