"""The stream of one job over HTTP: its present state, every change once and in order, and where it can go on."""

from __future__ import annotations

import pytest

import qo
from qo.errors import InvalidValue
from qo.queue import positions
from qo.service.stream.job import LARGEST_CURSOR, cursor_from
from qo.values import Keep, UpkeepRules
from tests.by_hand import start
from tests.service.stream.app import StreamApp, path_of
from tests.service.stream.client import Frame, connected


@pytest.fixture
def app(queue: qo.Queue) -> StreamApp:
    return StreamApp(queue)


def statuses(frames: list[Frame]) -> list[str]:
    """Of the feed's events. Positions come when they come."""
    return [frame.data["status"] for frame in frames if frame.event == "status" and frame.data["state"] != "queued"]


async def test_a_job_is_followed_through_its_stages_to_its_end(queue: qo.Queue, app: StreamApp) -> None:
    job = await queue.submit("build")
    async with app.served() as served, connected(served, path_of(job.id)) as client:
        first = await client.next()
        by_hand = await start(queue)
        await by_hand.is_at("compiling", "Compiling 12 files")
        await by_hand.has_done(3)
        await by_hand.is_at("testing")
        await by_hand.succeeds()
        frames = [frame for frame in await client.rest() if frame.event and frame.data["state"] != "queued"]

    everything = (await queue.store.events(first.id, subjects=[job.id])).events
    assert (client.status, first.event) == (200, "connected")
    assert first.data.pop("timestamp").endswith("Z")
    assert first.data.pop("estimate")["message"] == "not known yet: no worker runs task build"
    assert first.data == {
        "job_id": job.id,
        "resumed": False,
        "status": "queued",
        "state": "queued",
        "message": "You are #1 in queue. Your position may change as priority jobs are added",
        "position": 1,
        "position_original": 1,
        "stage": None,
        "progress": None,
        "upgrade_url": None,
        "run_at": None,
    }
    assert {frame.event for frame in frames} == {"status"}
    assert [frame.id for frame in frames] == [event.id for event in everything]
    assert [(frame.data["state"], frame.data["status"]) for frame in frames] == [
        ("starting", "starting"),
        ("running", "running"),
        ("running", "compiling"),
        ("running", "compiling"),
        ("running", "testing"),
        ("succeeded", "ready"),
    ]
    stage, progress = frames[2].data, frames[3].data
    assert (stage["stage"], stage["message"], stage["position"]) == ("compiling", "Compiling 12 files", None)
    assert (progress["progress"], progress["job_id"]) == ({"done": 3.0, "total": None, "text": None}, job.id)


async def test_the_headers_are_those_of_a_stream(queue: qo.Queue, app: StreamApp) -> None:
    job = await queue.submit("build")
    async with app.served() as served:
        async with connected(served, path_of(job.id)) as client:
            headers = client.headers
        async with connected(served, path_of(job.id), headers={"Connection": "close"}) as client:
            closing = client.headers
        async with connected(served, path_of(job.id), version="1.0") as client:
            old = client.headers

    assert headers["content-type"] == "text/event-stream; charset=utf-8"
    assert headers["cache-control"] == "no-cache"
    assert headers["x-accel-buffering"] == "no"
    assert headers["connection"] == "keep-alive"
    assert closing["connection"] == "close"
    assert old.get("connection") != "keep-alive"


async def test_nothing_is_missed_or_repeated_after_the_connection_was_cut(queue: qo.Queue, app: StreamApp) -> None:
    job = await queue.submit("build")
    by_hand = await start(queue)
    async with app.served() as served:
        async with connected(served, path_of(job.id)) as client:
            first = await client.next()
            await by_hand.is_at("compiling")
            seen = [await client.next(), await client.next()]
        await by_hand.has_done(1, 2)
        await by_hand.is_at("testing")
        async with connected(served, path_of(job.id), headers={"Last-Event-ID": str(seen[-1].id)}) as client:
            again = await client.next()
            await by_hand.succeeds()
            seen += await client.rest()

    everything = (await queue.store.events(first.id, subjects=[job.id])).events
    assert (again.event, again.id, again.data["resumed"], again.data["status"]) == (
        "connected",
        seen[1].id,
        True,
        "testing",
    )
    assert [frame.id for frame in seen] == [event.id for event in everything]
    assert statuses(seen)[-1] == "ready"


