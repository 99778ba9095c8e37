"""Scrapes at the same time, and scrapes of a store that is away."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from qo.errors import StoreAway, StoreUnavailable
from qo.queue.queue import Queue
from qo.service.metrics import QueueMetrics
from tests.conformance.suite.harness import submit
from tests.service.metrics.scraping import scrape


class HeldReads:
    """Lets readings of the line wait until the test lets them go on, and counts them."""

    def __init__(self, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()
        line = queue.store.line

        async def held(**arguments: Any) -> Any:
            self.count += 1
            self.begun.set()
            await self.go_on.wait()
            return await line(**arguments)

        monkeypatch.setattr(queue.store, "line", held)


@pytest.fixture
def held(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> HeldReads:
    return HeldReads(queue, monkeypatch)


async def test_scrapes_at_the_same_time_share_one_reading(queue: Queue, metrics: QueueMetrics, held: HeldReads) -> None:
    scrapes = [asyncio.create_task(metrics.text()) for _ in range(5)]
    await held.begun.wait()
    held.go_on.set()
    texts = await asyncio.gather(*scrapes)

    assert held.count == 1
    assert len(set(texts)) == 1
    await metrics.text()
    assert held.count == 2


async def test_a_scrape_that_is_given_up_does_not_end_that_of_others(
    queue: Queue, metrics: QueueMetrics, held: HeldReads
) -> None:
    given_up, patient = (asyncio.create_task(metrics.text()) for _ in range(2))
    await held.begun.wait()
    given_up.cancel()
    await asyncio.wait([given_up])
    held.go_on.set()

    assert b"qo_jobs_queued 0.0" in await patient
    assert given_up.cancelled()


@pytest.mark.parametrize("operation", ["events", "series", "line", "workers", "groups"])
async def test_a_scrape_fails_while_the_store_is_away_and_then_misses_nothing(
    queue: Queue, metrics: QueueMetrics, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    await submit(queue.store, "a")
    await scrape(metrics)
    await submit(queue.store, "b")

    async def away(*_: Any, **__: Any) -> Any:
        raise StoreAway("The store cannot be reached.")

    with monkeypatch.context() as while_away:
        while_away.setattr(queue.store, operation, away)
        with pytest.raises(StoreUnavailable):
            await metrics.text()
    await submit(queue.store, "c")

    assert (await scrape(metrics))["qo_jobs_submitted_total",] == 3
