"""The tables of the history: made once, by month, and dropped whole."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from qo.history.database import connect, migrate
from tests.conformance.suite.harness import DAY, NOW, claim, limit, submit, succeed
from tests.history.staging import Staged, fresh_database
from tests.history.test_refused import add_bad_entries

MIGRATING_AT_ONCE = 50


async def test_fifty_recorders_may_migrate_at_once() -> None:
    async def migrate_one(url: str) -> None:
        connection = await connect(url)
        try:
            await migrate(connection, keep_days=90)
        finally:
            await connection.close()

    async with fresh_database() as url:
        await asyncio.gather(*(migrate_one(url) for _ in range(MIGRATING_AT_ONCE)))

        connection = await asyncpg.connect(url)
        assert await connection.fetchval("SELECT array_agg(version) FROM history.migrations") == [1]
        await connection.close()


async def partitions(staged: Staged, table: str) -> list[str]:
    query = "SELECT inhrelid::regclass::text AS name FROM pg_inherits WHERE inhparent = $1::text::regclass ORDER BY 1"
    found = await staged.rows(query, f"history.{table}")
    return [row["name"].removeprefix(f"history.{table}_") for row in found]


def month_after(now: datetime, months: int) -> str:
    first = now.replace(day=1)
    for _ in range(months):
        first = (first + timedelta(days=32)).replace(day=1)
    return first.strftime("%Y_%m")


async def test_fifty_recorders_may_start_at_once(staged: Staged) -> None:
    await submit(staged.store, "a")
    recorders = [staged.new_recorder() for _ in range(MIGRATING_AT_ONCE)]

    await asyncio.gather(*(recorder.open() for recorder in recorders))
    await asyncio.gather(*(recorder.step() for recorder in recorders))

    assert await staged.states() == {"a": "accepted"}
    assert sum(recorder.numbers.recorded for recorder in recorders) == 1
    await asyncio.gather(*(recorder.close() for recorder in recorders))


async def test_the_partitions_of_two_months_ahead_are_made(staged: Staged) -> None:
    await staged.record()

    now = datetime.now(UTC)
    ahead = [month_after(now, months) for months in range(3)]
    for table in ("job_rows", "attempt_rows", "audit_rows", "entry_rows"):
        assert await partitions(staged, table) == ahead


async def test_months_that_are_older_than_keep_days_are_dropped_whole(staged: Staged) -> None:
    now = int(datetime.now(UTC).timestamp() * 1000)
    await submit(staged.store, "old", now=now - 130 * DAY)
    await submit(staged.store, "new", now=now)
    await staged.record()
    before = await staged.states()

    await staged.rows("UPDATE history.recorder SET kept_on = NULL")  # the next day
    await submit(staged.store, "newer", now=now)
    await staged.record()

    assert before == {"old": "accepted", "new": "accepted"}
    assert await staged.states() == {"new": "accepted", "newer": "accepted"}


async def test_rejected_entries_are_kept_as_long_as_the_months(staged: Staged) -> None:
    await submit(staged.store, "a")
    (lease,) = await claim(staged.store)
    await succeed(staged.store, lease)
    add_bad_entries(staged)
    await staged.record()
    await staged.rows("UPDATE history.rejected SET at = at - interval '91 days' WHERE reason LIKE '%not a record%'")

    await staged.rows("UPDATE history.recorder SET kept_on = NULL")  # the next day
    await submit(staged.store, "b", now=NOW + 1000)
    await staged.record()

    (kept,) = await staged.rows("SELECT reason FROM history.rejected")
    assert "job_rows_state_check" in kept["reason"]


# --- the end of a month -----------------------------------------------------------------------------------------


LAST_OF_2031 = int(datetime(2031, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp() * 1000)
FIRST_OF_2032 = LAST_OF_2031 + 1000


async def test_a_job_may_begin_in_one_month_and_end_in_the_next(staged: Staged) -> None:
    await submit(staged.store, "a", now=LAST_OF_2031)
    (lease,) = await claim(staged.store, now=FIRST_OF_2032 - 1)
    await succeed(staged.store, lease, now=FIRST_OF_2032)
    await limit(staged.store, "gpu", 1, by="ada")

    await staged.record()

    (row,) = await staged.rows("SELECT tableoid::regclass::text AS part, state FROM history.job_rows")
    assert row == {"part": "history.job_rows_2031_12", "state": "succeeded"}
    (row,) = await staged.rows("SELECT tableoid::regclass::text AS part FROM history.attempt_rows")
    assert row == {"part": "history.attempt_rows_2032_01"}
    rows = await staged.rows("SELECT tableoid::regclass::text AS part FROM history.entry_rows ORDER BY id")
    assert [row["part"][-7:] for row in rows] == ["2031_12", "2032_01", "2032_01"]


async def test_a_clock_that_is_set_back_to_the_month_before_loses_nothing(staged: Staged) -> None:
    await submit(staged.store, "new", now=FIRST_OF_2032)
    await submit(staged.store, "old", now=LAST_OF_2031)  # its entry id is in January all the same

    await staged.record()

    rows = await staged.rows("SELECT id, tableoid::regclass::text AS part FROM history.job_rows ORDER BY id")
    assert [tuple(row.values()) for row in rows] == [
        ("new", "history.job_rows_2032_01"),
        ("old", "history.job_rows_2031_12"),
    ]


@pytest.mark.parametrize("style", ["SQL, DMY", "German", "Postgres, MDY"])
async def test_months_are_those_of_utc_whatever_the_database_prefers(staged: Staged, style: str) -> None:
    name = staged.url.rpartition("/")[2]
    await staged.rows(f"ALTER DATABASE {name} SET datestyle = '{style}'")
    await staged.rows(f"ALTER DATABASE {name} SET timezone = 'Asia/Kolkata'")  # IST, which also is Israel's time
    await submit(staged.store, "last", now=LAST_OF_2031)
    await submit(staged.store, "first", now=FIRST_OF_2032)

    await staged.record()

    rows = await staged.rows("SELECT id, tableoid::regclass::text AS part FROM history.job_rows ORDER BY submitted_at")
    assert [row["part"][-7:] for row in rows] == ["2031_12", "2032_01"]


# --- beside long readers ----------------------------------------------------------------------------------------


async def test_a_long_reader_puts_off_the_making_and_dropping_of_months_and_nothing_else(staged: Staged) -> None:
    now = int(datetime.now(UTC).timestamp() * 1000)
    await submit(staged.store, "old", now=now - 130 * DAY)
    await submit(staged.store, "new", now=now)
    await staged.record()
    await staged.rows("UPDATE history.recorder SET kept_on = NULL")  # the next day

    backup = await asyncpg.connect(staged.url)
    async with backup.transaction():
        await backup.execute("LOCK TABLE history.job_rows, history.entry_rows IN ACCESS SHARE MODE")
        await submit(staged.store, "newer", now=now)
        await staged.record()
        during = await staged.states()
    await backup.close()
    await staged.rows("UPDATE history.recorder SET kept_on = NULL")  # the day after
    await submit(staged.store, "newest", now=now)
    await staged.record()

    assert during.keys() == {"old", "new", "newer"}
    assert (await staged.states()).keys() == {"new", "newer", "newest"}
