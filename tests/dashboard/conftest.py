"""The dashboard as people use it: a real Chromium, started once, on a real server of a queue in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio
from playwright.async_api import Browser, ConsoleMessage, Page

import qo
from tests.browser import chromium
from tests.service.conftest import Service, running_service


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="session")
async def served() -> AsyncIterator[Service]:
    settings = {"server": {"port": 0}}
    async with await qo.connect("memory://", settings=settings) as queue, running_service(queue) as served:
        yield served


class Complaints:
    """Everything that a browser complains about: errors of scripts, refused requests, violations of the policy."""

    def __init__(self, page: Page) -> None:
        self.texts: list[str] = []
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.texts.append(str(error)))
        page.on("dialog", lambda dialog: self.texts.append(f"dialog {dialog.message}"))

    def _heard(self, message: ConsoleMessage) -> None:
        address = str(message.location.get("url"))
        # A browser reports every refusal of the API, also those that the page has asked for and deals with.
        is_refusal = message.text.startswith("Failed to load resource") and "/api/" in address
        if message.type in ("error", "warning") and not is_refusal:
            self.texts.append(f"{message.text} ({address})")


@pytest_asyncio.fixture(loop_scope="session")
async def page(browser: Browser, served: Service) -> AsyncIterator[Page]:
    """A page of a fresh profile, whose addresses are relative to the server. Afterwards the browser has nothing to
    complain about."""
    context = await browser.new_context(
        base_url=str(served.client.base_url), viewport={"width": 1280, "height": 900}, reduced_motion="reduce"
    )
    page = await context.new_page()
    complaints = Complaints(page)
    yield page
    await context.close()
    assert complaints.texts == []
