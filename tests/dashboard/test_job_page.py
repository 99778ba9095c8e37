"""The page of one job: where it is, why it waits, what happened, what it was given and what it gave."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Locator, Page, expect

import qo
from qo.job import JobError
from qo.service.access.caller import Role
from qo.values import Advance
from tests.by_hand import start
from tests.dashboard.by_hand import end, run_and_fail, run_and_succeed
from tests.dashboard.reading import said
from tests.dashboard.test_access import sign_in
from tests.service.conftest import Service

pytestmark = pytest.mark.asyncio(loop_scope="session")
HOSTILE = "<img src=x onerror=alert(1)>"
BIG = 2**63 - 1


def card(page: Page, title: str) -> Locator:
    return page.get_by_role("region", name=title, exact=True)


async def test_a_job_in_line_shows_its_place_three_neighbours_each_side_and_every_reason(
    page: Page, served: Service
) -> None:
    for number in range(9):
        await served.queue.submit("build", id=f"j{number}", user=f"u{number}")
    await served.queue.set_limit("global", 0)
    await served.queue.pause("build")

    await page.goto("/#/jobs/j4")

    place = card(page, "Place in line")
    await expect(place.locator("li")).to_have_count(7)
    await expect(place.locator("li.this")).to_contain_text("this job")
    await expect(place.locator(".hero")).to_contain_text("#5")
    await expect(place).to_contain_text("u1")
    reasons = card(page, "Why it waits")
    for words in ("No worker runs build", "4 jobs ahead of it", "global has a limit of 0", "build is paused"):
        await expect(reasons).to_contain_text(words)


async def test_the_page_follows_the_job(page: Page, served: Service) -> None:
    await served.queue.submit("build", id="one")
    await page.goto("/#/jobs/one")
    await expect(page.get_by_role("heading", level=1)).to_have_text("build")

    job = await start(served.queue)
    await job.is_at("code", "writing 14 files")
    await expect(card(page, "Now")).to_contain_text("writing 14 files")
    await end(served.queue, job, qo.State.SUCCEEDED)

    history = card(page, "What happened")
    await expect(history.locator("li b")).to_have_text(["queued", "starting", "running", "code", "succeeded"])
    await expect(history.locator("li").first).to_contain_text("#1 in line")
    await expect(history.locator("li time").first).to_have_attribute("title", re.compile(r"\d{4}, \d\d:\d\d:\d\d"))


async def test_the_banner_of_a_job_that_asks_has_both_buttons_and_continues(page: Page, served: Service) -> None:
    await served.queue.submit("build", id="one", user="ada", tier="bootstrapper")
    job = await start(served.queue)
    await job.runs()
    await served.queue.store.advance([Advance(job_id="one", token=job.token, iteration=2)])
    await end(served.queue, job, qo.State.CONFIRMING, message="Continue?")

    await page.goto("/#/jobs/one")

    banner = page.get_by_role("region", name="This job asks for you")
    await expect(banner).to_contain_text("Iteration Limit Reached · 2/2 iterations used")
    await expect(banner).to_contain_text("Your job has completed 2 build cycles. Continue for 2 more cycles?")
    await banner.get_by_role("button", name="Cancel Job").click()
    await expect(banner).to_contain_text("It ends here and does not go on.")
    await page.keyboard.press("Escape")
    await expect(banner.get_by_role("button", name="Cancel Job")).to_be_focused()
    await banner.get_by_role("button", name="Continue for 2 More Iterations").click()

    await said(page, "It goes on: at place 1 in line.")
    await expect(banner).to_have_count(0)
    assert (await served.queue.get("one")).state == "queued"


async def test_a_failure_is_friendly_its_detail_folded_and_its_debug_id_is_copied(page: Page, served: Service) -> None:
    await served.queue.submit("build", id="one")
    await run_and_fail(served.queue, "3 of the 41 tests do not pass.", "Traceback …", "VAPQXGTCT7")
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])

    await page.goto("/#/jobs/one")

    error = card(page, "Error")
    await expect(error).to_contain_text("3 of the 41 tests do not pass.")
    await expect(error.locator("pre")).not_to_be_visible()
    await error.get_by_text("Detail").click()
    await expect(error.locator("pre")).to_have_text("Traceback …")
    await error.get_by_role("button", name="Copy the debug_id").click()
    await said(page, "Copied.")
    assert await page.evaluate("navigator.clipboard.readText()") == "VAPQXGTCT7"
    await expect(card(page, "Attempts")).to_contain_text("by-hand")


async def test_a_failed_job_is_retried_after_one_question(page: Page, served: Service) -> None:
    await served.queue.submit("build", id="one")
    await run_and_fail(served.queue, "No.", "No.")
    await page.goto("/#/jobs/one")

    await page.get_by_role("button", name="Retry").click()
    await expect(page.get_by_role("group", name="Retry")).to_contain_text("has all its attempts again")
    await page.get_by_role("button", name="Retry").click()

    await said(page, "In line again, at place 1.")
    assert (await served.queue.get("one")).state == "queued"
    await expect(page.get_by_role("button", name="Retry")).to_have_count(0)


async def test_only_what_the_state_allows_is_offered(page: Page, served: Service) -> None:
    await served.queue.submit("build", id="one")
    await run_and_succeed(served.queue, {})
    await page.goto("/#/jobs/one")

    await expect(card(page, "Result")).to_be_visible()
    for name in ("Retry", "Cancel Job", "Priority normal, change it"):
        assert await page.get_by_role("button", name=name).count() == 0


async def test_payload_and_result_fold_and_their_numbers_are_exact(page: Page, served: Service) -> None:
    await served.queue.submit("build", id="one", data={"big": BIG, "list": [{"deep": {"x": 0.1}}], "text": HOSTILE})
    await run_and_succeed(served.queue, {"size": BIG - 1})
    await page.goto("/#/jobs/one")

    payload = card(page, "Payload")
    await expect(payload).to_contain_text(f'"big": {BIG}')
    await expect(payload).to_contain_text(f'"text": "{HOSTILE}"')
    await expect(card(page, "Result")).to_contain_text(f'"size": {BIG - 1}')
    await expect(payload).not_to_contain_text("deep")
    await payload.locator("summary", has_text="0: {").click()
    await expect(payload).to_contain_text('"deep": {')
    await payload.locator("summary").first.click()
    await expect(payload).not_to_contain_text("big")


async def test_what_was_promised_stands_against_the_wait(page: Page, served: Service) -> None:
    await served.queue.submit("build", id="one")
    await served.queue.store.note_promises({"one": (120_000, 300_000)})
    await start(served.queue)

    await page.goto("/#/jobs/one")

    history = card(page, "What happened")
    await expect(history.locator(".promised")).to_contain_text(re.compile(r"promised at \d\d:\d\d:\d\d 2–5 min"))
    await expect(history.locator(".promised")).to_contain_text("started after")
    await expect(history.locator(".promised")).to_contain_text("earlier than promised")


async def test_priority_and_cancel_in_place_and_the_trail_names_who_did_it(page: Page, served: Service) -> None:
    await served.queue.submit("build", id="first")
    await served.queue.submit("build", id="one", by="ops")
    await page.goto("/#/jobs/one")

    await page.get_by_role("button", name="Priority normal, change it").click()
    await page.get_by_role("menuitem", name="urgent").click()
    await said(page, "The priority is urgent, now at place 1.")
    trail = card(page, "Who did what")
    await expect(trail.locator("li")).to_have_count(2)
    await expect(trail.locator("li").last).to_contain_text("ops")
    await page.get_by_role("button", name="Cancel Job").click()
    await page.get_by_role("button", name="Cancel job", exact=True).click()

    await said(page, "The job is cancelled.")
    assert (await served.queue.get("one")).state == "cancelled"


async def test_a_viewer_sees_secrets_hidden_and_has_no_controls(page: Page, served: Service) -> None:
    await served.queue.submit("build", id="one", data={"app": "shop", "api_key": "hunter2"})
    await sign_in(page, served, Role.VIEWER)

    await page.goto("/#/jobs/one")

    payload = card(page, "Payload")
    await expect(payload).to_contain_text('"app": "shop"')
    await expect(payload).to_contain_text("api_key")
    assert "hunter2" not in await page.content()
    for name in ("Cancel Job", "Priority normal, change it"):
        assert await page.get_by_role("button", name=name).count() == 0


async def test_a_user_confirms_their_own_job_and_sees_no_page_of_operators(page: Page, served: Service) -> None:
    await served.queue.submit("build", id="one", user="ada", tier="bootstrapper")
    job = await start(served.queue)
    await end(served.queue, job, qo.State.CONFIRMING, message="Continue?")
    await sign_in(page, served, Role.USER, user="ada")

    await page.goto("/#/jobs/one")
    await page.get_by_role("button", name="Continue for 2 More Iterations").click()

    await said(page, "It goes on: at place 1 in line.")
    await expect(card(page, "Place in line").get_by_role("link", name="all my jobs")).to_be_visible()
    await expect(card(page, "Why it waits")).to_be_visible()
    assert await page.locator('a[href^="#/groups"]').count() == 0
    assert await page.get_by_role("link", name="Submit one like it").count() == 0


async def test_a_large_payload_draws_only_what_is_open(page: Page, served: Service) -> None:
    await served.queue.submit("build", id="one", data={"rows": [{"n": n, "text": "x" * 30} for n in range(5000)]})
    await page.goto("/#/jobs/one")
    payload = card(page, "Payload")

    await payload.locator("summary", has_text="5,000 items").click()

    await expect(payload.get_by_role("button", name="4,900 more")).to_be_visible()
    assert await payload.locator("*").count() < 2000


async def test_long_names_do_not_scroll_sideways_on_a_phone(page: Page, served: Service) -> None:
    long = "W" * 190
    await page.set_viewport_size({"width": 360, "height": 740})
    await served.queue.submit(
        long, id=long, user=long, project=long, parent=long, groups=[long + "g"], data={long: [long]}
    )
    job = await start(served.queue, long)
    await end(served.queue, job, qo.State.FAILED, error=JobError(long, long, long))
    await served.queue.submit("build", id="two", user=long, project=long)

    for where, shown in (
        (f"jobs/{long}", "Error"),
        ("jobs/two", "Place in line"),
        ("jobs", "jobs"),
        ("audit", "changes"),
    ):
        await page.goto(f"/#/{where}")
        await expect(page.get_by_role("region", name=shown).first).to_be_visible()
        assert await page.evaluate("document.documentElement.scrollWidth") == 360, where


async def test_the_watch_link_opens_what_the_owner_sees(page: Page, served: Service) -> None:
    await served.queue.submit("build", id="one")
    await page.goto("/#/jobs/one")

    await page.get_by_role("link", name="what the owner sees").click()

    await expect(page.locator("body")).to_contain_text("You are #1 in queue")


async def test_an_unknown_job_says_what_to_do(page: Page, served: Service) -> None:
    await served.queue.submit("build", id="abc-1")
    await page.goto("/#/jobs/abc")

    await page.get_by_role("link", name="find jobs whose id begins so").click()

    await expect(page.locator('[data-id="abc-1"]')).to_be_visible()


async def test_hostile_names_are_shown_as_text(page: Page, served: Service) -> None:
    await served.queue.submit(
        HOSTILE, id=HOSTILE, user=HOSTILE, project=HOSTILE, tier=None, groups=[HOSTILE + "g"], data={HOSTILE: [HOSTILE]}
    )
    job = await start(served.queue, HOSTILE)
    await job.is_at("code", HOSTILE)
    await end(served.queue, job, qo.State.FAILED, error=JobError(HOSTILE, HOSTILE, HOSTILE))
    await page.goto("/")
    await page.evaluate("name => { location.hash = '#/jobs/' + encodeURIComponent(name) }", HOSTILE)

    await expect(page.get_by_role("heading", level=1)).to_have_text(f"{HOSTILE} · {HOSTILE}")
    await expect(card(page, "Payload")).to_contain_text(f'"{HOSTILE}"')
    await expect(card(page, "Error")).to_contain_text(HOSTILE)
    assert await page.locator("img").count() == 0
