"""The page that finds jobs: the box, the counts, and acting on many."""

from __future__ import annotations

import pytest
from playwright.async_api import Locator, Page, expect

from qo.service.access.caller import Role
from qo.service.routes import actions
from tests.dashboard.by_hand import run_and_fail, run_and_succeed
from tests.dashboard.reading import said
from tests.dashboard.test_access import sign_in
from tests.service.conftest import Service

# Nightly, to keep the gate short: the pages of the line and of a job are tested at every change.
pytestmark = pytest.mark.asyncio(loop_scope="session")
HOSTILE = "<img src=x onerror=alert(1)>"
ROWS = "ol.found > li"


def box(page: Page) -> Locator:
    return page.get_by_role("combobox", name="Find jobs")


async def a_few_jobs(served: Service) -> None:
    for user, count in (("ada", 3), ("ben", 2)):
        for number in range(count):
            await served.queue.submit("build", id=f"{user}-{number}", user=user)
    await served.queue.submit("export", id="ada-x", user="ada")
    await served.queue.cancel("ben-1")


async def expect_ids(page: Page, *ids: str) -> None:
    await expect(page.locator(ROWS)).to_have_count(len(ids))
    found = await page.locator(ROWS).evaluate_all("rows => rows.map(row => row.dataset.id)")
    assert sorted(found) == sorted(ids)


async def test_typed_words_become_chips_in_the_address_and_back_works(page: Page, served: Service) -> None:
    await a_few_jobs(served)
    await page.goto("/#/jobs")
    await expect(page.get_by_role("heading", name="6 jobs", exact=True)).to_be_visible()

    await page.keyboard.press("/")
    await page.keyboard.type("task:build user:ada")
    await page.keyboard.press("Enter")

    await expect_ids(page, "ada-0", "ada-1", "ada-2")
    await expect(page.get_by_role("heading", name="3 jobs of task build, of ada")).to_be_visible()
    assert page.url.endswith("#/jobs?task=build&user=ada")
    await page.get_by_role("button", name="Remove task:build").click()
    await expect_ids(page, "ada-0", "ada-1", "ada-2", "ada-x")
    await box(page).press("Backspace")
    await expect_ids(page, "ada-0", "ada-1", "ada-2", "ada-x", "ben-0", "ben-1")
    await page.go_back()
    await expect_ids(page, "ada-0", "ada-1", "ada-2", "ada-x")


async def test_suggestions_are_chosen_with_the_keyboard(page: Page, served: Service) -> None:
    await a_few_jobs(served)
    await page.goto("/#/jobs")
    await expect(page.locator(ROWS)).to_have_count(6)

    await box(page).fill("user:b")
    await expect(page.get_by_role("option")).to_have_text(["user:ben", "user:b"])
    await page.keyboard.press("ArrowDown")
    await expect(page.get_by_role("option", name="user:ben")).to_have_attribute("aria-selected", "true")
    await page.keyboard.press("Enter")

    await expect_ids(page, "ben-0", "ben-1")
    await box(page).fill("id:ada-")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("No jobs of ben, whose id begins with ada-.")).to_be_visible()


async def test_counts_follow_the_filter_and_choose_a_state(page: Page, served: Service) -> None:
    await a_few_jobs(served)
    await page.goto("/#/jobs?user=ben")

    states = page.get_by_role("region", name="By state")
    await expect(states.get_by_role("button")).to_have_text(["○ queued 1", "⊘ cancelled 1"])
    await states.get_by_role("button", name="cancelled").click()

    await expect(page.get_by_role("heading", name="1 cancelled job of ben")).to_be_visible()
    await expect_ids(page, "ben-1")
    await expect(states.get_by_role("button", name="cancelled")).to_have_attribute("aria-pressed", "true")


async def test_rows_hold_still_and_what_is_new_waits_to_be_asked_for(page: Page, served: Service) -> None:
    await served.queue.submit("build", id="first")
    await page.goto("/#/jobs?state=queued")
    await expect_ids(page, "first")

    await served.queue.submit("build", id="second")
    await page.get_by_role("button", name="Something new matches").click()
    await expect_ids(page, "first", "second")
    await served.queue.cancel("first")

    await expect(page.locator('[data-id="first"]')).to_contain_text("cancelled")
    await expect_ids(page, "first", "second")


async def test_only_what_the_states_allow_is_offered(page: Page, served: Service) -> None:
    await served.queue.submit("build", id="good")
    await run_and_succeed(served.queue, {})
    await served.queue.submit("build", id="bad")
    await run_and_fail(served.queue, "No.", "No.")
    await page.goto("/#/jobs")
    await expect(page.locator(ROWS)).to_have_count(2)
    selection = page.get_by_role("group", name="Selection")

    await page.get_by_label("Select build good").check()
    await expect(selection).to_contain_text("Nothing can be done")
    await page.get_by_label("Select build bad").check()
    await expect(selection.get_by_role("button")).to_have_text(["Retry …"])


