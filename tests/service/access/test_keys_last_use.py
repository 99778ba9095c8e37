"""The last use of a key is noted beside the request."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta

import pytest

from qo.service.access.keys import Keys
from qo.store.contract import Store
from tests.service.access.staging import StagedStore, Time, away

Server = Callable[..., Keys]


async def test_a_use_is_noted_once_a_minute_by_all_servers_together(
    keys: Keys, staged: StagedStore, server: Server, store: Store, time: Time
) -> None:
    made = await keys.create("admin")
    other_store = StagedStore(store)
    other = server(other_store)
    staged.writes.clear()
    noted = []
    for _ in range(13):  # two minutes
        for each in (keys, other):
            assert await each.find(made.text) is not None
            assert await each.named(made.id) is not None
            await each.close()
        noted.append((await keys.list())[0].last_used_at)
        time.forward(10)

    begin = noted[0]
    assert begin is not None
    assert noted == [begin + timedelta(minutes=number // 6) for number in range(13)]
    assert len(staged.writes + other_store.writes) == 3


async def test_a_server_that_has_not_read_anothers_note_yet_writes_none_of_its_own(
    keys: Keys, server: Server, store: Store, time: Time
) -> None:
    made = await keys.create("admin")
    other_store = StagedStore(store)
    other = server(other_store)
    assert await other.any()  # it has read the key, which nobody has used yet
    await keys.find(made.text)
    await keys.close()

    time.forward(1)
    assert await other.find(made.text) is not None
    await other.close()

    assert other_store.writes == []


async def test_a_request_does_not_wait_until_its_use_is_noted(keys: Keys, staged: StagedStore) -> None:
    made = await keys.create("admin")
    go_on = asyncio.Event()

    async def wait() -> None:
        await go_on.wait()

    staged.before_write = wait
    key = await keys.find(made.text)
    before = (await keys.list())[0].last_used_at
    go_on.set()
    await keys.close()

    assert key is not None
    assert before is None
    assert (await keys.list())[0].last_used_at is not None


async def test_a_use_that_cannot_be_noted_fails_no_request_and_is_logged(
    keys: Keys, staged: StagedStore, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    made = await keys.create("admin")
    staged.before_write = away

    key = await keys.find(made.text)
    await keys.close()

    assert key is not None
    (record,) = [record for record in caplog.records if record.name == "qo.service"]
    assert record.levelno == logging.WARNING
    assert "the last use of a key could not be written" in record.getMessage()
    staged.before_write = None
    time.forward(60)
    await keys.find(made.text)
    await keys.close()
    assert (await keys.list())[0].last_used_at == time.now
