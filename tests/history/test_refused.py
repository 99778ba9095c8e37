"""What PostgreSQL refuses: it is put aside, and the recorder goes on."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest
from redis import Redis

from qo.errors import HistoryAway
from qo.store.redis.store import RedisStore
from tests.conformance.suite.harness import NOW, claim, submit, submit_all, succeed
from tests.history.staging import Staged, fresh_database, switch_on
from tests.servers.redis import shared_server


def add_bad_entries(staged: Staged) -> None:
    """One that PostgreSQL refuses, and one that nobody can read, between good ones."""
    name = f"{staged.store.client.prefix}outbox"
    with Redis.from_url(shared_server("valkey").url) as server:
        (last, fields), *_ = server.xrevrange(name, count=1)
        number = int(last.partition(b"-")[0])
        bad = fields[b"records"].replace(b"succeeded", b"exploded!")
        assert bad != fields[b"records"]
        server.xadd(name, {"records": bad, "added": fields[b"added"]}, id=f"{number + 1}-0")
        server.xadd(name, {"records": b"\xc1", "added": fields[b"added"]}, id=f"{number + 2}-0")


async def test_an_entry_that_is_refused_is_put_aside_and_the_others_are_recorded(
    staged: Staged, caplog: pytest.LogCaptureFixture
) -> None:
    await submit_all(staged.store, ["a", "b", "c"])
    leases = await claim(staged.store, capacity=3)
    await succeed(staged.store, leases[0])
    add_bad_entries(staged)
    for lease in leases[1:]:
        await succeed(staged.store, lease, now=NOW + 1)

    await staged.record()

    assert await staged.states() == dict.fromkeys("abc", "succeeded")
    rejected = await staged.rows("SELECT reason FROM history.rejected ORDER BY id")
    assert "job_rows_state_check" in rejected[0]["reason"]
    assert "not a record" in rejected[1]["reason"]
    assert len(rejected) == 2
    assert staged.recorder.numbers.rejected == 2
    assert caplog.text.count("was put into history.rejected") == 2
    assert (await staged.status()).length == 0


# --- payloads and results ---------------------------------------------------------------------------------------


@pytest.fixture
async def with_payloads(store: RedisStore) -> AsyncIterator[Staged]:
    async with fresh_database() as url:
        await switch_on(store, payloads=True)
        made = Staged(store, url, payloads=True)
        yield made
        await made.recorder.close()


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (rb'{"bad\u0000": "a\\\\u0000 \u0000\u0000"}', rb'{"bad\ufffd": "a\\\\u0000 \ufffd\ufffd"}'),
        (b"1" + b"0" * 30, b"1" + b"0" * 30),
        (b"1e4000", b"1" + b"0" * 4000),
        (b"[" * 900 + b"]" * 900, b"[" * 900 + b"]" * 900),
    ],
    ids=["NUL", "number", "exponent", "levels"],
)
async def test_every_payload_and_result_that_a_job_may_have_is_written(
    with_payloads: Staged, given: bytes, stored: bytes
) -> None:
    staged = with_payloads
    await submit(staged.store, "a", payload=given)
    (lease,) = await claim(staged.store)
    await succeed(staged.store, lease)

    await staged.record()

    (row,) = await staged.rows("SELECT payload = $1::jsonb AS is_same, state FROM history.jobs", stored.decode())
    assert row == {"is_same": True, "state": "succeeded"}
    assert staged.recorder.numbers.rejected == 0


@pytest.mark.parametrize(
    "payload",
    [b"nonsense", b'"\\ud800"', b'"\xff"', b"1}, {", b"[" * 100_000 + b"]" * 100_000, b"1" + b"0" * 200_000],
    ids=["no JSON", "half a pair", "no UTF-8", "two", "levels", "number"],
)
async def test_a_payload_that_cannot_be_stored_is_put_aside_with_its_job_only(
    with_payloads: Staged, payload: bytes
) -> None:
    staged = with_payloads
    await submit(staged.store, "before")
    await submit(staged.store, "bad", payload=payload)
    await submit(staged.store, "after")

    await staged.record()

    assert await staged.states() == {"before": "accepted", "after": "accepted"}
    assert await staged.count("history.rejected") == 1
    assert (await staged.status()).length == 0


# --- too long ---------------------------------------------------------------------------------------------------


SLOW_ABOVE_EIGHT = """
CREATE FUNCTION be_slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF (SELECT count(*) FROM written) > 8 THEN PERFORM pg_sleep(600); END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER slow AFTER INSERT ON history.job_rows REFERENCING NEW TABLE AS written
FOR EACH STATEMENT EXECUTE FUNCTION be_slow();
"""


async def test_a_portion_that_takes_longer_than_the_server_allows_is_halved(staged: Staged) -> None:
    await staged.recorder.open()
    connection = await asyncpg.connect(staged.url)
    await connection.execute(SLOW_ABOVE_EIGHT)
    await connection.close()
    await staged.rows(f"ALTER DATABASE {staged.url.rpartition('/')[2]} SET statement_timeout = '1s'")
    await submit_all(staged.store, [f"job-{number}" for number in range(16)])

    await staged.record(slowed := staged.new_recorder())

    assert len(await staged.states()) == 16
    assert slowed.numbers.recorded == 16
    assert slowed.numbers.rejected == 0
    await slowed.close()


async def test_a_server_that_has_no_time_for_a_single_record_is_away(staged: Staged) -> None:
    await staged.recorder.open()
    connection = await asyncpg.connect(staged.url)
    await connection.execute(SLOW_ABOVE_EIGHT.replace("> 8", "> 0"))
    await connection.close()
    await staged.rows(f"ALTER DATABASE {staged.url.rpartition('/')[2]} SET statement_timeout = '100ms'")
    await submit_all(staged.store, ["a", "b"])

    with pytest.raises(HistoryAway, match="statement timeout"):
        await staged.record(slowed := staged.new_recorder())

    assert await staged.count("history.rejected") == 0
    assert (await staged.status()).length == 2
    await slowed.close()
