"""A queue on every store, closed again at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from stores import STORES, StoreUnderTest

import qo
from qo.runtime.queue import Queue
from qo.settings import load_settings
from qo.store.values import Bounds

SETTINGS: dict[str, Any] = {
    "concurrency": {"default_lease_duration_secs": 60},
    "retries": {"first_delay_secs": 0.01, "jitter": 0},
    "worker": {"grace_secs": 5},
}
"""waits short enough for a test; a test of a wait sets its own"""


@pytest.fixture(params=STORES, ids=lambda store: store.name)
def store_under_test(request: pytest.FixtureRequest) -> StoreUnderTest:
    chosen: StoreUnderTest = request.param
    return chosen


@pytest.fixture
def overrides() -> dict[str, Any]:
    """Settings of a test module, beside those above."""
    return {}


@pytest.fixture
async def queue(store_under_test: StoreUnderTest, overrides: dict[str, Any]) -> AsyncIterator[qo.Queue]:
    store = await store_under_test.open(Bounds())
    opened = Queue(store, load_settings({**SETTINGS, **overrides}, environ={}))
    yield opened
    await opened.close()
    await store_under_test.close(store)


@pytest.fixture
def worker(queue: qo.Queue) -> qo.Worker:
    return qo.Worker(queue, "worker-1")
