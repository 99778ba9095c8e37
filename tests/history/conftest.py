from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from qo.store.redis.store import RedisStore
from tests.history.staging import Staged, fresh_database, fresh_store, switch_on


@pytest.fixture
async def store() -> AsyncIterator[RedisStore]:
    """Its outbox is off."""
    async with fresh_store() as opened:
        yield opened


@pytest.fixture
async def staged(store: RedisStore) -> AsyncIterator[Staged]:
    async with fresh_database() as url:
        await switch_on(store)
        made = Staged(store, url)
        yield made
        await made.recorder.close()
