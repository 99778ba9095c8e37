"""Whatever a job, a person or a setting says, the element shows it as text."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from tests.by_hand import start
from tests.service.widget.embedding import Embedding, embedded, part
from tests.service.widget.site import INNER_TEXT, Site, place

pytestmark = pytest.mark.asyncio(loop_scope="session")

HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "<script>alert(1)</script>",
    "</p></div></template></qo-place><script>alert(1)</script>",
    '"><svg onload=alert(1)>',
    "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
    "<style>* { display: none }</style>",
    "&lt;b&gt; &amp; ${alert(1)} {{alert(1)}} `alert(1)`",
    "<!-- --><math><mi//xlink:href='data:x,<script>alert(1)</script>'>",
    "$& $1 $' \\ <b>bold</b>",
)
SHOWN = """
(place) => ['label', 'message', 'count'].map((name) => place.shadowRoot.querySelector('.' + name).textContent)
"""


async def test_every_text_is_shown_as_it_is(embedding: Embedding, page: Page) -> None:
    await page.goto(embedding.site.add(place("")))
    element = page.locator("qo-place")
    for text in HOSTILE:
        url = await embedding.link()
        by_hand = await start(embedding.queue)
        await by_hand.is_at(text, text)
        await by_hand.has_done_of(1, 2, text)
        for name, value in (("src", url), ("label", text)):
            await element.evaluate("(place, given) => place.setAttribute(...given)", [name, value])

        await expect(part(page, "heading")).to_have_js_property("textContent", f"Running: {text}")
        assert await element.evaluate(SHOWN) == [text] * 3
        await by_hand.fails(text)
        await expect(part(page, "heading")).to_have_text("Failed")
        await expect(part(page, "message")).to_have_js_property("textContent", text)
        assert await element.locator("img, script, svg, iframe, style, math, b").count() == 0


async def test_only_a_web_address_is_offered(site: Site, page: Page) -> None:
    async with embedded(site, upgrade_url="javascript:alert(1)") as embedding:
        url = await embedding.link(tier="bootstrapper")
        await page.goto(embedding.site.add(place(url)))

        await expect(part(page, "heading")).to_have_text("You are #1 in queue")
        assert await page.locator("qo-place").evaluate("(place) => place.state.upgrade_url") == "javascript:alert(1)"
        await expect(part(page, "upgrade")).to_be_hidden()
        await expect(part(page, "upgrade")).to_have_attribute("href", "")


async def test_only_a_web_address_is_watched(embedding: Embedding, page: Page) -> None:
    sources = ("javascript:alert(1)", "data:text/event-stream,data: x", "http://[", "")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))

    url = embedding.site.add("".join(map(place, sources)))
    await page.goto(url)

    assert asked == [url, f"{embedding.site.qo}/widget.js"]
    for each in await page.locator("qo-place").all():
        assert await each.evaluate("(place) => place.state") is None
        await expect(each.locator("[part~=card]")).to_be_hidden()
        await expect(each.get_by_text(INNER_TEXT)).to_be_visible()
