"""Jobs and groups with names that addresses have a meaning for can be opened and changed like all others."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from tests.dashboard.reading import open_line, row
from tests.service.conftest import Service

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize("name", ["..", "a/b", "%2E%2E"])
async def test_a_job_and_a_group_of_this_name_are_opened_and_changed(page: Page, served: Service, name: str) -> None:
    await served.queue.submit("build", id=name, user=name, groups=[name])
    await served.queue.set_limit(name, 1)
    await open_line(page, rows=1)

    await page.locator("ol.rows .what a").click()
    await expect(page.locator(".whole-id .mono")).to_have_text(name)
    await page.reload()
    await page.get_by_role("button", name="Cancel Job").click()
    await page.get_by_role("button", name="Cancel job").click()
    await expect(page.locator(".job-head .state")).to_contain_text("cancelled")

    await page.goto("/#/groups?show=all")
    await page.locator(".groups li").get_by_role("link", name=name, exact=True).click()
    await page.get_by_role("button", name="Pause", exact=True).click()
    await expect(page.get_by_role("button", name="Resume", exact=True)).to_be_visible()
    assert (await served.queue.limit(name)).paused


async def test_long_names_do_not_push_a_narrow_page_sideways(page: Page, served: Service) -> None:
    long = "w" * 200
    await served.queue.submit("build", id="waits", user=long, project=long, groups=[long])
    await served.queue.set_limit(long, 1)
    await served.queue.submit("build", id="ended", user=long, project=long)
    await served.queue.cancel("ended")
    await page.set_viewport_size({"width": 360, "height": 740})

    for address in ("", "#/jobs", "#/history", "#/groups?show=all", f"#/groups/{long}", "#/jobs/waits", "#/audit"):
        await page.goto(f"/{address}")
        await expect(page.get_by_text(long[:20]).or_(row(page, "waits")).first).to_be_visible()
        assert await page.evaluate("document.documentElement.scrollWidth") == 360, address

    await page.goto(f"/#/groups/{long}")
    await page.get_by_role("button", name="Pause", exact=True).click()
    await expect(page.locator(".toast")).to_contain_text("is paused")
    assert await page.evaluate("document.querySelector('.toast').scrollWidth") <= 360
    await page.route(f"**/api/concurrency/{long}*", lambda route: route.fulfill(status=503))
    await page.reload()
    await expect(page.get_by_text(f"Reading {long}")).to_be_visible()
    assert await page.evaluate("document.documentElement.scrollWidth") == 360
