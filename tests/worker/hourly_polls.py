"""Two queues on one store whose polls all take an hour, so that only a wake-up is heard in time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from qo.queue.queue import Queue
from qo.settings import load_settings
from qo.values import Bounds, Lease
from tests.conformance.suite.harness import claim
from tests.stores import STORES, StoreUnderTest
from tests.worker.slow_polls import SETTINGS, another_queue, look_at_the_clock_hourly, poll_hourly

HEARD_SECONDS = 10
"""A net. A wake-up takes milliseconds, and a lost one an hour."""


@pytest.fixture(name="hourly", autouse=True)
def hourly_fixture(monkeypatch: pytest.MonkeyPatch) -> None:
    poll_hourly(monkeypatch)


@pytest.fixture(name="no_clock")
def no_clock_fixture(monkeypatch: pytest.MonkeyPatch) -> None:
    look_at_the_clock_hourly(monkeypatch)


@pytest.fixture(name="store_under_test", params=STORES, ids=lambda store: store.name)
def store_under_test_fixture(request: pytest.FixtureRequest) -> StoreUnderTest:
    """Every store in the gate too: each has a way of its own to wake workers."""
    chosen: StoreUnderTest = request.param
    return chosen


@pytest.fixture(name="queue")
async def queue_fixture(store_under_test: StoreUnderTest) -> AsyncIterator[Queue]:
    store = await store_under_test.open(Bounds())
    opened = Queue(store, load_settings(SETTINGS, environ={}))
    yield opened
    await opened.close()
    await store_under_test.close(store)


@pytest.fixture(name="other")
async def other_fixture(queue: Queue) -> AsyncIterator[Queue]:
    async with another_queue(queue) as opened:
        yield opened


async def held_elsewhere(other: Queue, **options: Any) -> Lease:
    """A job of another task that another worker runs."""
    await other.submit("elsewhere", id="holder", **options)
    (lease,) = await claim(other.store, tasks=["elsewhere"], worker="another", now=None)
    return lease
