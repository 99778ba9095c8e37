"""axe-core finds nothing serious on any page, in light on a desk and in dark on a phone, and all targets have 24 px."""

from __future__ import annotations

from importlib.resources import files

import pytest
from playwright.async_api import Browser, ViewportSize, expect

import qo
from qo.job import State
from qo.values import Outcome
from tests.dashboard.shots import PAGES
from tests.dashboard.staging import register, start
from tests.service.conftest import Service

pytestmark = pytest.mark.asyncio(loop_scope="session")
AXE = files("axe_playwright_python").joinpath("axe.min.js").read_text()
SERIOUS = """
async () => (await axe.run(document, { resultTypes: ['violations'] })).violations
  .filter(({ impact }) => impact === 'serious' || impact === 'critical')
  .map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map((node) => node.html).join(' | ')}`)
"""
# Links within a sentence are as high as its lines, and a native box is as large as its label.
TOO_SMALL = """
() => [...document.querySelectorAll('a[href], button, input, select, summary, textarea')].filter((each) => {
  const target = each.matches('[type=checkbox], [type=radio]') ? each.closest('label') ?? each : each;
  const box = target.getBoundingClientRect();
  const isBar = each.matches('.bar'); // as wide as the time that it stands for
  return each.checkVisibility() && !each.closest('.unseen, .skip, p, .sentence') && box.width > 0
    && (box.height < 24 || box.width < 24 && !isBar);
}).map((each) => each.outerHTML.slice(0, 120))
"""
DESK, PHONE = ViewportSize(width=1280, height=900), ViewportSize(width=360, height=740)


async def a_bit_of_everything(queue: qo.Queue) -> None:
    await queue.set_limit("provider:ollama", 1)
    await register(queue, "worker-1", tasks=("build", "mail"), capacity=4)
    await start(queue, "runs", user="ada", project="shop")
    for number in range(5):
        await queue.submit("build", {"n": number}, id=f"job-{number}", user="ben", groups=["provider:ollama"])
    await queue.submit("export", id="stranded", priority="urgent")
    await queue.pause("priority:90")
    failed = await queue.store.job("runs")
    assert failed.token is not None
    await queue.store.finish([Outcome(job_id="runs", token=failed.token, state=State.FAILED)])


@pytest.mark.parametrize(
    ("theme", "viewport"),
    [
        pytest.param("light", DESK, id="light-1280"),
        pytest.param("dark", PHONE, id="dark-360"),
        pytest.param("light", PHONE, id="light-360", marks=pytest.mark.nightly),
        pytest.param("dark", DESK, id="dark-1280", marks=pytest.mark.nightly),
    ],
)
async def test_axe_finds_nothing_serious_on_any_page(
    browser: Browser, served: Service, theme: str, viewport: ViewportSize
) -> None:
    await a_bit_of_everything(served.queue)
    context = await browser.new_context(
        base_url=str(served.client.base_url),
        viewport=viewport,
        color_scheme="dark" if theme == "dark" else "light",
        reduced_motion="reduce",
        bypass_csp=True,  # for axe itself, which is put into the page
    )
    page = await context.new_page()
    found: dict[str, list[str]] = {}
    for name, address in {**PAGES, "job": "#/jobs/runs", "group": "#/groups/provider:ollama"}.items():
        await page.goto(f"/{address}")
        await page.reload()  # an address behind # alone loads nothing, so axe would be asked twice in one document
        await expect(page.locator("main h1, main h2, main section").first).to_be_visible()
        await page.evaluate(AXE)
        if serious := await page.evaluate(SERIOUS):
            found[name] = serious
        assert await page.evaluate("document.documentElement.scrollWidth") <= viewport["width"], name
        assert await page.evaluate(TOO_SMALL) == [], name
    await context.close()

    assert found == {}
