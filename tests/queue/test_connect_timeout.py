"""`qo.connect(timeout=...)`: how long a call waits for a store that is away."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

import qo
import qo.sync
from tests.servers.redis import Server
from tests.store.redis.redis_calls import frozen
from tests.worker.running import soon


async def test_connecting_to_a_server_that_is_away_is_given_up_after_the_timeout() -> None:
    with Server("valkey") as server:
        url = server.url

    with pytest.raises(qo.StoreAway, match="Connection refused"):
        await soon(qo.connect(url, timeout=0.2))


async def test_a_call_to_a_server_that_hangs_is_given_up_after_the_timeout() -> None:
    with Server("valkey") as server:
        async with await qo.connect(server.url, timeout=0.3) as queue:
            await queue.submit("build")
            with frozen(server), pytest.raises(qo.StoreAway, match="may or may not have been done"):
                await soon(queue.submit("build"))
            assert len(await queue.jobs()) in (1, 2)  # the server is back, and so is the queue


def test_the_blocking_form_has_the_timeout_too() -> None:
    with Server("valkey") as server:
        url = server.url

    with pytest.raises(qo.StoreAway, match="Connection refused"):
        qo.sync.connect(url, timeout=0.2)


async def test_a_call_to_a_file_that_another_program_has_locked_is_given_up_after_the_timeout(tmp_path: Path) -> None:
    path = tmp_path / "qo.db"
    async with await qo.connect(path, timeout=0.2) as queue:
        await queue.submit("build")
        other = apsw.Connection(str(path))
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(qo.StoreAway, match="is locked"):
            await soon(queue.submit("build"))
        other.execute("COMMIT")
        other.close()
        assert (await queue.submit("build")).position == 2
