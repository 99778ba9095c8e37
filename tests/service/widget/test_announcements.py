"""What a screen reader says: in a polite region, at most every 10 seconds, and only the newest."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from tests.by_hand import start
from tests.service.widget.embedding import Embedding, part
from tests.service.widget.site import place

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_it_speaks_at_most_every_10_seconds_and_skips_what_is_no_longer_true(
    embedding: Embedding, page: Page
) -> None:
    await page.clock.install()
    await embedding.queue.submit("build", id="ahead")
    url = await embedding.link()
    await page.goto(embedding.site.add(place(url, label="Your build")))
    announcement = part(page, "announcement")
    await expect(announcement).to_have_attribute("aria-live", "polite")
    first = "Your build. Position #2 in queue. Start not known yet: no worker runs task build"
    await expect(announcement).to_have_text(first)
    await page.clock.pause_at(await page.evaluate("Date.now() / 1000 + 1"))

    await embedding.queue.cancel("ahead")
    await expect(part(page, "heading")).to_have_text("You are #1 in queue")
    by_hand = await start(embedding.queue)
    await by_hand.is_at("code")
    await expect(part(page, "heading")).to_have_text("Running: code")
    await page.clock.run_for(8_000)
    await expect(announcement).to_have_text(first)
    await page.clock.run_for(2_000)
    await expect(announcement).to_have_text("Your build. Running: code")

    await by_hand.fails("The compiler was not found.")
    await expect(part(page, "heading")).to_have_text("Failed")
    await expect(announcement).to_have_text("Your build. Running: code")
    await page.clock.run_for(10_000)
    await expect(announcement).to_have_text("Your build. Failed. The compiler was not found.")
