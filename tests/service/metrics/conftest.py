"""A queue in memory, in a file and on a server. The harness of the behaviour suite sets the store's clock."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest

from qo.loops.system import System
from qo.queue.queue import Queue
from qo.service.metrics import QueueMetrics
from qo.settings import load_settings
from qo.values import Bounds
from tests.stores import STORES, StoreUnderTest


class SteadyClock:
    """The monotonic clock of this machine, which a test sets."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def steady_clock() -> SteadyClock:
    return SteadyClock()


@pytest.fixture(params=[each for each in STORES if each.name != "redis"], ids=lambda each: each.name)
async def queue(request: pytest.FixtureRequest, steady_clock: SteadyClock) -> AsyncIterator[Queue]:
    under_test: StoreUnderTest = request.param
    store = await under_test.open(Bounds())
    system = msgspec.structs.replace(System(), monotonic=steady_clock)
    async with Queue(store, load_settings({}, environ={}), system=system) as opened:
        yield opened
    await under_test.close(store)


@pytest.fixture
def metrics(queue: Queue) -> QueueMetrics:
    return QueueMetrics(queue)
