"""The pages of groups: pressure, slots and holders, limits, pauses, what another limit would do, the timeline."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from playwright.async_api import Locator, Page, Route, expect

from qo.service.access.caller import Role
from tests.dashboard.staging import register, start
from tests.service.conftest import Service

# Nightly, to keep the gate short: the pages of the line and of a job are tested at every change.
pytestmark = pytest.mark.asyncio(loop_scope="session")
HOSTILE = "<img src=x onerror=alert(1)>"
ROWS = ".groups li"


def row(page: Page, group: str) -> Locator:
    return page.locator(ROWS).filter(has=page.get_by_role("link", name=group, exact=True))


def holder(page: Page, slot: int) -> Locator:
    return page.locator(".holders tbody tr").nth(slot)


async def test_the_most_wanted_group_is_first_and_shows_who_holds_its_slots(page: Page, served: Service) -> None:
    await served.queue.set_limit("idle", 2)
    await served.queue.set_limit("calm", 3)
    await served.queue.set_limit("busy", 1)
    await register(served.queue, "worker-1")
    await start(served.queue, "a", user="ada", groups=["busy", "calm"])
    await start(served.queue, "b", user="ben", groups=["busy"])

    await page.goto("/#/groups")

    await expect(page.locator(ROWS)).to_have_count(2)
    await expect(page.locator(ROWS).first).to_contain_text("busy1 waits for it")
    await expect(row(page, "busy")).to_contain_text("1 of 1")
    await expect(row(page, "busy").locator(".cell")).to_have_text(["0 ada"])
    await expect(row(page, "calm").locator(".cell")).to_have_text(["0 ada", "1", "2"])
    await expect(row(page, "calm").locator(".cell.free")).to_have_count(2)
    await page.keyboard.press("j")
    await page.keyboard.press("Enter")
    await expect(page.locator("h1")).to_have_text("busy")
    await page.go_back()
    await page.get_by_role("button", name="3 with a limit or a pause").click()
    await expect(row(page, "idle")).to_contain_text("0 of 2")
    await expect(page).to_have_url(re.compile("show=all"))


async def test_a_group_with_many_slots_is_a_bar(page: Page, served: Service) -> None:
    await served.queue.set_limit("wide", 65)
    await start(served.queue, "a", groups=["wide"])

    await page.goto("/#/groups")

    await expect(row(page, "wide").get_by_role("img", name="1 of 65 slots are held")).to_be_visible()
    await expect(row(page, "wide").locator(".cell")).to_have_count(0)


async def test_each_holder_has_its_worker_and_its_lease(page: Page, served: Service) -> None:
    await served.queue.set_limit("gpu", 2)
    await start(served.queue, "a", user="ada", project="shop", groups=["gpu"])

    await page.goto("/#/groups/gpu")

    await expect(holder(page, 0)).to_contain_text("#0")
    await expect(holder(page, 0).get_by_role("link", name="build · shop")).to_have_attribute("href", "#/jobs/a")
    await expect(holder(page, 0)).to_contain_text("worker-1")
    await expect(holder(page, 0)).to_contain_text(re.compile(r"5\d s"))


async def test_slots_above_a_lowered_limit_go_when_they_are_released(page: Page, served: Service) -> None:
    await served.queue.set_limit("gpu", 2)
    await start(served.queue, "a", "b", groups=["gpu"])
    await served.queue.set_limit("gpu", 1)

    await page.goto("/#/groups/gpu")

    await expect(holder(page, 1)).to_contain_text("goes when released")
    await expect(holder(page, 0)).not_to_contain_text("goes when released")
    await expect(page.locator(".cell.extra")).to_have_text("1 build · goes")


async def test_a_slot_is_kept_for_the_one_whose_turn_it_is(page: Page, served: Service) -> None:
    await served.queue.set_limit("gpu", 2)
    await served.queue.set_limit("api", 2)
    await register(served.queue, "worker-1", turn_after=1)
    await start(served.queue, "a", groups=["gpu"])
    await start(served.queue, "b", groups=["api"])
    await served.queue.submit("build", id="patient-job", groups=["gpu", "api"])
    await served.queue.set_limit("api", 1)
    assert await start(served.queue, "c", groups=["api"]) == []  # it looks at the patient job and puts it aside

    await page.goto("/#/groups/gpu")

    await expect(page.locator(".cell.kept")).to_have_text("1 kept for patient-job")


async def test_releasing_a_slot_says_what_happens_and_asks_once(page: Page, served: Service) -> None:
    await served.queue.set_limit("gpu", 1)
    await start(served.queue, "a", groups=["gpu"])
    await page.goto("/#/groups/gpu")

    await page.get_by_role("button", name="Release slot 0 …").click()
    await expect(page.locator(".holders")).to_contain_text("goes back to its place in line, with an attempt spent")
    await page.get_by_role("button", name="Keep it").click()
    assert (await served.queue.limit("gpu")).active == 1
    await page.get_by_role("button", name="Release slot 0 …").click()
    await page.get_by_role("button", name="Release slot 0", exact=True).click()

    await expect(page.locator(".toasts")).to_contain_text("Slot 0 of gpu was taken from a.")
    assert (await served.queue.limit("gpu")).active == 0
    assert (await served.queue.get("a")).state == "queued"


async def test_a_limit_is_set_with_the_stepper_and_says_who_set_it(page: Page, served: Service) -> None:
    await served.queue.set_limit("gpu", 2, by="ops")
    await page.goto("/#/groups/gpu")
    await expect(page.locator("section", has=page.locator("#limit"))).to_contain_text(
        re.compile("Set by hand, by ops (just now|. s ago)")
    )

    await page.get_by_role("button", name="One more").click()
    await page.get_by_role("button", name="One more").click()
    await expect(page).to_have_url(re.compile("limit=4"))
    assert (await served.queue.limit("gpu")).limit == 2
    await page.get_by_role("button", name="Set limit to 4").click()

    await expect(page.locator(".toasts")).to_contain_text("gpu has a limit of 4 now.")
    await expect(page.locator(".group-head .badge")).to_have_text("0 of 4")
    assert (await served.queue.limit("gpu")).limit == 4
    await page.get_by_role("button", name="Leave unlimited").click()
    await expect(page.locator(".group-head .badge")).to_have_text("no limit")


async def test_a_group_is_paused_and_resumed(page: Page, served: Service) -> None:
    await served.queue.set_limit("gpu", 2)
    await page.goto("/#/groups?show=all")

    await page.get_by_role("button", name="Pause gpu").click()
    await expect(row(page, "gpu")).to_contain_text("paused")
    assert (await served.queue.limit("gpu")).paused
    await page.get_by_role("button", name="Resume gpu").click()

    await expect(row(page, "gpu")).to_contain_text("0 of 2")
    assert not (await served.queue.limit("gpu")).paused


async def test_the_list_holds_still_under_the_pointer(page: Page, served: Service) -> None:
    for group in ("a", "b"):
        await served.queue.set_limit(group, 1)
        await start(served.queue, f"holds {group}", groups=[group])
    await page.goto("/#/groups")
    await expect(page.locator(f"{ROWS} .name a")).to_have_text(["a", "b"])

    await row(page, "b").hover()
    await served.queue.submit("build", id="waits", groups=["b"])
    await served.queue.store.claim(worker="worker-1", tasks=["build"], capacity=1, lease_ms=60_000, claim_id="none")
    await expect(row(page, "b")).to_contain_text("1 waits for it")
    await expect(page.locator(f"{ROWS} .name a")).to_have_text(["a", "b"])
    await page.mouse.move(1, 1)

    await expect(page.locator(f"{ROWS} .name a")).to_have_text(["b", "a"])


async def test_a_limit_can_be_undone(page: Page, served: Service) -> None:
    await served.queue.set_limit("gpu", 2)
    await page.goto("/#/groups/gpu?limit=7")

    await page.get_by_role("button", name="Set limit to 7").click()
    await expect(page.locator(".group-head .badge")).to_have_text("0 of 7")
    await page.get_by_role("button", name="Undo").click()

    await expect(page.locator(".group-head .badge")).to_have_text("0 of 2")
    assert (await served.queue.limit("gpu")).limit == 2


async def test_a_pause_can_be_undone(page: Page, served: Service) -> None:
    await page.goto("/#/groups/gpu")

    await page.get_by_role("button", name="Pause", exact=True).click()
    await expect(page.locator(".group-head .badge")).to_have_text("paused")
    await page.get_by_role("button", name="Undo").click()

    await expect(page.locator(".group-head .badge")).to_have_text("no limit")
    assert not (await served.queue.limit("gpu")).paused


async def test_a_viewer_sees_all_and_can_change_nothing(page: Page, served: Service) -> None:
    await served.queue.set_limit("gpu", 1)
    await start(served.queue, "a", groups=["gpu"])
    key = (await served.key(Role.VIEWER))["Authorization"].removeprefix("Bearer ")
    await page.goto("/#/groups")
    await page.get_by_label("API key").fill(key)
    await page.keyboard.press("Enter")

    await expect(row(page, "gpu")).to_contain_text("1 of 1")
    await expect(page.get_by_role("main").get_by_role("button", name=re.compile("Pause|Resume"))).to_have_count(0)
    await row(page, "gpu").get_by_role("link", name="gpu").click()
    await expect(holder(page, 0)).to_contain_text("worker-1")
    await expect(page.get_by_role("button", name=re.compile("Release|Set limit|Leave|Pause"))).to_have_count(0)


async def test_the_forecast_of_the_server_is_shown(page: Page, served: Service) -> None:
    await served.queue.set_limit("gpu", 1)
    await register(served.queue, "worker-1")
    await start(served.queue, "a", groups=["gpu"])
    for job_id in ("b", "c"):
        await served.queue.submit("build", id=job_id, groups=["gpu"])

    await page.goto("/#/groups/gpu?limit=3")

    await expect(page.locator(".outcome")).to_contain_text(re.compile("limit 1 → 3: .*the last of these 2 starts"))
    await expect(page.locator("a.bar.now")).to_have_attribute("href", "#/jobs/a")
    await expect(page.locator("a.bar.next").first).to_have_attribute("href", "#/jobs/b")
    await page.get_by_role("button", name="15 min").click()
    await expect(page).to_have_url(re.compile("minutes=15"))
    await expect(page.locator(".lanes")).to_contain_text(re.compile(r"−\d+ min.*now.*[+]\d+ min"))


def answered(body: dict[str, Any]) -> Any:
    async def answer(route: Route) -> None:
        await route.fulfill(json=body)

    return answer


async def test_what_another_limit_would_do_is_said_before_it_is_set(page: Page, served: Service) -> None:
    await served.queue.set_limit("gpu", 2)
    before = {"median_seconds": 1020, "last_seconds": 7200, "cannot_start": 0}
    after = {"median_seconds": 540, "last_seconds": 3600, "cannot_start": 0}
    asked: list[Any] = []

    async def answer(route: Route) -> None:
        asked.append(json.loads(route.request.post_data or ""))
        await route.fulfill(json={"jobs": 12, "basis": "measured", "before": before, "variants": [after]})

    await page.route("**/api/queue/what-if", answer)
    await page.goto("/#/groups/gpu?limit=4")

    await expect(page.locator(".outcome")).to_have_text(
        re.compile(
            r"^limit 2 → 4: median wait 17 → 9 min, the last of these 12 starts \d\d:\d\d instead of \d\d:\d\d, "
            "if nothing new comes.$"
        )
    )
    assert asked == [{"variants": [{"limits": {"gpu": 4}}]}]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"jobs": 0, "before": {}, "variants": [{}]}, "nothing is in line, so nobody would notice"),
        (
            {
                "jobs": 3,
                "basis": "first_guess",
                "before": {"median_seconds": None, "last_seconds": None, "cannot_start": 3},
                "variants": [{"median_seconds": 5, "last_seconds": 8, "cannot_start": 1}],
            },
            "median wait 5 s, while now fewer than half can start, the last of these 3 starts",
        ),
        (
            {
                "jobs": 3,
                "before": {"median_seconds": 5, "last_seconds": 8, "cannot_start": 0},
                "variants": [{"median_seconds": None, "last_seconds": None, "cannot_start": 3}],
            },
            "none of these 3 could start any more",
        ),
    ],
)
async def test_what_if_has_words_for_odd_lines(page: Page, served: Service, answer: dict[str, Any], said: str) -> None:
    await served.queue.set_limit("gpu", 2)
    await page.route("**/api/queue/what-if", answered(answer))

    await page.goto("/#/groups/gpu?limit=3")

    await expect(page.locator(".outcome")).to_contain_text(said)


async def test_the_timeline_has_a_lane_for_each_slot(page: Page, served: Service) -> None:
    await served.queue.set_limit("gpu", 2)
    await served.queue.submit("build", id="next", user="cleo", groups=["gpu"])
    now = datetime.now(UTC)

    def at(seconds: float) -> str:
        return (now + timedelta(seconds=seconds)).isoformat()

    ran = {"slot": 0, "job": "was", "worker": "w", "started_at": at(-300), "ended_at": at(-200), "outcome": "failed"}
    holds = {"slot": 1, "holder": "is", "worker": "w", "since": at(-60), "expires_at": at(60), "ends_at": at(120)}
    expected = {"slot": 0, "job": "next", "starts_at": at(60), "ends_at": at(200)}
    timeline = {
        "group": "gpu",
        "since": at(-300),
        "past": [ran],
        "now": [holds],
        "forecast": [expected],
        "note": "maybe",
    }
    await page.route("**/api/concurrency/gpu/timeline", answered(timeline))

    await page.goto("/#/groups/gpu")

    await expect(page.locator(".lane")).to_have_text(["slot #0", "slot #1"])
    await expect(page.locator(".bar.failed")).to_have_attribute("href", "#/jobs/was")
    await expect(page.locator("a.bar.now")).to_have_attribute("href", "#/jobs/is")
    await expect(page.locator(".bar.next")).to_have_text("cleo")
    left = [await page.locator(each).bounding_box() for each in (".bar.failed", ".tick.now", ".bar.next")]
    edges = [box["x"] for box in left if box is not None]
    assert len(edges) == 3
    assert edges == sorted(edges)


async def test_failures_to_get_a_slot_are_shown_with_their_numbers(page: Page, served: Service) -> None:
    await served.queue.set_limit("gpu", 1)
    await start(served.queue, "a", groups=["gpu"])
    await start(served.queue, "b", groups=["gpu"])

    await page.goto("/#/groups/gpu")

    card = page.locator("section", has=page.locator("#failures"))
    await expect(card.locator(".count")).to_have_text("1")
    await card.get_by_text("Numbers").click()
    await expect(card.locator("thead")).to_contain_text("failures")
    await expect(card.locator("tbody tr", has_text=re.compile(r"\d\d:\d\d(:\d\d)?11$"))).to_have_count(1)
    await expect(page).to_have_url(re.compile("numbers=failures"))


async def test_hostile_names_are_shown_as_text(page: Page, served: Service) -> None:
    await served.queue.set_limit(HOSTILE, 1)
    await start(served.queue, "x", user=HOSTILE, project=HOSTILE, groups=[HOSTILE], worker=HOSTILE)

    await page.goto("/#/groups")
    await expect(row(page, HOSTILE).locator(".cell")).to_have_text([f"0 {HOSTILE}"])
    await row(page, HOSTILE).get_by_role("link", name=HOSTILE, exact=True).click()

    await expect(page.locator("h1")).to_have_text(HOSTILE)
    await expect(holder(page, 0)).to_contain_text(HOSTILE)
    assert await page.locator("img").count() == 0
