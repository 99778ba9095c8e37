"""A page of another origin in a real Chromium, and the qo server that it asks."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page

from qo.queue import positions
from tests.service.widget.embedding import Embedding, embedded, watched_page
from tests.service.widget.site import Site, open_site

UPGRADE_URL = "https://example.com/more"


@pytest.fixture(autouse=True)
def _positions_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(positions, "TICK_SECONDS", 0.01)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def site() -> AsyncIterator[Site]:
    async with open_site() as site:
        yield site


@pytest_asyncio.fixture(loop_scope="session")
async def embedding(site: Site) -> AsyncIterator[Embedding]:
    async with embedded(site, upgrade_url=UPGRADE_URL) as embedding:
        yield embedding


@pytest_asyncio.fixture(loop_scope="session")
async def page(browser: Browser) -> AsyncIterator[Page]:
    async with watched_page(browser) as page:
        yield page