async def test_the_query_resumes_too_and_the_header_counts_before_it(queue: qo.Queue, app: StreamApp) -> None:
    job = await queue.submit("build")
    before = (await queue.store.events(None)).cursor
    await (await start(queue)).succeeds()
    started = (await queue.store.events(before, subjects=[job.id])).events[0]
    async with app.served() as served:
        async with connected(served, f"{path_of(job.id)}?after={before}") as client:
            by_query = await client.rest()
        header = {"Last-Event-ID": str(started.id)}
        async with connected(served, f"{path_of(job.id)}?after={before}", headers=header) as client:
            by_header = await client.rest()

    assert [frame.data["status"] for frame in by_query] == ["succeeded", "starting", "running", "succeeded"]
    assert [frame.data["status"] for frame in by_header] == ["succeeded", "running", "succeeded"]


@pytest.mark.parametrize("forged", [10_000, LARGEST_CURSOR, 9_999_999_999_999_999_999])
async def test_a_cursor_ahead_of_the_feed_gets_the_present_state(queue: qo.Queue, app: StreamApp, forged: int) -> None:
    job = await queue.submit("build")
    header = {"Last-Event-ID": str(forged)}
    async with app.served() as served, connected(served, path_of(job.id), headers=header) as client:
        first = await client.next()
        await (await start(queue)).succeeds()
        rest = await client.rest()

    assert (first.event, first.data["resumed"], first.data["status"], first.data["position"]) == (
        "reset",
        False,
        "queued",
        1,
    )
    assert statuses(rest) == ["starting", "running", "succeeded"]
    assert first.id is not None
    assert first.id < forged


async def test_a_cursor_older_than_the_feed_gets_the_present_state(queue: qo.Queue, app: StreamApp) -> None:
    job = await queue.submit("build")
    by_hand = await start(queue)
    await by_hand.is_at("compiling")
    await queue.submit("other")
    await queue.store.upkeep(UpkeepRules(keep=Keep(ms=10**9, jobs=100, events=1, audit=100)))
    async with app.served() as served, connected(served, path_of(job.id), headers={"Last-Event-ID": "1"}) as client:
        first = await client.next()
        await by_hand.succeeds()
        rest = await client.rest()

    assert (first.event, first.data["status"]) == ("reset", "compiling")
    assert statuses(rest) == ["ready"]


async def test_a_reset_of_a_job_that_has_ended_is_the_end_of_its_stream(queue: qo.Queue, app: StreamApp) -> None:
    job = await queue.submit("build")
    await queue.cancel(job.id)
    header = {"Last-Event-ID": "10000"}
    async with app.served() as served, connected(served, path_of(job.id), headers=header) as client:
        frames = await client.rest()

    assert [(frame.event, frame.data["status"]) for frame in frames] == [("reset", "cancelled")]


async def test_a_job_that_has_ended_is_shown_and_the_stream_ends(queue: qo.Queue, app: StreamApp) -> None:
    job = await queue.submit("build")
    await queue.cancel(job.id)
    async with app.served() as served, connected(served, path_of(job.id)) as client:
        frames = await client.rest()

    assert [(frame.event, frame.data["status"]) for frame in frames] == [("connected", "cancelled")]


@pytest.mark.parametrize("text", ["", "abc", "-1", "1.5", " 1", "1 ", "+1", "1_000", "٣", "1" * 20, "0x1", "1\n"])
def test_a_cursor_that_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match=r"Last-Event-ID is .*; use the id of the last event"):
        cursor_from(last_event_id=text, after=None)
    with pytest.raises(InvalidValue, match="after is "):
        cursor_from(last_event_id=None, after=text)


