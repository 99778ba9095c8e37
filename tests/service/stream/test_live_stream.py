"""The operators' stream over a real connection: what changed, where it was, and how a client goes on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import qo
from qo.service.stream import live, live_reader, overview
from qo.values import Keep, Registration, TaskOptions, UpkeepRules
from tests.by_hand import start
from tests.service.stream.app import LIVE, StreamApp
from tests.service.stream.client import Frame, StreamClient, connected
from tests.worker.running import soon, until


@pytest.fixture
def app(queue: qo.Queue) -> StreamApp:
    return StreamApp(queue)


async def next_with(client: StreamClient, job_id: str) -> tuple[Frame, dict[str, Any]]:
    """The next frame in which this job changed, and its row."""

    async def find() -> tuple[Frame, dict[str, Any]]:
        while True:
            frame = await client.next()
            for row in frame.data["changed"]:
                if row["id"] == job_id:
                    return frame, row

    return await soon(find())


async def next_part(client: StreamClient, part: str) -> Any:
    """The groups, the workers or the overview of the next frame that has them."""

    async def find() -> Any:
        while part not in (frame := await client.next()).data:
            pass
        return frame.data[part]

    return await soon(find())


async def register(queue: qo.Queue, *tasks: str) -> None:
    options = tuple(TaskOptions(name=task) for task in tasks)
    await queue.store.register(Registration(name="w1", instance="i1", tasks=options, capacity=4))


# --- what frames contain ----------------------------------------------------------------------------------------


async def test_the_first_frame_has_everything_but_rows(queue: qo.Queue, app: StreamApp) -> None:
    await register(queue, "build")
    await queue.set_limit("global", 0)
    await queue.submit("build", id="a")
    await queue.submit("export", id="b")
    async with app.served() as served, connected(served, LIVE) as client:
        first = await client.next()

    assert (client.status, first.event) == (200, "frame")
    assert client.headers["content-type"].startswith("text/event-stream")
    assert first.id == (await queue.store.events(None)).cursor
    assert (first.data["waiting"], first.data["changed"], first.data["gone"]) == (2, [], [])
    assert [group["group"] for group in first.data["groups"]] == ["global"]
    assert [worker["name"] for worker in first.data["workers"]] == ["w1"]
    seen = first.data["overview"]
    assert seen["waits_for"] == [
        {"kind": "no_worker", "text": "1 for a worker of export", "group": "export", "count": 1},
        {"kind": "shut", "text": "1 for global (limit 0)", "group": "global", "count": 1},
    ]
    assert seen["flow"] == {"joined": 2, "started": 0, "ended": 0, "failed": 0}
    assert seen["counts"] == {"queued": 2}


async def test_a_submitted_job_comes_as_a_row_of_the_line_with_its_key(queue: qo.Queue, app: StreamApp) -> None:
    async with app.served() as served, connected(served, LIVE) as client:
        await client.next()
        await queue.submit("build", id="a", user="u1", priority="high", data={"secret": "canary"})
        frame, row = await next_with(client, "a")

    job = await queue.get("a")
    assert (frame.data["waiting"], frame.data["gone"]) == (1, [])
    assert (row["key"], row["state"], row["user"], row["priority"]) == (job.key, "queued", "u1", 20)
    assert row["waits_for"] == [{"kind": "no_worker", "text": "no worker runs task build", "group": "build"}]
    left_out = {"key_before", "position", "position_message", "token", "usage", "result", "data"}
    assert not left_out & row.keys()
    assert None not in row.values()


async def test_a_started_job_is_gone_from_where_it_was(queue: qo.Queue, app: StreamApp) -> None:
    job = await queue.submit("build", id="a")
    await queue.submit("build", id="b")
    async with app.served() as served, connected(served, LIVE) as client:
        await client.next()
        await start(queue)
        frame, row = await next_with(client, "a")

    assert frame.data["gone"] == [["a", job.key]]
    assert frame.data["waiting"] == 1
    assert (row["state"], "key" in row, "key_before" in row, "waits_for" in row) == ("starting", False, False, False)


async def test_a_cancelled_job_is_gone_and_one_that_was_not_in_line_is_not(queue: qo.Queue, app: StreamApp) -> None:
    job = await queue.submit("build", id="in-line")
    await queue.submit("build", id="later", delay=3600)
    async with app.served() as served, connected(served, LIVE) as client:
        await client.next()
        await queue.cancel("later")
        frame, row = await next_with(client, "later")
        assert (frame.data["gone"], row["state"]) == ([], "cancelled")
        await queue.cancel("in-line")
        frame, row = await next_with(client, "in-line")

    assert (frame.data["gone"], row["state"]) == ([["in-line", job.key]], "cancelled")


async def test_a_moved_job_has_the_key_that_it_had_and_the_one_it_has(queue: qo.Queue, app: StreamApp) -> None:
    jobs = [await queue.submit("build", id=name) for name in ("a", "b", "c")]
    async with app.served() as served, connected(served, LIVE) as client:
        await client.next()
        await queue.move("c", before="a")
        frame, row = await next_with(client, "c")

    assert (row["key_before"], row["key"]) == (jobs[2].key, (await queue.get("c")).key)
    assert jobs[0].key is not None
    assert row["key"] < jobs[0].key
    assert frame.data["gone"] == []
    assert [each["id"] for each in frame.data["changed"]] == ["c"]


async def test_jobs_of_a_user_with_another_tier_come_again(queue: qo.Queue, app: StreamApp) -> None:
    await queue.submit("build", id="a", user="u1")
    await queue.submit("build", id="b", user="u2")
    async with app.served() as served, connected(served, LIVE) as client:
        await client.next()
        await queue.set_tier("u1", "cto_scale")
        frame, row = await next_with(client, "a")

    assert row["tier"] == "cto_scale"
    assert row["key"] == row["key_before"]
    assert [each["id"] for each in frame.data["changed"]] == ["a"]


async def test_groups_come_when_they_change_and_once_more_when_they_are_gone(
    queue: qo.Queue, app: StreamApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_reader, "GROUPS_EVERY_SECONDS", 0.01)
    await queue.set_limit("api", 3)
    async with app.served() as served, connected(served, LIVE) as client:
        await client.next()
        await queue.set_limit("gpu", 2)
        (gpu,) = await next_part(client, "groups")
        await queue.remove_limit("api")
        (api,) = await next_part(client, "groups")

    assert (gpu["group"], gpu["limit"]) == ("gpu", 2)
    assert (api["group"], api["limit"], api["active"], api["paused"]) == ("api", None, 0, False)


async def test_a_new_worker_comes_without_any_event_and_the_overview_when_it_changed(
    queue: qo.Queue, app: StreamApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_reader, "GROUPS_EVERY_SECONDS", 0.01)
    monkeypatch.setattr(overview, "EVERY_SECONDS", 0.1)
    async with app.served() as served, connected(served, LIVE) as client:
        first = await client.next()
        assert first.data["workers"] == []
        await register(queue, "build")
        workers = await next_part(client, "workers")
        await queue.submit("build")
        seen = await next_part(client, "overview")

    assert [worker["name"] for worker in workers] == ["w1"]
    assert (seen["counts"], seen["flow"]["joined"]) == ({"queued": 1}, 1)


async def test_rows_that_wait_for_something_else_than_before_are_told_with_the_next_reading(
    queue: qo.Queue, app: StreamApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "EVERY_SECONDS", 0.01)
    monkeypatch.setattr("qo.queue.estimator.Estimator._age", lambda _: 3600.0)  # every reading is a new one
    await register(queue, "build")
    await queue.pause("build")
    await queue.submit("build", id="a")
    await queue.submit("build", id="b")
    async with app.served() as served, connected(served, LIVE) as client:
        await client.next()
        await queue.set_limit("global", 0)
        reasons = await next_part(client, "reasons")

    paused = {"kind": "paused", "text": "paused: build", "group": "build"}
    shut = {"kind": "shut", "text": "global has a limit of 0", "group": "global"}
    assert reasons == [{"waits_for": [paused, shut], "ids": ["a", "b"]}]


async def test_nothing_is_sent_while_nothing_changes(
    queue: qo.Queue, app: StreamApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "EVERY_SECONDS", 0.01)
    monkeypatch.setattr(live_reader, "GROUPS_EVERY_SECONDS", 0.01)
    await queue.submit("build", id="a")
    async with app.served() as served, connected(served, LIVE) as client:
        await client.next()
        made = 0

        async def counted(make: Any = overview.Overviews.make) -> Any:
            nonlocal made
            made += 1
            return await make(app_overviews)

        app_overviews = app.live.reader.overviews
        monkeypatch.setattr(app_overviews, "make", counted)

        async def were_made() -> bool:
            return made > 3

        await until(were_made)
        await queue.cancel("a")
        frame = await client.next()

    assert [row["id"] for row in frame.data["changed"]] == ["a"]


async def test_events_that_come_together_are_one_frame_and_one_row_a_job(queue: qo.Queue, app: StreamApp) -> None:
    await queue.submit("build", id="a")
    async with app.served() as served, connected(served, LIVE) as client:
        await client.next()
        by_hand = await start(queue)
        await next_with(client, "a")
        await by_hand.has_done(*range(50))
        frame, row = await next_with(client, "a")

    assert row["progress"]["done"] == 49
    assert frame.id == (await queue.store.events(None)).cursor


# --- going on ---------------------------------------------------------------------------------------------------


async def test_a_client_that_comes_back_gets_what_it_missed(queue: qo.Queue, app: StreamApp) -> None:
    async with app.served() as served, connected(served, LIVE) as other:
        await other.next()
        async with connected(served, LIVE) as client:
            await client.next()
            await queue.submit("build", id="a")
            last, _ = await next_with(client, "a")
        await next_with(other, "a")
        for name in ("b", "c"):
            await queue.submit("build", id=name)
            await next_with(other, name)
        async with connected(served, LIVE, headers={"Last-Event-ID": str(last.id)}) as again:
            opening = await again.next()
            missed = [await next_with(again, name) for name in ("b", "c")]

    assert (opening.event, opening.id, opening.data["changed"]) == ("frame", last.id, [])
    assert {"groups", "workers", "overview"} <= opening.data.keys()
    assert [row["id"] for _, row in missed] == ["b", "c"]
    assert [frame.data["changed"] for frame, _ in missed] == [
        frame.data["changed"] for frame in other.frames if frame.event and frame.data["changed"]
    ][1:]


async def test_the_only_client_goes_on_where_it_was_when_nobody_watched_meanwhile(
    queue: qo.Queue, app: StreamApp
) -> None:
    job = await queue.submit("build", id="a")
    async with app.served() as served:
        async with connected(served, LIVE) as client:
            last = await client.next()
        await until(lambda: _nobody_watches(app))
        await queue.cancel("a")
        await queue.submit("build", id="b")
        async with connected(served, LIVE, headers={"Last-Event-ID": str(last.id)}) as again:
            opening = await again.next()
            frame, row = await next_with(again, "b")

    assert opening.event == "frame"
    assert frame.data["gone"] == [["a", job.key]]
    assert "key_before" not in row


@pytest.mark.parametrize("cursor", ["0", "1", "99999999"])
async def test_a_cursor_that_no_frame_led_to_gets_a_reset(queue: qo.Queue, app: StreamApp, cursor: str) -> None:
    for number in range(3):
        await queue.submit("build", id=f"j{number}")
    async with app.served() as served, connected(served, f"{LIVE}?after={cursor}") as client:
        first = await client.next()

    assert (first.event, first.data["waiting"], first.id) == ("reset", 3, (await queue.store.events(None)).cursor)
    assert {"groups", "workers", "overview"} <= first.data.keys()


async def test_a_cursor_that_does_not_parse_is_refused(app: StreamApp) -> None:
    async with app.served() as served, connected(served, f"{LIVE}?after=x") as client:
        assert client.status == 422


async def test_too_many_changes_are_a_reset_and_then_frames_again(
    queue: qo.Queue, app: StreamApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "AFTER_RESET_SECONDS", 0.01)
    async with app.served() as served, connected(served, LIVE) as client:
        await client.next()
        await queue.submit_many([qo.New("build", id=f"j{number}") for number in range(live_reader.MOST_CHANGES + 1)])
        reset = await client.next(event="reset")
        await queue.cancel("j7")
        frame, row = await next_with(client, "j7")

    assert (reset.data["changed"], reset.data["waiting"]) == ([], live_reader.MOST_CHANGES + 1)
    assert row["state"] == "cancelled"
    assert [job_id for job_id, _ in frame.data["gone"]] == ["j7"]


async def test_events_that_are_no_longer_kept_are_a_reset(queue: qo.Queue, app: StreamApp) -> None:
    async with app.served() as served:
        async with connected(served, LIVE) as client:
            last = await client.next()
        await until(lambda: _nobody_watches(app))
        for number in range(5):
            await queue.submit("build", id=f"j{number}")
        await queue.store.upkeep(UpkeepRules(keep=Keep(ms=10**9, jobs=100, events=1, audit=100)))
        async with connected(served, LIVE, headers={"Last-Event-ID": str(last.id)}) as again:
            first = await again.next()

    assert (first.event, first.data["waiting"]) == ("reset", 5)


async def _nobody_watches(app: StreamApp) -> bool:
    await asyncio.sleep(0)
    return app.live.watching == 0
