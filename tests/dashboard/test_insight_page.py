"""The page Insight: its charts have their numbers as tables."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Locator, Page, expect

from qo.job import State
from qo.values import Outcome
from tests.dashboard.staging import start
from tests.service.conftest import Service

# Nightly, to keep the gate short: the pages of the line and of a job are tested at every change.
pytestmark = pytest.mark.asyncio(loop_scope="session")
HOSTILE = "<img src=x onerror=alert(1)>"


def card(page: Page, name: str) -> Locator:
    return page.locator("section", has=page.locator(f"h2#{name}"))


async def finish(served: Service, job_id: str, state: State, task: str = "build") -> None:
    (lease,) = await start(served.queue, job_id, task=task)
    await served.queue.store.finish([Outcome(job_id=job_id, token=lease.token, state=state, result=b"null")])


async def numbers(page: Page, name: str) -> Locator:
    """The table below a chart, opened by the keyboard."""
    await card(page, name).locator("summary").focus()
    await page.keyboard.press("Enter")
    return card(page, name).locator(".numbers tbody tr")


async def test_every_chart_has_its_numbers(page: Page, served: Service) -> None:
    await finish(served, "a", State.SUCCEEDED)
    await finish(served, "b", State.FAILED)
    await served.queue.submit("build", id="waits", priority="low")

    await page.goto("/#/insight")

    await expect(card(page, "throughput")).to_contain_text("2 jobs ended, 1 failed (50 %)")
    rows = await numbers(page, "throughput")
    await expect(rows.first).to_have_text(re.compile(r"^\d\d:\d\d(:\d\d)?213$"))  # ended, failed, submitted
    await expect(page).to_have_url(re.compile("numbers=throughput"))
    await expect((await numbers(page, "waits")).first).to_contain_text(" s")
    await expect(card(page, "depth")).to_contain_text("1 in line now")
    await expect((await numbers(page, "depth")).first).to_have_text(re.compile(r"1$"))


async def test_a_chart_is_drawn_and_says_what_is_under_the_pointer(page: Page, served: Service) -> None:
    for job_id in "abc":
        await served.queue.submit("build", id=job_id)
    await page.goto("/#/insight")

    plot = card(page, "depth").locator(".plot .u-over")
    size = await plot.bounding_box()
    assert size is not None
    await plot.hover(position={"x": size["width"] - 2, "y": 20})

    await expect(card(page, "depth").locator(".legend")).to_contain_text(re.compile(r"in line 3"))


async def test_groups_under_pressure_are_listed(page: Page, served: Service) -> None:
    await served.queue.set_limit("gpu", 1)
    await start(served.queue, "a", groups=["gpu"])
    await start(served.queue, "b", groups=["gpu"])

    await page.goto("/#/insight")

    await expect(card(page, "busiest").locator("tbody tr")).to_have_text(re.compile(r"^\s*gpu\s*11(none|up to 1 s)$"))
    await expect(card(page, "busiest").get_by_role("link", name="gpu")).to_have_attribute("href", "#/groups/gpu")


async def test_promises_are_shown_against_what_was_kept(page: Page, served: Service) -> None:
    await served.queue.submit("build", id="kept")
    await served.queue.submit(HOSTILE, id="missed")
    await served.queue.store.note_promises({"kept": (0, 600_000), "missed": (300_000, 600_000)})
    await finish(served, "kept", State.SUCCEEDED)
    await finish(served, "missed", State.SUCCEEDED, task=HOSTILE)

    await page.goto("/#/insight")

    promises = card(page, "promises")
    await expect(promises).to_contain_text("50 % of 2 starts inside their range, 80 % meant")
    await expect(promises.locator(".kept tbody tr", has_text="build")).to_contain_text("100 %")
    await expect(promises.locator(".kept tbody tr", has_text=HOSTILE)).to_contain_text("0 %")
    rows = await numbers(page, "promises")
    await expect(rows.filter(has_text="kept")).to_contain_text("0–10 min")
    await expect(rows.filter(has_text="kept")).to_contain_text("inside")
    await expect(rows.filter(has_text="missed")).to_contain_text(re.compile(r"[45]m \d\ds sooner"))
    assert await page.locator("img").count() == 0


async def test_the_time_range_is_in_the_address(page: Page, served: Service) -> None:
    await page.goto("/#/insight")

    await page.get_by_role("button", name="1 day").click()
    await expect(page).to_have_url(re.compile("minutes=1440"))
    await expect(page.get_by_role("button", name="1 day")).to_have_attribute("aria-pressed", "true")
    await page.go_back()
    await expect(page.get_by_role("button", name="1 hour")).to_have_attribute("aria-pressed", "true")


async def test_an_unused_queue_says_what_to_do(page: Page, served: Service) -> None:
    await page.goto("/#/insight")

    await expect(card(page, "throughput")).to_contain_text(
        "Nothing was submitted in this time. Try it: qo submit build"
    )
    await expect(card(page, "promises")).to_contain_text("No start was measured yet.")
