"""The parts of a test together: the service, the site that shows its jobs, and a page that notes what must not be."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from playwright.async_api import Browser, Locator, Page

import qo
from tests.service.conftest import Service, running_service
from tests.service.widget.relay import Relay, relaying
from tests.service.widget.site import Site
from tests.worker.running import until

NOTING = """
window.heard = [];
window.violations = [];
window.sources = [];
window.EventSource = class extends EventSource {
  constructor(...given) {
    super(...given);
    sources.push(this);
  }
};
document.addEventListener('securitypolicyviolation', (event) => violations.push(event.violatedDirective));
for (const name of ['qo-change', 'qo-end']) {
  document.addEventListener(name, ({ target, detail, composed }) => {
    heard.push([name, target.id, detail.state, detail.position, composed]);
  });
}
"""
"""Runs before the page, outside of its policy."""


class Embedding:
    def __init__(self, service: Service, site: Site, relay: Relay) -> None:
        self.service = service
        self.queue = service.queue
        self.site = site
        self.relay = relay

    async def link(self, **fields: object) -> str:
        """The watch link of a job that is submitted now."""
        made = await self.service.client.post("/api/jobs", json={"task": "build", "user": "u1", **fields})
        made.raise_for_status()
        url: str = made.json()["watch_url"]
        return url

    async def open_streams(self) -> int:
        """How many the server counts."""
        text = (await self.service.client.get("/metrics")).text
        found = re.search(r"^qo_streams_open ([0-9]+)", text, re.MULTILINE)
        assert found is not None
        return int(found[1])

    @asynccontextmanager
    async def taken_streams(self, url: str, count: int) -> AsyncIterator[None]:
        """So many streams of this link are open beside the block."""
        async with AsyncExitStack() as stack:
            for _ in range(count):
                stream = self.service.client.stream("GET", url, headers={"Accept": "text/event-stream"})
                await stack.enter_async_context(stream)
            yield

    async def has_open_streams(self, count: int) -> None:
        """Wait until the server counts so many."""

        async def reached() -> bool:
            return await self.open_streams() == count

        await until(reached)


@asynccontextmanager
async def embedded(site: Site, *, upgrade_url: str) -> AsyncIterator[Embedding]:
    """A service for this one test, which the pages of the site may ask."""
    async with relaying() as relay:
        site.qo = relay.url
        settings = {
            "server": {"port": 0, "public_url": relay.url, "widget_origins": [site.origin]},
            "queue": {"upgrade_url": upgrade_url},
        }
        async with await qo.connect("memory://", settings=settings) as queue, running_service(queue) as service:
            port = service.client.base_url.port
            assert port is not None
            relay.target_port = port
            yield Embedding(service, site, relay)


@asynccontextmanager
async def watched_page(browser: Browser, **options: Any) -> AsyncIterator[Page]:
    """A page in a profile of its own. Fails when a script had an error, a dialog opened, or the policy was violated."""
    wrong: list[str] = []
    context = await browser.new_context(**options)
    try:
        await context.add_init_script(NOTING)
        page = await context.new_page()
        page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        page.on("dialog", lambda dialog: wrong.append(f"dialog: {dialog.message}"))
        yield page
        if options.get("java_script_enabled", True):
            wrong += await page.evaluate("violations")
        assert wrong == []
    finally:
        await context.close()


async def heard(page: Page) -> list[tuple[str, str, str, int | None, bool]]:
    """The events that reached the document: name, id of the element, state, position, composed."""
    return [tuple(each) for each in await page.evaluate("heard")]


def part(page: Page, name: str) -> Locator:
    """A part of the only element of a page."""
    return page.locator(f"qo-place [part~={name}]")


async def open_sources(page: Page) -> tuple[int, int]:
    """How many connections the page has made, and how many of them it has not closed."""
    made, not_closed = await page.evaluate("[sources.length, sources.filter((each) => each.readyState < 2).length]")
    return made, not_closed
