"""What operators are told beside whole rows: only what changed, held slots, and what the first rows in line show."""

from __future__ import annotations

import pytest

import qo
from qo.service.stream import live_reader, overview
from tests.by_hand import start
from tests.service.stream.app import LIVE, StreamApp
from tests.service.stream.client import connected
from tests.service.stream.test_live_stream import next_part, next_with


@pytest.fixture
def app(queue: qo.Queue) -> StreamApp:
    return StreamApp(queue)


async def test_a_job_that_stays_in_line_and_comes_not_further_ahead_has_only_what_changed(
    queue: qo.Queue, app: StreamApp
) -> None:
    before = await queue.submit("build", id="a", user="u1")
    async with app.served() as served, connected(served, LIVE) as client:
        await client.next()
        await queue.set_priority("a", "low")
        _, back = await next_with(client, "a")
        await queue.set_priority("a", "high")
        _, ahead = await next_with(client, "a")

    assert back.keys() == {"id", "state", "key", "key_before", "priority"}
    assert (back["priority"], back["key_before"]) == (70, before.key)
    assert (ahead["task"], ahead["user"], ahead["priority"]) == ("build", "u1", 20)


async def test_a_row_has_nothing_that_is_empty(queue: qo.Queue, app: StreamApp) -> None:
    async with app.served() as served, connected(served, LIVE) as client:
        await client.next()
        await queue.submit("build", id="a", priority=0)
        _, row = await next_with(client, "a")

    assert not {"status", "attempts", "iterations", "cancel_wanted", "groups", "user"} & row.keys()
    assert row["priority"] == 0


async def test_a_running_job_comes_whole_once_and_then_with_what_changed(queue: qo.Queue, app: StreamApp) -> None:
    await queue.submit("build", id="a", user="u1")
    async with app.served() as served, connected(served, LIVE) as client:
        await client.next()
        by_hand = await start(queue)
        await by_hand.is_at("code")
        _, row = await next_with(client, "a")
        while row["state"] != "running":
            _, row = await next_with(client, "a")
        await by_hand.is_at("checks")
        _, later = await next_with(client, "a")

    assert (row["task"], row["user"], row["stage"]) == ("build", "u1", "code")
    assert later == {"id": "a", "state": "running", "stage": "checks", "status": "checks"}


async def test_slots_of_a_group_come_when_they_are_taken_and_when_they_are_free(
    queue: qo.Queue, app: StreamApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_reader, "GROUPS_EVERY_SECONDS", 0.01)
    await queue.set_limit("global", 2)
    await queue.submit("build", id="a")
    await queue.submit("build", id="b")
    async with app.served() as served, connected(served, LIVE) as client:
        assert (await client.next()).data["slots"] == {}
        await start(queue)
        ((number, holder, worker, since, expires_at),) = (await next_part(client, "slots"))["global"]
        await start(queue)
        second = (await next_part(client, "slots"))["global"]
        await queue.release_slot("global", 0, force=True)
        freed = (await next_part(client, "slots"))["global"]
        async with connected(served, LIVE) as other:
            present = (await other.next()).data["slots"]

    assert (number, holder, worker, since < expires_at) == (0, "a", "by-hand", True)
    assert [slot[:2] for slot in second] == [[1, "b"]]
    assert [slot[:2] for slot in freed] == [[0, None]]
    assert [slot[:2] for slot in present["global"]] == [[1, "b"]]


async def test_the_first_rows_are_told_how_they_moved_since_they_joined(
    queue: qo.Queue, app: StreamApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "EVERY_SECONDS", 0.01)
    monkeypatch.setattr("qo.queue.estimator.Estimator._age", lambda _: 3600.0)  # every reading is a new one
    for name in ("a", "b", "c"):
        await queue.submit("build", id=name)
    async with app.served() as served, connected(served, LIVE) as client:
        first = (await client.next()).data["front"]
        await queue.move("c", before="a")
        moved = {row[0]: row for row in await next_part(client, "front")}
        while len(moved) < 3:
            moved = {row[0]: row for row in await next_part(client, "front")}

    nobody = "not known yet: no worker runs task build"
    assert first == [[name, None, nobody, 0] for name in ("a", "b", "c")]
    assert moved == {"c": ["c", None, nobody, 2], "a": ["a", None, nobody, 0], "b": ["b", None, nobody, 0]}
