"""Whatever a job, a person, a worker or a setting is called, every page shows it as text."""

from __future__ import annotations

import msgspec
import pytest
from playwright.async_api import Browser, expect

import qo
from qo.job import JobError
from qo.values import Outcome
from tests.dashboard.conftest import Complaints
from tests.dashboard.reading import ROWS
from tests.dashboard.shots import PAGES
from tests.dashboard.staging import register, start
from tests.service.conftest import running_service

pytestmark = pytest.mark.asyncio(loop_scope="session")

FIRST = "<img src=x onerror=alert(1)>"
TEXTS = (
    FIRST,
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    '"><script>alert(1)</script>',
    "'><img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)',
    "' onfocus='alert(1)' autofocus='",
    "<svg onload=alert(1)>",
    "<svg><script>alert(1)</script></svg>",
    "<svg><animate onbegin=alert(1) attributeName=x dur=1s>",
    "<math><mi//xlink:href='data:x,<script>alert(1)</script>'>",
    "<iframe src='javascript:alert(1)'></iframe>",
    "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
    "<object data='javascript:alert(1)'></object>",
    "<embed src='javascript:alert(1)'>",
    "<a href='javascript:alert(1)'>x</a>",
    "javascript:alert(1)",
    "<style>* { display: none }</style>",
    "<link rel=stylesheet href=//example.com/x.css>",
    "<base href='//example.com/'>",
    "<meta http-equiv=refresh content='0;url=//example.com'>",
    "<form action='//example.com'><button>x</button></form>",
    "<details open ontoggle=alert(1)>",
    "<body onload=alert(1)>",
    "<input autofocus onfocus=alert(1)>",
    "<video><source onerror=alert(1)></video>",
    "<marquee onstart=alert(1)>",
    "<!--><img src=x onerror=alert(1)>-->",
    "<![CDATA[<script>alert(1)</script>]]>",
    "${alert(1)} {{alert(1)}} `${alert(1)}`",
    "&lt;img src=x onerror=alert(1)&gt; &#60;b&#62;",
    "$& $1 $' \\ \u202egnp.exe",
)
FOREIGN = "img, iframe, object, embed, math, base, marquee, video, main style, main script, form[action]"


async def stage(queue: qo.Queue) -> None:
    """Each text as a job's user, project and groups, and the first of them as everything else that has a name."""
    await register(queue, FIRST, tasks=(FIRST,))
    await start(queue, "runs", worker=FIRST, task=FIRST, user=FIRST, tier=FIRST, groups=[FIRST])
    (fails,) = await start(queue, "fails", worker=FIRST, task=FIRST, user=FIRST, data={FIRST: list(TEXTS)})
    error = JobError(FIRST, FIRST, "DEBUG1")
    await queue.store.finish([Outcome(job_id="fails", token=fails.token, state=qo.State.FAILED, error=error)])
    await queue.set_limit(FIRST, 1)
    for number, text in enumerate(TEXTS):
        await queue.submit(FIRST, id=f"{text} {number}", user=text, project=text, groups=[FIRST, text])
        await queue.set_limit(text, 1)


async def test_every_page_shows_names_as_text(browser: Browser) -> None:
    settings = {"server": {"port": 0}, "tiers": {FIRST: {}}}
    async with await qo.connect("memory://", settings=settings) as queue, running_service(queue) as served:
        await stage(queue)
        context = await browser.new_context(
            base_url=str(served.client.base_url), viewport={"width": 1280, "height": 2400}, reduced_motion="reduce"
        )
        page = await context.new_page()
        complaints = Complaints(page)
        await page.goto("/")
        await expect(page.locator(ROWS).first).to_be_visible()
        shown = " ".join(await page.locator(f"{ROWS} .what").all_inner_texts())
        await page.locator(".scroller").evaluate("element => { element.scrollTop = element.scrollHeight }")
        await expect(page.locator(f"{ROWS} .place b").last).to_have_text(str(len(TEXTS)))
        shown += " ".join(await page.locator(f"{ROWS} .what").all_inner_texts())
        assert [text for text in TEXTS if text not in shown] == []
        addresses = {**PAGES, "runs": "#/jobs/runs", "fails": "#/jobs/fails", "group": f"#/groups/{FIRST}"}
        for name, address in addresses.items():
            await page.goto(f"/{address}")
            await expect(page.locator("main h1, main h2").first).to_be_attached()
            if name not in ("insight", "submit"):
                await expect(page.locator("main")).to_contain_text(FIRST)
            assert await page.locator(FOREIGN).count() == 0, name
        await page.goto("/#/jobs/fails")
        payload = page.get_by_role("region", name="Payload", exact=True)
        await payload.get_by_text("32 items").click()
        for text in TEXTS:
            await expect(payload).to_contain_text(msgspec.json.encode(text).decode())
        await context.close()

    assert complaints.texts == []
