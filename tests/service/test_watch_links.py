"""A watch link shows one job to whoever has it, and nothing else."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta

import httpx
import pytest

import qo
from qo.service.access import signing
from qo.service.access.watch_links import WatchLinks
from qo.service.stream.watchers import MOST_OF_A_WATCH_TOKEN
from tests.by_hand import start
from tests.service.conftest import Service, running_service
from tests.service.test_following import frames, run

CANARY = "c4nary-secret"


async def link_of(served: Service, **fields: object) -> str:
    body = {"task": "build", "data": {"note": CANARY}, "user": "u1", **fields}
    made = (await served.client.post("/api/jobs", json=body)).json()
    return httpx.URL(made["watch_url"]).path


async def test_a_link_shows_status_and_position_and_neither_data_nor_others(served: Service) -> None:
    await served.queue.submit("build", id="before", user="u2")
    path = await link_of(served, id="mine")

    shown = await served.client.get(path, headers={"Accept": "application/json"})

    assert (shown.json()["status"], shown.json()["position"]) == ("queued", 2)
    for secret in (CANARY, "mine", "before", "u1", "u2"):
        assert secret not in shown.text
    assert shown.headers["referrer-policy"] == "no-referrer"
    assert shown.headers["cache-control"] == "no-store"


async def test_the_address_of_a_link_is_never_taken_from_the_host_header(served: Service) -> None:
    made = await served.client.post("/api/jobs", json={"task": "build"}, headers={"Host": "10.9.8.7:6"})

    assert made.json()["watch_url"].startswith(f"{str(served.client.base_url).rstrip('/')}/watch/")


WIDGET = "https://shop.example"


async def test_every_answer_at_a_link_can_be_read_by_the_widget_and_is_kept_nowhere() -> None:
    settings = {"server": {"port": 0, "widget_origins": [WIDGET]}}
    async with await qo.connect("memory://", settings=settings) as queue, running_service(queue) as served:
        path = await link_of(served)
        events = {"Accept": "text/event-stream", "Origin": WIDGET}
        async with AsyncExitStack() as opened:
            for _ in range(MOST_OF_A_WATCH_TOKEN):
                await opened.enter_async_context(served.client.stream("GET", path, headers=events))
            too_many = await served.client.get(path, headers=events)
        forged = await served.client.get(path, headers=events, params={"after": "x"})
        unknown = await served.client.get(path, headers=events, params={"colour": "red"})
        void = await served.client.get(f"{path}x", headers=events)

    assert [each.status_code for each in (too_many, forged, unknown, void)] == [429, 422, 422, 404]
    for answer in (too_many, forged, unknown, void):
        assert answer.headers["access-control-allow-origin"] == WIDGET
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["vary"] == "Accept, Origin"


async def test_a_link_works_as_a_page_without_scripts(served: Service) -> None:
    path = await link_of(served)
    await served.queue.cancel((await served.queue.jobs())[0].id, message="<script>alert(1)</script>")

    page = (await served.client.get(path, headers={"Accept": "text/html"})).text

    assert "cancelled" in page
    assert "<script" not in page
    assert "&lt;script&gt;" in page


async def test_the_page_shows_progress_and_the_offer(served: Service) -> None:
    path = await link_of(served, id="one", tier="bootstrapper")
    in_line = (await served.client.get(path, headers={"Accept": "text/html"})).text
    by_hand = await start(served.queue)
    await by_hand.has_done_of(3, 10)
    without_text = (await served.client.get(path, headers={"Accept": "text/html"})).text
    await by_hand.has_done_of(4.5, 10, "<half>")
    with_text = (await served.client.get(path, headers={"Accept": "text/html"})).text

    assert '<a href="https://example.com/more">' in in_line
    assert "<p>3 of 10" in without_text
    assert "<p>4.5 of 10: &lt;half&gt;" in with_text
    assert "https://example.com/more" not in with_text


@pytest.mark.parametrize("served", ["memory"], indirect=True)
async def test_a_link_that_becomes_void_ends_its_streams(served: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signing, "CACHED_SECONDS", 0)
    path, other = await link_of(served), "/api/jobs/one/stream"
    await served.queue.submit("build", id="one")
    async with AsyncExitStack() as opened:
        headers = {"Accept": "text/event-stream"}
        of_the_link = await opened.enter_async_context(served.client.stream("GET", path, headers=headers))
        of_the_operator = await opened.enter_async_context(served.client.stream("GET", other))
        events = frames(of_the_operator)
        await anext(events)
        await served.keys.rotate_watch()
        async with asyncio.timeout(30):
            async for _ in frames(of_the_link):
                pass
        await served.queue.cancel("one")
        (*_, last) = [data["status"] async for _, _, data in events]

    assert last == "cancelled"
    assert (await served.client.get(path)).status_code == 404


async def test_a_link_is_followed_as_events(served: Service) -> None:
    path = await link_of(served, id="one")
    seen: list[str] = []
    async with served.client.stream("GET", path, headers={"Accept": "text/event-stream"}) as answer:
        async for _, _, data in frames(answer):
            if not seen:
                await run(served, "one")
            seen.append(data["status"])

    assert seen[0] == "queued"
    assert seen[-1] == "ready"


async def test_a_stream_has_the_range_and_the_offer_with_every_position(served: Service) -> None:
    path = await link_of(served, id="one", tier="bootstrapper")
    accept = {"Accept": "text/event-stream"}
    async with served.client.stream("GET", path, headers=accept) as answer:
        _, _, queued = await anext(frames(answer))
    by_hand = await start(served.queue)
    async with served.client.stream("GET", path, headers=accept) as answer:
        events = frames(answer)
        _, _, running = await anext(events)
        await by_hand.is_handed_back()
        async for _, _, again in events:
            if again.get("estimate") is not None:
                break

    for each in (queued, again):
        assert each["estimate"]["message"] == "not known yet: no worker runs task build"
        assert each["upgrade_url"] == "https://example.com/more"
    assert (running["state"], running["upgrade_url"]) == ("starting", None)


async def test_a_link_that_was_changed_or_made_void_shows_nothing(served: Service) -> None:
    path = await link_of(served)
    head, last = path[:-1], path[-1]
    others = [each for each in "ABCabc019-_" if each != last]

    answers = await asyncio.gather(*(served.client.get(head + each) for each in others))
    assert {answer.status_code for answer in answers} == {404}
    assert (await served.client.get(f"{path}A")).status_code == 404
    assert (await served.client.post(path)).status_code == 405


async def test_a_link_that_expired_or_is_of_an_earlier_job_of_this_id_shows_nothing(served: Service) -> None:
    job = await served.queue.submit("build", id="one")
    links, now, day = WatchLinks(served.queue.store), served.queue.system.now(), timedelta(days=1)
    right = await links.make("one", job.submitted_at, now + day)
    expired = await links.make("one", job.submitted_at, now - day)
    of_an_earlier_job = await links.make("one", job.submitted_at - day, now + day)
    of_nobody = await links.make("nobody", job.submitted_at, now + day)

    statuses = [
        (await served.client.get(f"/watch/{token}")).status_code
        for token in (right, expired, of_an_earlier_job, of_nobody)
    ]

    assert statuses == [200, 404, 404, 404]
