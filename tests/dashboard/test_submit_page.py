"""The page that submits a job: checked as it is typed, with the wait before and the place after."""

from __future__ import annotations

import json

import pytest
from playwright.async_api import Page, expect

from qo.service.access.caller import Role
from qo.values import Registration, TaskOptions
from tests.dashboard.reading import said
from tests.dashboard.test_access import sign_in
from tests.service.conftest import Service

# Nightly, to keep the gate short: the pages of the line and of a job are tested at every change.
pytestmark = pytest.mark.asyncio(loop_scope="session")
HOSTILE = "<img src=x onerror=alert(1)>"
BIG = 2**63 - 1


async def test_a_job_is_submitted_with_exact_numbers_and_the_place_is_shown(page: Page, served: Service) -> None:
    await served.queue.submit("build", id="before")
    await page.goto("/#/submit")

    await page.get_by_label("Task").fill("build")
    await page.get_by_label("Payload").fill(f'{{"app": {BIG}}}')
    await page.get_by_label("User").fill("ada")
    await page.get_by_role("button", name="Submit", exact=True).click()

    await said(page, "build submitted. Queued at position 2")
    await expect(page.get_by_text("Queued at position 2", exact=True)).to_be_visible()
    (job,) = [each for each in await served.queue.jobs() if each.id != "before"]
    assert (job.user, job.priority) == ("ada", 50)
    payload, _ = await served.queue.store.payload(job.id)
    assert json.loads(payload) == {"app": BIG}
    await page.get_by_role("link", name="Look at it").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("build")


async def test_the_payload_is_checked_as_it_is_typed(page: Page, served: Service) -> None:
    await page.goto("/#/submit?task=build")
    payload = page.get_by_label("Payload")

    await payload.fill('{"app": 7,\n  oops}')
    await expect(page.locator("#payload-note")).to_contain_text("at line 2, column 3")
    await expect(payload).to_have_attribute("aria-invalid", "true")
    await page.get_by_role("button", name="Submit", exact=True).click()
    await expect(payload).to_be_focused()
    assert await served.queue.jobs() == []

    await payload.fill('{"app": 7}')
    await expect(page.locator("#payload-note")).to_contain_text("An object of 10 bytes")


async def test_priorities_have_their_names_and_urgent_jumps_the_queue(page: Page, served: Service) -> None:
    await served.queue.submit("build", id="before")
    await page.goto("/#/submit?task=build")

    await expect(page.get_by_role("radio")).to_have_count(5)
    names = await page.get_by_role("radio").evaluate_all("all => all.map(each => each.labels[0].innerText.trim())")
    assert [name.strip("•▲▽ \n") for name in names] == [
        "Normal Priority",
        "High Priority",
        "Urgent (Jump Queue)",
        "Low Priority",
        "Background",
    ]
    await page.get_by_label("Urgent (Jump Queue)").check(force=True)
    await page.get_by_role("button", name="Submit", exact=True).click()

    await said(page, "build submitted. Queued at position 1")
    assert page.url.endswith("priority=10")


async def test_the_wait_to_expect_is_shown_before_sending(page: Page, served: Service) -> None:
    await served.queue.store.register(Registration(name="w", tasks=(TaskOptions(name="build"),), capacity=1))
    for number in range(4):
        await served.queue.submit("build", id=f"j{number}", user=f"u{number}", tier="partner")
    await page.goto("/#/submit?task=build&user=ada&tier=partner")

    expected = page.get_by_role("region", name="Wait to expect")
    await expect(expected).to_contain_text("It would be #5 in line")
    await expect(expected).to_contain_text("starts in")
    await page.get_by_label("Urgent (Jump Queue)").check(force=True)
    await expect(expected).to_contain_text("It would be #1 in line")
    await served.queue.pause("build")
    await expect(expected).to_contain_text("build is paused", timeout=15_000)
    assert len(await served.queue.jobs()) == 4


async def test_a_refusal_is_shown_beside_the_form(page: Page, served: Service) -> None:
    await page.goto("/#/submit?task=build&tier=nothing")
    await page.get_by_label("User").fill("ada")
    await page.get_by_role("button", name="Submit", exact=True).click()

    await expect(page.get_by_role("alert")).to_contain_text("tier")
    assert await served.queue.jobs() == []


async def test_one_like_another_is_filled_in(page: Page, served: Service) -> None:
    await served.queue.submit("build", id="one", user="ada", priority="high", data={"big": BIG})
    await page.goto("/#/jobs/one")

    await page.get_by_role("link", name="Submit one like it").click()

    await expect(page.get_by_label("Payload")).to_have_value(f'{{\n  "big": {BIG}\n}}')
    await expect(page.get_by_label("User")).to_have_value("ada")
    await expect(page.get_by_label("High Priority")).to_be_checked()


async def test_a_viewer_is_told_that_the_key_submits_nothing(page: Page, served: Service) -> None:
    await sign_in(page, served, Role.VIEWER)
    await page.goto("/#/submit")

    await expect(page.get_by_text("The key of a viewer sees everything and changes nothing.")).to_be_visible()
    assert await page.get_by_role("textbox").count() == 0


async def test_hostile_names_are_shown_as_text(page: Page, served: Service) -> None:
    await page.goto("/#/submit")
    await page.get_by_label("Task").fill(HOSTILE)
    await page.get_by_label("Payload").fill(json.dumps({HOSTILE: HOSTILE}))
    await page.get_by_role("button", name="Submit", exact=True).click()

    await said(page, f"{HOSTILE} submitted.")
    await expect(page.locator("#task-note")).to_contain_text(HOSTILE)
    assert await page.locator("img").count() == 0
