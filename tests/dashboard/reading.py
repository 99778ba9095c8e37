"""What a page of the dashboard shows, as a person reads it."""

from __future__ import annotations

from playwright.async_api import Locator, Page, expect

ROWS = "ol.rows > li[data-id]"


async def open_line(page: Page, *, rows: int) -> None:
    """Open the page of the line and wait until it shows so many rows."""
    await page.goto("/")
    await expect(page.locator(ROWS)).to_have_count(rows)


async def ids_shown(page: Page) -> list[str]:
    """The ids of the rows from top to bottom, by where they are on the screen."""
    found: list[str] = await page.locator(ROWS).evaluate_all(
        "rows => rows.map(row => [row.getBoundingClientRect().top, row.dataset.id]).sort((a, b) => a[0] - b[0])"
        ".map(each => each[1])"
    )
    return found


async def expect_ids(page: Page, *ids: str) -> None:
    """Wait until exactly these rows are shown, in this order."""
    await page.wait_for_function(
        f"ids => {{ const rows = [...document.querySelectorAll({ROWS!r})].map(row => [row.getBoundingClientRect().top,"
        " row.dataset.id]).sort((a, b) => a[0] - b[0]).map(each => each[1]);"
        " return rows.length === ids.length && rows.every((id, at) => id === ids[at]) }",
        arg=list(ids),
        timeout=10_000,
    )


def row(page: Page, job_id: str) -> Locator:
    return page.locator(f'[data-id="{job_id}"]')


async def said(page: Page, text: str) -> None:
    """Wait until the live region says this."""
    await expect(page.locator("#said")).to_contain_text(text)
