"""Dashboards that look at the same window: together they cost the store what one costs."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.async_api import Browser, Page, Request, expect

import qo
from qo.policy.estimates.replay import NEVER
from qo.queue.estimator import Estimator
from qo.queue.queue import Queue
from qo.service.stream import live_reader, overview
from tests.dashboard.reading import expect_ids, open_line
from tests.dashboard.staging import register, start
from tests.service.conftest import running_service
from tests.service.stream.test_live_watchers import CountedStore
from tests.worker.running import until

pytestmark = pytest.mark.asyncio(loop_scope="session")
CHANGES = 5


@pytest.fixture(autouse=True)
def what_is_read_by_the_clock_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_reader, "GROUPS_EVERY_SECONDS", 1000.0)
    monkeypatch.setattr(overview, "EVERY_SECONDS", 1000.0)
    monkeypatch.setattr(Estimator, "_age", lambda self: NEVER if self._forecast is None else 0.0)


async def open_to_the_end(page: Page) -> None:
    """Open the line and wait for the last of what is read to begin with: the line and the running jobs are read, and
    once more when the stream has begun."""
    answered = Counter[str]()

    def count(request: Request) -> None:
        address = urlsplit(request.url)
        answered.update([f"{address.path} {parse_qs(address.query).get('status', [''])[0]}"])

    page.on("requestfinished", count)
    await open_line(page, rows=1)
    await expect(page.locator(".timeline .bar.now")).to_be_attached()

    async def is_all_read() -> bool:
        return answered["/api/queue "] >= 2 and answered["/api/jobs confirming"] >= 2

    await until(is_all_read)


async def cost_of(dashboards: int, browser: Browser) -> Counter[str]:
    """The calls of the store while so many dashboards, each of a browser of its own, see some changes."""
    async with AsyncExitStack() as stack:
        queue = await stack.enter_async_context(await qo.connect("memory://", settings={"server": {"port": 0}}))
        await queue.set_limit("global", 1)
        await register(queue, "worker-1")
        await start(queue, "runs")
        await queue.submit("build", id="a")
        store: Any = CountedStore(queue.store)
        seen_by = Queue(store, queue.settings)
        stack.push_async_callback(seen_by.close)
        served = await stack.enter_async_context(running_service(seen_by))
        pages = []
        for _ in range(dashboards):
            context = await browser.new_context(base_url=str(served.client.base_url))
            stack.push_async_callback(context.close)
            pages.append(await context.new_page())
            await open_to_the_end(pages[-1])
        store.calls.clear()
        ids = ["a"]
        for number in range(CHANGES):
            ids.append(f"b{number}")
            await queue.submit("build", id=ids[-1])
            await asyncio.gather(*(expect_ids(page, *ids) for page in pages))
        return Counter(store.calls)


@pytest.mark.parametrize("dashboards", [3, pytest.param(20, marks=pytest.mark.nightly)])
async def test_many_dashboards_cost_the_store_what_one_costs(browser: Browser, dashboards: int) -> None:
    of_one = await cost_of(1, browser)

    assert await cost_of(dashboards, browser) == of_one
    assert of_one["jobs"] == CHANGES
