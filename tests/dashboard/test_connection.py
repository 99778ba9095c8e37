"""The page without its server: it says since when its numbers are old, changes nothing, and comes back by itself."""

from __future__ import annotations

import socket

import pytest
from playwright.async_api import Browser, expect
from starlette.applications import Starlette
from starlette.routing import Mount

import qo
from qo.service.app import make_app
from qo.service.shared import Shared
from tests.dashboard.reading import ROWS, expect_ids, row
from tests.service.conftest import Service, running_service
from tests.service.serving import serving

pytestmark = pytest.mark.asyncio(loop_scope="session")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


async def test_a_lost_connection_is_said_refuses_changes_and_comes_back(browser: Browser) -> None:
    async with await qo.connect("memory://", settings={"server": {"port": free_port()}}) as queue:
        await queue.submit("build", id="a")
        page = await browser.new_page()
        async with running_service(queue) as served:
            await page.goto(str(served.client.base_url))
            await expect_ids(page, "a")
        lost = page.get_by_role("alert")
        await expect(lost).to_contain_text("Connection lost. These numbers are from", timeout=15_000)

        await row(page, "a").get_by_role("button", name="Cancel build a").click()
        await row(page, "a").get_by_role("button", name="Cancel job").click()
        await expect(page.locator(".toast")).to_contain_text("The connection to the server is lost")
        await queue.submit("build", id="b")
        async with running_service(queue):
            await expect_ids(page, "a", "b")
            await expect(lost).to_have_count(0)
        await page.close()


async def test_the_page_works_below_a_path_prefix(browser: Browser, served: Service) -> None:
    await served.queue.submit("build", id="a")
    shared = Shared(served.queue)
    app = Starlette(routes=[Mount("/behind/here", make_app(shared))])
    page = await browser.new_page()
    try:
        async with serving(app, stopping=shared.watchers.close_all) as server:
            await page.goto(f"{server.url}/behind/here/#/?waits=full%20gpu")
            await expect(page.locator(".the-line")).to_contain_text("No job waits for this any more.")
            await page.goto(f"{server.url}/behind/here/")
            await expect(page.locator(ROWS)).to_have_count(1)
            await page.close()
    finally:
        await shared.close()


async def test_pages_that_are_opened_without_the_server_come_when_it_answers(browser: Browser) -> None:
    async with await qo.connect("memory://", settings={"server": {"port": free_port()}}) as queue:
        await queue.submit("build", id="a", user="ada")
        await queue.submit("build", id="b")
        await queue.cancel("b")
        context = await browser.new_context()
        wanted = {
            "#/": ROWS,
            "#/jobs": "[data-id=a]",
            "#/jobs/a": ".job-head h1",
            "#/groups": ".filters input",
            "#/insight": ".charts",
            "#/history": "[data-id=b]",
            "#/audit": ".audit-list > li",
        }
        errors: list[str] = []
        async with running_service(queue) as served:
            pages = {address: await context.new_page() for address in wanted}
            for page in pages.values():
                page.on("pageerror", lambda error: errors.append(str(error)))
                await page.goto(f"{served.client.base_url}/#/submit")
                await expect(page.get_by_role("heading", name="Submit a job")).to_be_visible()
        for address, page in pages.items():
            await page.evaluate("address => { location.hash = address }", address)
            await expect(page.get_by_role("heading", name="Submit a job")).to_have_count(0)
            await expect(page.locator(wanted[address])).to_have_count(0)
        async with running_service(queue):
            for address, page in pages.items():
                await page.bring_to_front()
                await expect(page.locator(wanted[address]).first).to_be_visible(timeout=15_000)
        await context.close()
        assert errors == []
