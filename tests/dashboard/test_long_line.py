"""The service looks at 2,000 jobs for one answer. What a page shows of a longer line is whole all the same."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

import qo
from qo.service.access.caller import Role
from tests.dashboard.reading import row
from tests.dashboard.staging import register, start
from tests.service.conftest import Service

pytestmark = pytest.mark.asyncio(loop_scope="session")
WAITING = 4500


async def fill(queue: qo.Queue) -> None:
    """One job runs, thousands wait, and the last in line is somebody else's."""
    await register(queue, "worker-1")
    await start(queue, "runs", user="ada")
    await queue.submit_many([qo.New("build", user="crowd") for _ in range(WAITING)])
    await queue.submit("build", id="last", user="eve", priority="background")


async def test_jobs_that_run_are_shown_beside_a_long_line(page: Page, served: Service) -> None:
    await fill(served.queue)

    await page.goto("/")
    await expect(page.locator(".run")).to_contain_text("build")

    await page.goto("/#/jobs?state=starting")
    await expect(row(page, "runs")).to_be_visible()
    await page.goto("/#/jobs?user=eve")
    await expect(row(page, "last")).to_contain_text(f"#{WAITING + 1} in line")
    assert await page.get_by_role("link", name="Next page").count() == 0


async def test_a_user_sees_their_job_at_the_end_of_a_long_line(page: Page, served: Service) -> None:
    await fill(served.queue)
    key = (await served.key(Role.USER, user="eve"))["Authorization"].removeprefix("Bearer ")
    await page.goto("/")
    await page.get_by_label("API key").fill(key)
    await page.keyboard.press("Enter")

    await expect(page.get_by_role("listitem", name=f"position #{WAITING + 1} in queue")).to_be_visible()
