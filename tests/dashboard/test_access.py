"""Who sees what: sign-in when keys exist, a viewer without controls, a user with their own jobs only."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from qo.service.access.caller import Role
from tests.dashboard.reading import ROWS, row
from tests.service.conftest import Service

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def sign_in(page: Page, served: Service, role: Role, **fields: str) -> None:
    key = (await served.key(role, **fields))["Authorization"].removeprefix("Bearer ")
    await page.goto("/")
    await page.get_by_label("API key").fill(key)
    await page.get_by_role("button", name="Sign in").click()


async def test_development_without_keys_is_said_in_the_header(page: Page, served: Service) -> None:
    await page.goto("/")

    await expect(page.get_by_role("banner")).to_contain_text("development, no keys")


async def test_a_wrong_key_is_refused_with_the_reason(page: Page, served: Service) -> None:
    await served.key(Role.ADMIN)
    await page.goto("/")
    await page.get_by_label("API key").fill("qo_wrong_key")
    await page.get_by_role("button", name="Sign in").click()

    await expect(page.get_by_role("alert")).to_contain_text("The API key is unknown, revoked or expired")


async def test_an_admin_signs_in_moves_and_signs_out(page: Page, served: Service) -> None:
    await served.queue.submit("build", id="a")
    await served.queue.submit("build", id="b")
    await sign_in(page, served, Role.ADMIN)

    await row(page, "b").get_by_role("button", name="Move build b").click()
    await page.get_by_role("button", name="To the front").click()
    await expect(row(page, "b").locator(".place b")).to_have_text("1")
    await page.get_by_role("button", name="More").click()
    await page.get_by_role("button", name="Sign out").click()

    await expect(page.get_by_label("API key")).to_be_visible()


async def test_a_viewer_sees_the_line_and_has_no_controls(page: Page, served: Service) -> None:
    await served.queue.submit("build", id="a")
    await served.queue.submit("build", id="b")
    await sign_in(page, served, Role.VIEWER)

    await expect(page.locator(ROWS)).to_have_count(2)
    for name in ("Move build a", "Cancel build a", "Pause all"):
        assert await page.get_by_role("button", name=name).count() == 0
    assert await page.get_by_role("link", name="Submit a job").count() == 0
    await row(page, "a").focus()
    await page.keyboard.press("Space")
    assert await page.locator(".carried").count() == 0


async def test_a_user_sees_only_their_own_jobs_with_place_and_usage(page: Page, served: Service) -> None:
    await served.queue.submit("build", id="theirs", user="u2")
    await served.queue.submit("build", id="mine", user="u1", tier="bootstrapper")
    await sign_in(page, served, Role.USER, user="u1")

    mine = page.get_by_role("listitem", name="build, queued, position #2 in queue")
    await expect(mine).to_contain_text("You are #2 in queue")
    await expect(page.get_by_text("1 of 5 jobs")).to_be_visible()
    assert "theirs" not in await page.content()
