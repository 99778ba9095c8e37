"""A queue on a store, closed again at the end.

In the gate the store is a file and a Valkey server, which processes can share. `make nightly` adds the others, whose
code is the same.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

import qo
from qo.queue.queue import Queue
from qo.settings import load_settings
from qo.values import Bounds
from tests.stores import STORES, StoreUnderTest

SETTINGS: dict[str, Any] = {
    "concurrency": {"default_lease_duration_secs": 60},
    "retries": {"first_delay_secs": 0.01, "jitter": 0},
    "worker": {"grace_secs": 5},
}
"""Waits are short enough for a test; a test of a wait sets its own."""
IN_THE_GATE = ("sqlite", "valkey")


def _case(store: StoreUnderTest) -> object:
    return pytest.param(store, id=store.name, marks=[] if store.name in IN_THE_GATE else [pytest.mark.nightly])


@pytest.fixture(params=map(_case, STORES))
def store_under_test(request: pytest.FixtureRequest) -> StoreUnderTest:
    chosen: StoreUnderTest = request.param
    return chosen


@pytest.fixture
def overrides() -> dict[str, Any]:
    """A test module's own settings, added to those above."""
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