async def test_errors_before_the_first_event_are_answers_of_their_own(queue: qo.Queue, app: StreamApp) -> None:
    job = await queue.submit("build")
    async with app.served() as served:
        async with connected(served, path_of("nobody")) as client:
            assert client.status == 404
        async with connected(served, path_of(job.id), headers={"Last-Event-ID": "abc"}) as client:
            assert client.status == 422
            assert b"Last-Event-ID is 'abc'" in await client.body()
        assert app.watchers.open == 0


async def test_a_question_for_the_headers_is_answered_and_over(queue: qo.Queue, app: StreamApp) -> None:
    job = await queue.submit("build")
    async with app.served() as served:
        async with connected(served, path_of(job.id), method="HEAD") as client:
            assert (client.status, client.headers["cache-control"]) == (200, "no-cache")
        assert app.watchers.open == 0


async def test_a_place_in_line_is_told_and_carries_the_last_id(
    queue: qo.Queue, app: StreamApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(positions, "TICK_SECONDS", 0.01)
    for name in "ab":
        await queue.submit("build", id=name)
    async with app.served() as served, connected(served, path_of("b")) as client:
        first = await client.next()
        told = await client.next()
        await queue.cancel("a")
        while (moved := await client.next()).data["position"] != 1:
            pass

    assert (first.data["position"], told.data["position"]) == (2, 2)
    assert {told.event, moved.event} == {"status"}
    assert first.id == told.id == moved.id
    assert moved.data["message"] == "You are #1 in queue. Your position may change as priority jobs are added"
    assert (moved.data["position_original"], moved.data["state"]) == (2, "queued")
    assert isinstance(moved.data["estimate"]["message"], str)


async def test_only_what_a_user_may_know_is_in_the_stream(queue: qo.Queue, app: StreamApp) -> None:
    """Some events of the feed name the worker, the lease's token and its slots."""
    await queue.set_limit("gpu", 1)
    job = await queue.submit("build", groups=["gpu"])
    async with app.served() as served, connected(served, path_of(job.id)) as client:
        first = await client.next()
        await (await start(queue)).runs()
        await queue.cancel(job.id)
        await queue.store.revoke("gpu", 0, force=True)
        await client.rest()

    kinds = [event.kind for event in (await queue.store.events(first.id, subjects=[job.id])).events]
    assert kinds == ["starting", "running", "cancel_wanted", "lease_lost", "cancelled"]
    known = {"job_id", "resumed", "status", "state", "message", "position", "timestamp", "position_original"}
    known |= {"estimate", "stage", "progress", "upgrade_url", "run_at"}
    assert {name for frame in client.frames if frame.data for name in frame.data} <= known


async def test_a_watcher_that_comes_late_sees_stage_progress_and_why_it_failed(queue: qo.Queue, app: StreamApp) -> None:
    job = await queue.submit("build")
    by_hand = await start(queue)
    await by_hand.is_at("compiling", "Compiling 12 files")
    await by_hand.has_done(3)
    async with app.served() as served:
        async with connected(served, path_of(job.id)) as client:
            running = await client.next()
            await by_hand.fails("The compiler was not found.")
            *_, failing = await client.rest()
        async with connected(served, path_of(job.id)) as client:
            failed = await client.next()

    assert (running.data["stage"], running.data["message"]) == ("compiling", "Compiling 12 files")
    assert running.data["progress"] == {"done": 3.0, "total": None, "text": None}
    assert (failing.data["state"], failing.data["message"]) == ("failed", "The compiler was not found.")
    assert (failed.data["state"], failed.data["message"]) == ("failed", "The compiler was not found.")


async def test_a_job_that_asks_for_confirmation_shows_its_question(queue: qo.Queue, app: StreamApp) -> None:
    job = await queue.submit("build")
    by_hand = await start(queue)
    async with app.served() as served:
        async with connected(served, path_of(job.id)) as client:
            await client.next()
            await by_hand.asks("Continue for 2 more iterations")
            while (asking := await client.next()).data["state"] != "confirming":
                pass
        async with connected(served, path_of(job.id)) as client:
            asked = await client.next()

    assert asking.data["message"] == asked.data["message"] == "Continue for 2 more iterations"
    assert asked.data["state"] == "confirming"
