"""What `<qo-place>` shows while its job waits, runs and ends."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from playwright.async_api import Browser, Page, expect

import qo
from qo.values import Registration, TaskOptions
from tests.by_hand import start
from tests.service.widget.conftest import UPGRADE_URL
from tests.service.widget.embedding import Embedding, heard, open_sources, part, watched_page
from tests.service.widget.site import INNER_TEXT, place

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def staff(queue: qo.Queue) -> None:
    """A worker for one job at a time, without which there is no estimate."""
    await queue.store.register(Registration(name="w", tasks=(TaskOptions(name="build"),), capacity=1))


async def test_a_waiting_job_has_its_place_its_range_and_the_offer(embedding: Embedding, page: Page) -> None:
    queue = embedding.queue
    await staff(queue)
    for _ in range(2):
        await queue.submit("build", user="u2", tier="bootstrapper")
    url = await embedding.link(tier="bootstrapper")

    await page.goto(embedding.site.add(place(url, label="Your build of shop")))

    await expect(part(page, "label")).to_have_text("Your build of shop")
    await expect(part(page, "heading")).to_have_text("You are #3 in queue")
    await expect(part(page, "message")).to_have_text("Your position may change as priority jobs are added")
    await expect(part(page, "start")).to_have_text(re.compile(r"^Starts in \d+–\d+ minutes$"))
    await expect(part(page, "likely")).to_have_text(re.compile(r"· first guess \d+ min"))
    await expect(part(page, "range")).to_have_attribute("title", re.compile(r"^Between .*\d:\d\d.* and .*\d:\d\d"))
    await expect(part(page, "end")).to_have_text(re.compile(r"^\d+ min$"))
    bar, between, tick = [await part(page, name).bounding_box() for name in ("bar", "between", "tick")]
    assert bar is not None
    assert between is not None
    assert tick is not None
    assert bar["x"] < between["x"] < tick["x"] < between["x"] + between["width"] < bar["x"] + bar["width"]
    await expect(part(page, "upgrade")).to_have_text("Upgrade to jump ahead")
    await expect(part(page, "upgrade")).to_have_attribute("href", UPGRADE_URL)
    await expect(part(page, "upgrade")).to_have_attribute("rel", "noopener")
    await expect(page.get_by_text(INNER_TEXT)).to_be_hidden()


async def test_the_place_moves_and_the_job_runs_and_ends(embedding: Embedding, page: Page) -> None:
    queue = embedding.queue
    await queue.submit("build", id="ahead")
    url = await embedding.link()
    await page.goto(embedding.site.add(place(url, id="mine")))
    await expect(part(page, "heading")).to_have_text("You are #2 in queue")

    await queue.cancel("ahead")
    await expect(part(page, "heading")).to_have_text("You are #1 in queue")
    by_hand = await start(queue)
    await expect(part(page, "heading")).to_have_text("Starting")
    await expect(part(page, "range")).to_be_hidden()
    await by_hand.is_at("code", "Writing the shop")
    await expect(part(page, "heading")).to_have_text("Running: code")
    await expect(part(page, "message")).to_have_text("Writing the shop")
    await by_hand.has_done_of(3, 10)
    await expect(part(page, "count")).to_have_text("3 of 10")
    await expect(part(page, "progress")).to_have_js_property("position", 0.3)
    await by_hand.succeeds()
    await expect(part(page, "heading")).to_have_text("Ready")
    await expect(part(page, "progress")).to_be_hidden()

    events = await heard(page)
    assert {each[1] for each in events} == {"mine"}
    assert all(is_composed for *_, is_composed in events)
    changes = [(state, position) for name, _, state, position, _ in events if name == "qo-change"]
    assert list(dict.fromkeys(changes)) == [
        ("queued", 2),
        ("queued", 1),
        ("starting", None),
        ("running", None),
        ("succeeded", None),
    ]
    assert [each[2] for each in events if each[0] == "qo-end"] == ["succeeded"]
    assert await page.evaluate("document.querySelector('qo-place').state.state") == "succeeded"
    assert await open_sources(page) == (1, 0)


async def test_a_job_that_failed_asks_or_is_for_later_says_so_to_whoever_comes_late(
    embedding: Embedding, page: Page
) -> None:
    queue, run_at = embedding.queue, embedding.queue.system.now() + timedelta(days=400)
    failed = await embedding.link()
    await (await start(queue)).fails("The compiler was not found.")
    asking = await embedding.link()
    await (await start(queue)).asks("Continue for 2 more iterations")
    later = await embedding.link(run_at=run_at.isoformat())

    await page.goto(embedding.site.add(place(failed, id="failed") + place(asking) + place(later)))

    headings, messages = page.locator("[part~=heading]"), page.locator("[part~=message]")
    await expect(headings).to_have_text(["Failed", "Waiting for confirmation", "Scheduled"])
    await expect(messages.nth(0)).to_have_text("The compiler was not found.")
    await expect(messages.nth(1)).to_have_text("Continue for 2 more iterations")
    await expect(page.locator("[part~=start]").nth(2)).to_have_text(re.compile(rf"^Starts at .*{run_at.year}"))
    assert await page.locator("button, input, a:visible").count() == 0
    assert [each[:3] for each in await heard(page) if each[1]] == [
        ("qo-change", "failed", "failed"),
        ("qo-end", "failed", "failed"),
    ]


async def test_without_script_the_inner_text_is_shown(embedding: Embedding, browser: Browser) -> None:
    async with watched_page(browser, java_script_enabled=False) as page:
        await page.goto(embedding.site.add(place(await embedding.link())))

        await expect(page.get_by_text(INNER_TEXT)).to_be_visible()
        assert await embedding.open_streams() == 0


async def test_it_is_dark_for_people_who_prefer_that_unless_the_page_says_otherwise(
    embedding: Embedding, browser: Browser
) -> None:
    async with watched_page(browser, color_scheme="dark") as page:
        await page.goto(embedding.site.add(place(await embedding.link())))

        await expect(part(page, "card")).to_have_css("background-color", "rgb(25, 28, 34)")
        await page.evaluate("document.querySelector('qo-place').style.colorScheme = 'light'")
        await expect(part(page, "card")).to_have_css("background-color", "rgb(255, 255, 255)")
        await page.evaluate("document.querySelector('qo-place').style.setProperty('--qo-paper', 'rgb(1, 2, 3)')")
        await expect(part(page, "card")).to_have_css("background-color", "rgb(1, 2, 3)")
