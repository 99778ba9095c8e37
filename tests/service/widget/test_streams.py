"""One stream for all elements of a link, and what becomes of it when elements and connections come and go."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Page, expect

from tests.by_hand import start
from tests.service.widget.embedding import Embedding, heard, open_sources, part
from tests.service.widget.site import INNER_TEXT, place
from tests.worker.running import until

pytestmark = pytest.mark.asyncio(loop_scope="session")

LOST = re.compile(r"^Connection lost at .*\d:\d\d.*\. Trying again\.$")


async def test_elements_of_one_link_share_a_stream(embedding: Embedding, page: Page) -> None:
    url = await embedding.link()
    other = await embedding.link()
    await page.goto(embedding.site.add(place(url, id="a") + place(url, id="b") + place(other, id="c")))

    headings = page.locator("[part~=heading]")
    await expect(headings).to_have_text(["You are #1 in queue", "You are #1 in queue", "You are #2 in queue"])
    assert await embedding.open_streams() == 2
    announcements = page.locator("[part~=announcement]")
    # The other link may have spoken first; then this one waits for ten seconds.
    await expect(announcements.nth(0)).to_have_text(re.compile("Position #1 in queue"), timeout=30_000)
    await expect(announcements.nth(1)).to_have_text("")  # one of them speaks for both

    await page.evaluate("document.body.append(document.createElement('qo-place')); a.remove(); c.remove()")
    await embedding.has_open_streams(1)
    await page.evaluate("(url) => document.body.lastChild.setAttribute('src', url)", url)
    await expect(headings.nth(1)).to_have_text("You are #1 in queue")
    assert await embedding.open_streams() == 1
    await (await start(embedding.queue)).succeeds()
    await expect(headings).to_have_text(["Ready", "Ready"])
    assert [each[1] for each in await heard(page) if each[0] == "qo-end"] == ["b", ""]
    await embedding.has_open_streams(0)


async def test_an_element_that_is_moved_keeps_its_stream(embedding: Embedding, page: Page) -> None:
    await page.goto(embedding.site.add(place(await embedding.link()) + "<main></main>"))
    await expect(part(page, "heading")).to_have_text("You are #1 in queue")

    take_out_and_back = "(place) => { place.remove(); document.querySelector('main').append(place); }"
    await page.locator("qo-place").evaluate(take_out_and_back)
    await (await start(embedding.queue)).succeeds()

    await expect(page.locator("main [part~=heading]")).to_have_text("Ready")
    assert await open_sources(page) == (1, 0)


async def test_an_element_that_gets_another_link_shows_that_job_only(embedding: Embedding, page: Page) -> None:
    await page.goto(embedding.site.add(place(await embedding.link(id="first"))))
    await expect(part(page, "heading")).to_have_text("You are #1 in queue")

    other = await embedding.link()
    await page.evaluate("(url) => document.querySelector('qo-place').setAttribute('src', url)", other)

    await expect(part(page, "heading")).to_have_text("You are #2 in queue")
    await embedding.has_open_streams(1)
    await page.evaluate("document.querySelector('qo-place').removeAttribute('src')")
    await expect(page.get_by_text(INNER_TEXT)).to_be_visible()
    await embedding.has_open_streams(0)


async def test_a_lost_connection_is_said_and_nothing_is_missed_when_it_is_back(
    embedding: Embedding, page: Page
) -> None:
    await page.clock.install()
    url = await embedding.link()
    await page.goto(embedding.site.add(place(url)))
    by_hand = await start(embedding.queue)
    await by_hand.is_at("code")
    await expect(part(page, "heading")).to_have_text("Running: code")
    await expect(part(page, "connection")).to_be_hidden()

    embedding.relay.cut()
    await by_hand.is_at("checks")

    async def is_said() -> bool:
        await page.clock.run_for(1000)
        return await part(page, "connection").is_visible()

    await until(is_said)
    await expect(part(page, "connection")).to_have_text(LOST)
    await expect(part(page, "heading")).to_have_text("Running: code")
    async with page.expect_request(url) as again:
        embedding.relay.mend()
    assert (await (await again.value).all_headers())["last-event-id"].isdigit()
    await expect(part(page, "heading")).to_have_text("Running: checks")
    await expect(part(page, "connection")).to_be_hidden()


async def test_a_link_that_has_expired_leaves_the_inner_text_and_is_not_asked_again(
    embedding: Embedding, page: Page
) -> None:
    await page.clock.install()
    url = await embedding.link()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    await page.goto(embedding.site.add(place(f"{url}A")))

    await expect(part(page, "connection")).to_have_text("This link no longer works.")
    await expect(page.get_by_text(INNER_TEXT)).to_be_visible()
    await page.clock.fast_forward("10:00")
    assert asked.count(f"{url}A") == 2


async def test_a_refused_stream_is_opened_again_later(embedding: Embedding, page: Page) -> None:
    """A link has 5 streams at most. A browser gives up on such an answer by itself."""
    await page.clock.install()
    url = await embedding.link()
    async with embedding.taken_streams(url, 5):
        await page.goto(embedding.site.add(place(url)))
        await expect(part(page, "connection")).to_have_text(LOST)
    await embedding.has_open_streams(0)
    await page.clock.fast_forward("00:20")

    await expect(part(page, "heading")).to_have_text("You are #1 in queue")
    await expect(part(page, "connection")).to_be_hidden()
