"""The page of workers."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from playwright.async_api import Locator, Page, Route, expect

from tests.dashboard.staging import register, start
from tests.service.conftest import Service

# Nightly, to keep the gate short: the pages of the line and of a job are tested at every change.
pytestmark = pytest.mark.asyncio(loop_scope="session")
HOSTILE = "<img src=x onerror=alert(1)>"


def row(page: Page, worker: str) -> Locator:
    return page.locator(".workers tbody tr", has_text=worker)


async def test_a_worker_is_shown_with_what_it_takes_and_runs(page: Page, served: Service) -> None:
    await register(served.queue, "worker-1", tasks=("build", "mail"), capacity=4)
    await start(served.queue, "a", user="ada", project="shop")

    await page.goto("/#/workers")

    shown = row(page, "worker-1")
    await expect(shown).to_contain_text("host-1 · process 4321")
    await expect(shown.locator(".badge")).to_have_text(["build", "mail"])
    await expect(shown).to_contain_text("1 of 4")
    await expect(shown.get_by_role("link", name="build · shop")).to_have_attribute("href", "#/jobs/a")
    await expect(shown.locator("time").first).to_have_attribute("title", re.compile("20[0-9][0-9]"))


async def test_a_task_without_a_worker_is_the_first_line(page: Page, served: Service) -> None:
    await register(served.queue, "worker-1", tasks=("build",))
    await served.queue.submit("export", id="stranded")

    await page.goto("/#/workers")

    first = page.locator("main > section").first
    await expect(first).to_contain_text("No worker runs task export. 1 job waits for one.")
    await expect(first.get_by_role("link", name="Look at it")).to_have_attribute("href", "#/?waits=no_worker+export")


async def test_without_workers_the_page_says_how_to_start_one(page: Page, served: Service) -> None:
    await page.goto("/#/workers")

    await expect(page.locator(".workers .empty")).to_contain_text(
        "No worker is live, so nothing starts. Start one: qo worker"
    )


async def test_what_another_capacity_would_do(page: Page, served: Service) -> None:
    asked: list[Any] = []

    async def answer(route: Route) -> None:
        asked.append(json.loads(route.request.post_data or ""))
        waits = {"median_seconds": 40, "last_seconds": 60, "cannot_start": 0}
        await route.fulfill(json={"jobs": 2, "before": waits, "variants": [waits | {"median_seconds": 20}]})

    await register(served.queue, "worker-1", capacity=4)
    await page.route("**/api/queue/what-if", answer)
    await page.goto("/#/workers")

    await row(page, "worker-1").get_by_role("button", name="What if …").click()
    await page.get_by_role("button", name="One more").click()

    await expect(page.locator(".outcome")).to_contain_text("capacity 4 → 5: median wait 40 → 20 s")
    await expect(page).to_have_url(re.compile("worker=worker-1&capacity=5"))
    assert asked == [{"variants": [{"capacity": {"worker-1": 5}}]}]


async def test_hostile_names_are_shown_as_text(page: Page, served: Service) -> None:
    await register(served.queue, HOSTILE, tasks=(HOSTILE,))
    await start(served.queue, "x", worker=HOSTILE, task=HOSTILE, user=HOSTILE)
    await served.queue.submit(f"other {HOSTILE}")

    await page.goto("/#/workers")

    await expect(row(page, HOSTILE).first).to_contain_text(HOSTILE)
    await expect(page.locator(".banner")).to_contain_text(f"No worker runs task other {HOSTILE}")
    assert await page.locator("img").count() == 0
