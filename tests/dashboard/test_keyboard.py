"""The focus stays where a person left it: nobody has to find their way back after each action."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

import qo
from qo.service.access.caller import Role
from tests.dashboard.reading import expect_ids, open_line, row, said
from tests.dashboard.staging import register
from tests.service.conftest import Service

pytestmark = pytest.mark.asyncio(loop_scope="session")
TAB_STOPS = """
() => [...document.querySelectorAll('ol.rows > li')].filter((row) => [row, ...row.querySelectorAll('a, button')]
  .some((each) => each.tabIndex === 0 && each.checkVisibility())).length
"""


async def submit(queue: qo.Queue, *ids: str) -> None:
    for job_id in ids:
        await queue.submit("build", id=job_id, user="ada")


async def test_only_one_row_of_the_line_is_on_the_way_of_the_tab_key(page: Page, served: Service) -> None:
    await submit(served.queue, "a", "b", "c")
    await open_line(page, rows=3)

    assert await page.evaluate(TAB_STOPS) == 1


async def test_a_page_is_left_by_a_link_in_a_row(page: Page, served: Service) -> None:
    await submit(served.queue, "a", "b")
    await open_line(page, rows=2)

    await row(page, "b").get_by_role("link").click()

    await expect(page.get_by_role("heading", name="Place in line")).to_be_visible()


async def test_undo_by_the_button_gives_the_focus_back_to_the_row(page: Page, served: Service) -> None:
    await submit(served.queue, "a", "b", "c")
    await open_line(page, rows=3)
    await row(page, "c").focus()
    for key in ("Space", "Home", "Space"):
        await page.keyboard.press(key)
    await expect_ids(page, "c", "a", "b")

    undo = page.get_by_role("button", name="Undo")
    await undo.focus()
    await page.keyboard.press("Enter")

    await expect_ids(page, "a", "b", "c")
    await expect(row(page, "c")).to_be_focused()


async def test_the_key_u_undoes_what_was_done_last(page: Page, served: Service) -> None:
    await submit(served.queue, "a", "b", "c")
    await open_line(page, rows=3)
    await row(page, "c").focus()
    for key in ("Space", "Home", "Space"):
        await page.keyboard.press(key)
    await expect(page.get_by_role("button", name="Undo")).to_be_visible()

    await page.keyboard.press("u")

    await expect_ids(page, "a", "b", "c")
    await said(page, "Undone.")
    await page.keyboard.press("u")
    await said(page, "There is nothing to undo.")


async def test_arrows_go_through_any_list_from_a_row_that_has_the_focus(page: Page, served: Service) -> None:
    await submit(served.queue, "a", "b", "c")
    await page.goto("/#/jobs")

    await row(page, "a").focus()
    await page.keyboard.press("ArrowDown")
    await expect(row(page, "b")).to_be_focused()
    await page.keyboard.press("ArrowUp")

    await expect(row(page, "a")).to_be_focused()


async def test_suggestions_do_not_cover_what_was_found(page: Page, served: Service) -> None:
    await submit(served.queue, "a", "b")
    await page.goto("/#/jobs")
    box = page.get_by_role("combobox", name="Find jobs")
    await box.fill("user:ada")
    await expect(page.get_by_role("listbox")).to_be_visible()

    await page.keyboard.press("Enter")

    await expect(page.get_by_role("button", name="Remove user:ada")).to_be_visible()
    await expect(page.get_by_role("listbox")).to_be_hidden()
    await box.click()
    await expect(page.get_by_role("listbox")).to_be_visible()


async def test_an_action_on_many_takes_the_focus_and_gives_it_back(page: Page, served: Service) -> None:
    await submit(served.queue, "a", "b")
    await page.goto("/#/jobs")
    box = page.get_by_role("checkbox", name="Select this page")
    await box.check()

    await page.get_by_role("button", name="Cancel …").click()
    await expect(page.get_by_role("button", name="Leave them")).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(box).to_be_focused()

    await page.get_by_role("button", name="Cancel …").click()
    await page.get_by_role("button", name="Cancel 2 jobs").click()
    await expect(page.get_by_role("group", name="Progress of the action")).to_be_focused()
    await page.get_by_role("button", name="Close").first.click()
    await expect(box).to_be_focused()


async def test_a_button_that_has_done_its_work_keeps_the_focus(page: Page, served: Service) -> None:
    await served.queue.set_limit("gpu", 2)
    await page.goto("/#/groups/gpu?limit=3")
    await page.get_by_role("button", name="Set limit to 3").press("Enter")
    await said(page, "gpu has a limit of 3 now.")
    await expect(page.get_by_role("button", name="Set limit")).to_be_focused()

    await page.goto("/#/submit?task=build")
    await page.get_by_role("button", name="Submit", exact=True).press("Enter")
    await expect(page.get_by_role("heading", name="Submitted")).to_be_visible()
    await expect(page.get_by_role("button", name="Submit", exact=True)).to_be_focused()


async def test_after_signing_in_the_focus_is_on_the_page(page: Page, served: Service) -> None:
    key = (await served.key(Role.ADMIN))["Authorization"].removeprefix("Bearer ")
    await page.goto("/")
    await page.get_by_label("API key").fill(key)
    await page.keyboard.press("Enter")

    await expect(page.get_by_role("main")).to_be_focused()


async def test_a_question_on_a_users_page_says_what_happens_and_gives_the_focus_back(
    page: Page, served: Service
) -> None:
    await register(served.queue, "worker-1")
    for job_id in ("mine", "next"):
        await served.queue.submit("build", id=job_id, user="u1")
    key = (await served.key(Role.USER, user="u1"))["Authorization"].removeprefix("Bearer ")
    await page.goto("/")
    await page.get_by_label("API key").fill(key)
    await page.keyboard.press("Enter")
    cancel = page.get_by_role("button", name="Cancel build mine")

    await cancel.click()
    await expect(page.get_by_role("group", name="Cancel build mine")).to_contain_text("It leaves the line")
    await page.keyboard.press("Escape")

    await expect(cancel).to_be_focused()
    await page.keyboard.press("j")
    await expect(page.get_by_role("listitem", name="position #2 in queue")).to_be_focused()
