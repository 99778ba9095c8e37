"""The history behind a PgBouncer in transaction mode, where two statements may meet two different connections."""

from __future__ import annotations

import pytest

from qo.history.reading import HistoryReader
from qo.store.redis.store import RedisStore
from tests.conformance.suite.harness import NOW, claim, submit_all, succeed
from tests.history.staging import Staged, fresh_database, switch_on
from tests.servers.pgbouncer import BINARY, PgBouncer
from tests.servers.postgres import shared_postgres

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(BINARY is None, reason="PgBouncer is not installed, and no package of pip has it"),
]
PORTIONS = 20


async def test_recorders_write_and_readers_read_through_a_pooler(store: RedisStore) -> None:
    postgres = shared_postgres()
    async with fresh_database() as url:
        with PgBouncer(postgres) as pooler:
            behind = postgres.url(url.rpartition("/")[2], port=pooler.port)
            await switch_on(store)
            staged = Staged(store, behind)
            others = [staged.recorder, staged.new_recorder()]
            try:
                for number in range(PORTIONS):
                    await submit_all(store, [f"{number}-a", f"{number}-b"], now=NOW + number)
                    for lease in await claim(store, capacity=2, now=NOW + number):
                        await succeed(store, lease, now=NOW + number)
                    await staged.record(others[number % 2])

                assert set((await staged.states()).values()) == {"succeeded"}
                reader = HistoryReader(behind)
                page = await reader.page(limit=100)
                await reader.close()
                assert len(page.jobs) == 2 * PORTIONS
            finally:
                for recorder in others:
                    await recorder.close()
