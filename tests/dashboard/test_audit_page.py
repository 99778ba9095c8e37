"""The page of the audit trail: who changed what, newest first."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from tests.service.conftest import Service

# Nightly, to keep the gate short: the pages of the line and of a job are tested at every change.
pytestmark = pytest.mark.asyncio(loop_scope="session")
HOSTILE = "<img src=x onerror=alert(1)>"
ENTRIES = "ol.audit-list > li:not(.day)"


async def test_changes_are_listed_newest_first_with_old_and_new_values(page: Page, served: Service) -> None:
    await served.queue.set_limit("provider", 4, by="ops")
    await served.queue.set_limit("provider", 2, by="ops")
    await served.queue.submit("build", id="one", by="ada")
    await served.queue.set_priority("one", "urgent", by="eve")

    await page.goto("/#/audit")

    entries = page.locator(ENTRIES)
    await expect(entries).to_have_count(4)
    await expect(entries.nth(0)).to_contain_text("eve")
    await expect(entries.nth(0)).to_contain_text("normal → urgent")
    await expect(entries.nth(2)).to_contain_text("4 → 2")
    await entries.nth(0).get_by_role("link", name="one").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("build")


async def test_the_trail_is_narrowed_and_the_address_has_it(page: Page, served: Service) -> None:
    await served.queue.submit("build", id="one", by="ada")
    await served.queue.submit("build", id="two", by="ben")
    await served.queue.pause("build", by="ada")
    await page.goto("/#/audit")
    await expect(page.locator(ENTRIES)).to_have_count(3)

    await page.get_by_label("What").select_option("everything but submits")
    await expect(page.locator(ENTRIES)).to_have_count(1)
    await page.get_by_role("button", name="show all").click()
    await page.get_by_label("By").fill("ben")
    await expect(page.locator(ENTRIES)).to_have_count(1)
    assert page.url.endswith("#/audit?by=ben")
    await page.goto("/#/audit?target=one")
    await expect(page.locator(ENTRIES)).to_have_count(1)


async def test_a_change_appears_while_the_page_is_open(page: Page, served: Service) -> None:
    await page.goto("/#/audit")
    await expect(page.get_by_text("Nobody has changed anything yet.")).to_be_visible()

    await served.queue.submit("build", id="one", by="ada")

    await expect(page.locator(ENTRIES)).to_have_count(1, timeout=10_000)


async def test_a_change_is_undone_while_that_is_possible(page: Page, served: Service) -> None:
    await page.goto("/#/audit")
    await expect(page.get_by_text("Nobody has changed anything yet.")).to_be_visible()
    await served.client.post("/api/queue/pause", json={"group": "provider"})
    await served.queue.submit("build", id="one")  # the page looks again when something happens in the line

    await page.get_by_role("button", name="Undo").click(timeout=9000)

    await expect(page.get_by_text("Undone.").first).to_be_attached()
    assert not (await served.queue.limit("provider")).paused
    await expect(page.locator(ENTRIES).first).to_contain_text("undo", timeout=10_000)


async def test_hostile_names_are_shown_as_text(page: Page, served: Service) -> None:
    await served.queue.submit("build", id=HOSTILE, by=HOSTILE)
    await served.queue.pause(HOSTILE, by=HOSTILE)
    await page.goto("/#/audit")

    await expect(page.locator(ENTRIES)).to_have_count(2)
    await expect(page.locator(ENTRIES).first).to_contain_text(HOSTILE)
    assert await page.locator("img").count() == 0