async def test_all_that_match_are_cancelled_after_a_dry_run_in_portions(
    page: Page, served: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actions, "MOST_AT_ONCE", 40)
    for number in range(58):
        await served.queue.submit("build", id=f"j{number:02}", user="ada")
    await served.queue.submit("build", id="other", user="ben")
    await served.queue.cancel("j57")
    await page.goto("/#/jobs?user=ada")
    await expect(page.locator(ROWS)).to_have_count(50)

    await page.get_by_label("Select this page").check()
    await page.get_by_role("button", name="Select all 58 that match").click()
    await page.get_by_role("button", name="Cancel …").click()
    asked = page.get_by_role("group", name="Confirm the action")
    await expect(asked).to_contain_text("Cancel 57 jobs? Jobs in line leave it")
    await expect(asked).to_contain_text("1 job will be skipped: it has ended (cancelled)")
    assert (await served.queue.get("j00")).state == "queued"
    await asked.get_by_role("button", name="Cancel 57 jobs").click()

    await said(page, "57 jobs cancelled, 1 skipped.")
    done = page.get_by_role("group", name="Progress of the action")
    await expect(done).to_contain_text("57 of 57 jobs cancelled.")
    await expect(done.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "57")
    assert {job.id for job in await served.queue.jobs(status="queued")} == {"other"}


async def test_a_page_is_selected_and_its_priority_changed(page: Page, served: Service) -> None:
    await a_few_jobs(served)
    await page.goto("/#/jobs?user=ben")
    await expect(page.locator(ROWS)).to_have_count(2)

    await page.get_by_label("Select this page").check()
    await page.get_by_role("button", name="Give another priority").click()
    await page.get_by_role("menuitem", name="urgent").click()
    await page.get_by_role("button", name="Give 1 job the priority urgent").click()

    await said(page, "1 job given the priority urgent, 1 skipped.")
    assert (await served.queue.get("ben-0")).priority == 10


async def test_rows_are_walked_selected_and_opened_with_the_keyboard(page: Page, served: Service) -> None:
    await a_few_jobs(served)
    await page.goto("/#/jobs?user=ben")
    await expect(page.locator(ROWS)).to_have_count(2)

    await page.keyboard.press("j")
    await page.keyboard.press("j")
    await expect(page.locator(ROWS).nth(1)).to_be_focused()
    await page.keyboard.press("Space")
    await expect(page.locator(ROWS).nth(1).get_by_role("checkbox")).to_be_checked()
    await page.keyboard.press("k")
    await page.keyboard.press("Enter")

    await expect(page.get_by_role("heading", level=1)).to_have_text("build")


async def test_places_in_line_are_those_of_the_store_after_jobs_ahead_have_gone(page: Page, served: Service) -> None:
    for number in range(3):
        await served.queue.submit("build", id=f"j{number}")
    await page.goto("/#/jobs")
    await expect(page.locator('[data-id="j2"]')).to_contain_text("#3 in line")

    await served.queue.cancel("j0")

    await expect(page.locator('[data-id="j2"]')).to_contain_text("#2 in line", timeout=15_000)


async def test_pages_are_in_the_address(page: Page, served: Service) -> None:
    for number in range(60):
        await served.queue.submit("build", id=f"j{number:02}")
    await page.goto("/#/jobs")
    await expect(page.locator(ROWS)).to_have_count(50)

    await page.get_by_role("link", name="Next page").click()
    await expect(page.locator(ROWS)).to_have_count(10)
    await page.go_back()

    await expect(page.locator(ROWS)).to_have_count(50)


async def test_a_viewer_selects_nothing(page: Page, served: Service) -> None:
    await served.queue.submit("build", id="one")
    await sign_in(page, served, Role.VIEWER)
    await page.goto("/#/jobs")

    await expect(page.locator(ROWS)).to_have_count(1)
    assert await page.get_by_role("checkbox").count() == 0


async def test_hostile_names_are_shown_as_text(page: Page, served: Service) -> None:
    await served.queue.submit("build", id=HOSTILE, user=HOSTILE, project=HOSTILE)
    await page.goto("/#/jobs")
    await expect(page.locator(ROWS)).to_contain_text(HOSTILE)

    await box(page).fill("user:<")
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Enter")

    await expect(page.get_by_role("heading", name=f"1 job of {HOSTILE}")).to_be_visible()
    assert await page.locator("img").count() == 0
