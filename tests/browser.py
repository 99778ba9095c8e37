"""A real Chromium for tests of pages: found on this machine, started once, a fresh profile for each page."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from playwright.async_api import Browser, async_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = (
    "--no-sandbox",  # containers of a CI seldom allow Chromium's own
    "--disable-gpu",
    # Nothing but the pages of the tests: a test must not depend on a network.
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class NoBrowser(Exception):
    """Says what to install."""


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """One browser for as long as the block runs. Its pages belong to the event loop of the block."""
    async with async_playwright() as playwright:
        executable = find_chromium(Path(playwright.chromium.executable_path))
        browser = await playwright.chromium.launch(executable_path=executable, args=ARGUMENTS)
        try:
            yield browser
        finally:
            await browser.close()


def find_chromium(of_playwright: Path) -> str:
    """The system's Chromium, else that of playwright, if it was installed. Raises `NoBrowser`."""
    for name in NAMES:
        if (found := shutil.which(name)) is not None:
            return found
    if of_playwright.exists():
        return str(of_playwright)
    raise NoBrowser(
        f"None of {', '.join(NAMES)} is on PATH, and playwright has no browser of its own; install the system's "
        "package (`apt install chromium`), or run `python -m playwright install chromium`."
    )
