"""A press on a button of the line acts on the row that it began on, also when that row is drawn elsewhere meanwhile."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from tests.dashboard.reading import ROWS, row
from tests.dashboard.test_storm import Storm
from tests.service.conftest import Service

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def press_the_fifth_while_the_list_scrolls(page: Page, served: Service, *, move_by: int) -> str:
    """The list scrolls by one row under the pointer while it is down. Returns the id of the fifth row before that."""
    await Storm(served.queue, seed=3).submit(60)
    await page.goto("/")
    job_id = await page.locator(ROWS).nth(4).get_attribute("data-id")
    assert job_id is not None
    box = await row(page, job_id).locator(".cancel").bounding_box()
    assert box is not None
    await page.mouse.move(box["x"] + 10, box["y"] + 10)
    await page.mouse.down()
    await page.locator(".scroller").evaluate("element => { element.scrollTop += 46 }")
    assert await row(page, job_id).locator(".cancel").bounding_box() == box | {"y": box["y"] - 46}
    await page.mouse.move(box["x"] + 10, box["y"] + 10 + move_by)
    await page.mouse.up()
    return job_id


async def test_a_press_asks_about_the_row_it_began_on_although_that_has_moved(page: Page, served: Service) -> None:
    fifth = await press_the_fifth_while_the_list_scrolls(page, served, move_by=0)

    await expect(page.locator(f"{ROWS}:has(.asks)")).to_have_attribute("data-id", fifth)


async def test_a_pointer_that_is_moved_away_before_it_comes_up_presses_nothing(page: Page, served: Service) -> None:
    await press_the_fifth_while_the_list_scrolls(page, served, move_by=20)

    # Whatever the press has changed is drawn by then.
    await page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    await expect(page.locator(f"{ROWS}:has(.asks)")).to_have_count(0)
