"""A store, and servers beside it whose time the test sets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from qo.service.access.keys import Keys
from qo.store.contract import Store
from qo.store.open import open_store
from tests.service.access.staging import StagedStore, Time


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture(params=["memory", "file"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/qo.db"
    opened = await open_store(url, namespace="default")
    yield opened
    await opened.close()


@pytest.fixture
def staged(store: Store) -> StagedStore:
    """The store as one server sees it."""
    return StagedStore(store)


@pytest.fixture
async def server(store: Store, time: Time) -> AsyncIterator[Callable[..., Keys]]:
    """Makes the keys of one more server on the same store, with a cache of its own."""
    made: list[Keys] = []

    def start(seen: StagedStore | None = None) -> Keys:
        made.append(Keys(store if seen is None else seen.as_store, system=time.system))
        return made[-1]

    yield start
    for each in made:
        await each.close()


@pytest.fixture
def keys(staged: StagedStore, server: Callable[..., Keys]) -> Keys:
    return server(staged)
