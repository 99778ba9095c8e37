"""The page History: jobs that have ended, and the figures of each day."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Browser, Page, expect

from qo.job import State
from qo.queue.queue import Queue
from qo.settings import load_settings
from qo.values import Keep, UpkeepRules
from tests.conformance.suite.harness import DAY, NOW, at, claim, fail, submit
from tests.dashboard.test_insight_page import card, finish, numbers
from tests.history.staging import Staged, fresh_database, fresh_store, switch_on
from tests.service.conftest import Service, running_service

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_the_days_are_charts_with_their_numbers(page: Page, served: Service) -> None:
    await finish(served, "a", State.SUCCEEDED)
    await finish(served, "b", State.FAILED)

    await page.goto("/#/history")

    await expect(card(page, "ended")).to_contain_text("2 jobs ended, 1 failed")
    day_ended_failed = re.compile(r"^\d+ \w+21$")
    await expect((await numbers(page, "ended")).first).to_have_text(day_ended_failed)
    await expect((await numbers(page, "waited")).first).to_contain_text(" s")


async def test_ended_jobs_are_listed_and_found_by_their_end(page: Page, served: Service) -> None:
    await finish(served, "a", State.SUCCEEDED)
    await finish(served, "b", State.FAILED)
    await served.queue.submit("build", id="waits")

    await page.goto("/#/history")
    rows = card(page, "history").locator("li[data-id]")
    await expect(rows).to_have_count(2)

    await page.locator("main select").select_option("failed")
    await expect(rows).to_have_count(1)
    await expect(rows).to_have_attribute("data-id", "b")
    await rows.locator("a").click()
    await expect(page).to_have_url(re.compile("#/jobs/b$"))


async def test_a_job_that_redis_has_forgotten_has_its_page(browser: Browser) -> None:
    async with fresh_store() as store, fresh_database() as url:
        await switch_on(store)
        staged = Staged(store, url)
        await submit(store, "old", user="ann", now=NOW)
        (lease,) = await claim(store, now=NOW + 2000)
        await fail(store, lease, now=NOW + 5000)
        await staged.record()
        await staged.recorder.close()
        while (await at(store, NOW + DAY).upkeep(UpkeepRules(keep=Keep(ms=0, jobs=0, events=1, audit=0)))).more:
            pass
        at(store, None)
        settings = load_settings({"server": {"port": 0}, "history": {"url": url}}, environ={})
        async with running_service(Queue(store, settings)) as served:
            page = await browser.new_page(base_url=str(served.client.base_url))
            await page.goto("/#/history?days=90")
            await card(page, "history").locator("li[data-id] a").click()

            await expect(page.locator("h1")).to_contain_text("work")
            await expect(page.locator("main")).to_contain_text("It broke.")
            await expect(page.locator("main")).to_contain_text("ann")
            await page.close()
