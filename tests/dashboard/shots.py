"""Pictures of every page of the dashboard, in both widths and both themes, with the demo at work.

python -m tests.dashboard.shots FOLDER
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path

import httpx
from playwright.async_api import Browser

from tests.browser import chromium
from tests.processes import Process

PAGES = {
    "line": "",
    "jobs": "#/jobs",
    "groups": "#/groups",
    "insight": "#/insight",
    "history": "#/history",
    "workers": "#/workers",
    "audit": "#/audit",
    "submit": "#/submit",
}
WIDTHS = (1440, 360)
THEMES = ("light", "dark")
DEMO_SECONDS = 60.0
"""So long the demo runs before the first picture, so that there is something to see."""
SETTLE_MS = 4000


async def main(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as place:
        command = [sys.executable, "-m", "qo", "up", "--demo", "--url", f"sqlite:///{place}/demo.db", "--port", "0"]
        with Process(command, stderr=subprocess.STDOUT) as demo:
            url = (await demo.line_with("qo is at ")).partition("qo is at ")[2].split()[0]
            await asyncio.sleep(DEMO_SECONDS)
            async with chromium() as browser:
                for width in WIDTHS:
                    for theme in THEMES:
                        pages = PAGES | await of_one(url)
                        await take(browser, url, pages, folder, width=width, theme=theme)


async def of_one(url: str) -> dict[str, str]:
    """Pages of one group and of jobs in several states, as far as the demo has such jobs now."""
    pages = {"group": "#/groups/provider:ollama"}
    async with httpx.AsyncClient(base_url=url) as client:
        for state in ("confirming", "failed", "queued"):
            for job in (await client.get("/api/jobs", params={"status": state, "limit": 1})).json()["items"]:
                pages[f"job-{state}"] = f"#/jobs/{job['id']}"
    return pages


async def take(browser: Browser, url: str, pages: dict[str, str], folder: Path, *, width: int, theme: str) -> None:
    context = await browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme="dark" if theme == "dark" else "light"
    )
    page = await context.new_page()
    for name, address in pages.items():
        await page.goto(f"{url}/{address}")
        await page.wait_for_timeout(SETTLE_MS)
        await page.screenshot(path=folder / f"{name}-{theme}-{width}.png", full_page=True)
    await context.close()


if __name__ == "__main__":
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    asyncio.run(main(Path(sys.argv[1])))
