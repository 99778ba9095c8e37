"""The page of the line: its order, its words, and the three ways to move a job."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Page, expect

import qo
from tests.dashboard.reading import expect_ids, ids_shown, open_line, row, said
from tests.service.conftest import Service

pytestmark = pytest.mark.asyncio(loop_scope="session")
HOSTILE = "<img src=x onerror=alert(1)>"


async def submit(queue: qo.Queue, *ids: str) -> None:
    for job_id in ids:
        await queue.submit("build", id=job_id, user="ada")


async def order_in_store(queue: qo.Queue) -> list[str]:
    return [job.id for job in await queue.jobs(status="queued")]


async def test_the_rows_are_in_the_order_of_the_store(page: Page, served: Service) -> None:
    for number, priority in enumerate(["background", "normal", "urgent", "normal", "high"]):
        await served.queue.submit("build", id=f"j{number}", priority=priority)

    await open_line(page, rows=5)

    assert await ids_shown(page) == await order_in_store(served.queue) == ["j2", "j4", "j1", "j3", "j0"]
    await expect(row(page, "j4")).to_have_attribute("aria-label", re.compile("^Position #2 in queue: build"))
    await expect(row(page, "j2")).to_contain_text("▲▲ urgent")


async def test_a_drag_moves_a_job_before_the_row_it_is_dropped_on(page: Page, served: Service) -> None:
    await submit(served.queue, "a", "b", "c", "d")
    await open_line(page, rows=4)

    await row(page, "d").locator(".handle").hover()
    await page.mouse.down()
    box = await row(page, "b").bounding_box()
    assert box is not None
    for step in (40, 20, 2):
        await page.mouse.move(box["x"] + 30, box["y"] + step)
    await page.mouse.up()

    await expect_ids(page, "a", "d", "b", "c")
    assert await order_in_store(served.queue) == ["a", "d", "b", "c"]


async def test_the_keyboard_moves_a_job_and_says_so(page: Page, served: Service) -> None:
    await submit(served.queue, "a", "b", "c", "d")
    await open_line(page, rows=4)

    await row(page, "a").focus()
    await page.keyboard.press("ArrowDown")
    await expect(row(page, "b")).to_be_focused()
    await page.keyboard.press("Space")
    await said(page, "build b picked up at place 2 of 4")
    await page.keyboard.press("End")
    await said(page, "Place 4 of 4")
    await expect_ids(page, "a", "c", "d", "b")
    await page.keyboard.press("ArrowUp")
    await page.keyboard.press("Space")

    await said(page, "build b moved from place 2 to 3 of 4")
    assert await order_in_store(served.queue) == ["a", "c", "b", "d"]
    await expect(row(page, "b")).to_be_focused()


async def test_escape_puts_a_row_back(page: Page, served: Service) -> None:
    await submit(served.queue, "a", "b", "c")
    await open_line(page, rows=3)

    await row(page, "a").focus()
    await page.keyboard.press("Space")
    await page.keyboard.press("End")
    await expect_ids(page, "b", "c", "a")
    await page.keyboard.press("Escape")

    await expect_ids(page, "a", "b", "c")
    await said(page, "build a is back at place 1")
    assert await order_in_store(served.queue) == ["a", "b", "c"]


async def test_the_menu_moves_a_job(page: Page, served: Service) -> None:
    await submit(served.queue, "a", "b", "c", "d")
    await open_line(page, rows=4)

    await row(page, "d").get_by_role("button", name="Move build d").click()
    await page.get_by_role("button", name="To the front").click()
    await expect_ids(page, "d", "a", "b", "c")

    await row(page, "d").get_by_role("button", name="Move build d").click()
    await page.get_by_label("To place").locator("visible=true").fill("3")
    await page.keyboard.press("Enter")
    await expect_ids(page, "a", "b", "d", "c")
    assert await order_in_store(served.queue) == ["a", "b", "d", "c"]


async def test_a_move_beside_a_job_that_has_started_offers_the_nearest_place(page: Page, served: Service) -> None:
    await submit(served.queue, "a", "b", "c", "d")
    await open_line(page, rows=4)
    await row(page, "d").focus()
    await page.keyboard.press("Space")
    await page.keyboard.press("Home")
    await served.queue.cancel("a")  # as good as a start: it is no longer in line

    await page.keyboard.press("Space")

    offer = page.get_by_role("button", name="Move it before build b")
    await offer.click()
    await expect_ids(page, "d", "b", "c")


async def test_cancel_asks_once_in_place(page: Page, served: Service) -> None:
    await submit(served.queue, "a", "b")
    await open_line(page, rows=2)

    await row(page, "a").get_by_role("button", name="Cancel build a").click()
    await row(page, "a").get_by_role("button", name="Cancel job").click()

    await expect_ids(page, "b")
    assert (await served.queue.get("a")).state == "cancelled"


async def test_a_priority_is_changed_in_place(page: Page, served: Service) -> None:
    await submit(served.queue, "a", "b")
    await open_line(page, rows=2)

    await row(page, "b").get_by_role("button", name="Priority normal").click()
    await page.get_by_role("menuitem", name="urgent").locator("visible=true").click()

    await expect_ids(page, "b", "a")
    assert (await served.queue.get("b")).priority == 10


async def test_hostile_names_are_shown_as_text(page: Page, served: Service) -> None:
    await served.queue.submit("build", id="x", user=HOSTILE, project=HOSTILE, groups=[HOSTILE])
    await served.queue.set_limit(HOSTILE, 0)
    await open_line(page, rows=1)

    await expect(row(page, "x")).to_contain_text(HOSTILE)
    assert await page.locator("img").count() == 0


async def test_a_move_and_a_priority_can_be_undone(page: Page, served: Service) -> None:
    await submit(served.queue, "a", "b", "c")
    await open_line(page, rows=3)

    await row(page, "c").get_by_role("button", name="Move build c").click()
    await page.get_by_role("button", name="To the front").click()
    await expect_ids(page, "c", "a", "b")
    await page.get_by_role("button", name="Undo").click()
    await expect_ids(page, "a", "b", "c")
    await said(page, "Undone.")

    await row(page, "b").get_by_role("button", name="Priority normal").click()
    await page.get_by_role("menuitem", name="high").locator("visible=true").click()
    await expect_ids(page, "b", "a", "c")
    await page.get_by_role("button", name="Undo").click()
    await expect_ids(page, "a", "b", "c")


async def test_a_pause_of_everything_can_be_undone(page: Page, served: Service) -> None:
    await page.goto("/")
    await page.get_by_role("button", name="Pause all").click()
    await expect(page.get_by_role("button", name="Resume all")).to_be_visible()
    assert (await served.queue.limit("global")).paused

    await page.get_by_role("button", name="Undo").click()

    await expect(page.get_by_role("button", name="Pause all")).to_be_visible()
    assert not (await served.queue.limit("global")).paused
