"""A statement is prepared once and then run again: apsw forgets those that were not among its last executions."""

from __future__ import annotations

from collections.abc import Iterator

import apsw
import pytest

from qo.job import State
from qo.store.sqlite import SQLiteStore
from qo.store.sqlite.shared.sql import Insert
from qo.values import Average, Outcome
from tests.conformance.suite.harness import submission

ROUNDS = 6
BATCH = 50


@pytest.fixture
def db() -> Iterator[apsw.Connection]:
    connection = apsw.Connection(":memory:")
    connection.execute("CREATE TABLE pair (a INTEGER PRIMARY KEY, b INTEGER)")
    yield connection
    connection.close()


async def _submit_claim_and_finish(store: SQLiteStore, number: int, *, batch: int = BATCH) -> None:
    groups = ("api", "cpu", "disk")
    await store.submit([submission(f"{number}-{each}", groups=groups, user="u1") for each in range(batch)])
    claimed = await store.claim(
        worker="w1", tasks=["work"], capacity=batch, lease_ms=60_000, claim_id=str(number), suspects=None
    )
    assert len(claimed.leases) == batch
    average = Average(name="run:work", weight=0.2, first=1.0)
    outcomes = [
        Outcome(job_id=lease.job.id, token=lease.token, state=State.SUCCEEDED, averages=(average,))
        for lease in claimed.leases
    ]
    assert all(not finished.lost for finished in await store.finish(outcomes))


async def test_batches_prepare_no_statement_twice(store: SQLiteStore) -> None:
    async def misses() -> int:
        return await store.writer.call(lambda db: int(db.cache_stats()["misses"]))

    await _submit_claim_and_finish(store, 0)
    before = await misses()
    for number in range(1, ROUNDS):
        await _submit_claim_and_finish(store, number)

    assert await misses() == before


@pytest.mark.parametrize(("batch", "most"), [(1, 97), (50, 326)])
async def test_the_statements_of_a_batch_are_few(store: SQLiteStore, batch: int, most: int) -> None:
    """A row of `executemany` counts as a statement."""

    async def executed() -> int:
        stats = await store.writer.call(lambda db: db.cache_stats())
        return int(stats["hits"]) + int(stats["misses"])

    await _submit_claim_and_finish(store, 0)
    before = await executed()
    await _submit_claim_and_finish(store, 1, batch=batch)

    assert await executed() - before <= most


@pytest.mark.parametrize("count", [0, 1, 2, 3, 8, 10, 33, 75])
def test_every_row_is_inserted_once_and_in_order(db: apsw.Connection, count: int) -> None:
    rows = [(number, 7) for number in range(count)]

    Insert("pair", columns=2).run(db, rows)

    assert db.execute("SELECT a, b FROM pair ORDER BY rowid").fetchall() == rows


def test_what_is_there_already_is_changed_as_the_insert_says(db: apsw.Connection) -> None:
    add = Insert("pair", columns=2, on_conflict="ON CONFLICT DO UPDATE SET b = b + excluded.b")

    add.run(db, [(number % 3, 1) for number in range(45)])

    assert db.execute("SELECT a, b FROM pair").fetchall() == [(0, 15), (1, 15), (2, 15)]
