"""Following a job: `watch`, `wait`, and nothing missed in between."""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing, suppress
from typing import Any

import pytest

import qo
from qo.event import Event, Feed
from qo.queue import positions
from qo.values import Keep, UpkeepRules
from tests.worker.running import running, soon


async def kinds_of(queue: qo.Queue, job_id: str, **options: Any) -> list[str]:
    async with aclosing(queue.watch(job_id, **options)) as events:
        return [event.kind async for event in events]


async def test_a_watch_begins_with_the_present_state_and_ends_with_the_job(queue: qo.Queue, worker: qo.Worker) -> None:
    @worker.task
    async def build(data: Any, ctx: qo.Context) -> None:
        await ctx.progress(1, 2)

    job = await queue.submit("build")
    async with aclosing(queue.watch(job.id)) as events:
        first = await soon(anext(events))
        async with running(worker):
            rest = [event.kind async for event in events]

    assert (first.kind, first.detail["present"], first.detail["position"]) == ("queued", True, 1)
    assert rest == ["starting", "running", "progress", "succeeded"]


async def test_a_watch_of_a_job_that_has_ended_returns_at_once(queue: qo.Queue) -> None:
    job = await queue.submit("build")
    await queue.cancel(job.id)

    assert await soon(kinds_of(queue, job.id)) == ["cancelled"]
    assert (await soon(queue.wait(job.id))).state is qo.State.CANCELLED


async def test_an_unknown_job_is_an_error(queue: qo.Queue) -> None:
    with pytest.raises(qo.JobNotFound):
        await queue.wait("nobody")


async def test_waiting_has_an_end(queue: qo.Queue) -> None:
    job = await queue.submit("build")

    with pytest.raises(qo.Timeout, match=r"has not ended within 0\.01 seconds"):
        await queue.wait(job.id, timeout=0.01)


async def test_a_watch_goes_on_behind_the_last_event_that_was_seen(queue: qo.Queue, worker: qo.Worker) -> None:
    @worker.task
    async def build(data: Any, ctx: qo.Context) -> None:
        for done in range(5):
            await ctx.progress(done)

    job = await queue.submit("build")
    await soon(worker.run_until_idle())
    everything = (await queue.store.events(0, subjects=[job.id])).events

    for seen in range(len(everything) - 1):
        assert await soon(kinds_of(queue, job.id, after=everything[seen].id)) == [
            event.kind for event in everything[seen + 1 :]
        ]
    assert await soon(kinds_of(queue, job.id, after=everything[-1].id)) == []


async def test_a_cursor_older_than_the_feed_begins_with_the_present_state_again(queue: qo.Queue) -> None:
    job = await queue.submit("build")
    for _ in range(5):
        await queue.submit("other")
    await queue.store.upkeep(UpkeepRules(keep=Keep(ms=10**9, jobs=100, events=1, audit=100)))

    async with aclosing(queue.watch(job.id, after=0)) as events:
        first = await soon(anext(events))

    assert (first.kind, first.detail["present"]) == ("queued", True)


async def test_nothing_is_missed_between_the_snapshot_and_the_first_event(queue: qo.Queue) -> None:
    """Something happens after every single call that a watch makes while it begins."""
    job = await queue.submit("build")
    changes = 0

    def changing(name: str) -> Any:
        method = getattr(queue.store, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal changes
            answer = await method(*args, **kwargs)
            if changes < 20:
                changes += 1
                await queue.store.set_priority(20 + changes, job_id=job.id)
            return answer

        return call

    for name in ("job", "events"):
        setattr(queue.store, name, changing(name))
    seen: list[Event] = []
    async with aclosing(queue.watch(job.id)) as events:
        first = await soon(anext(events))
        async for event in events:
            seen.append(event)
            if event.kind == "priority" and event.detail.get("priority") == 40:
                break

    everything = await queue.store.events(first.id, subjects=[job.id])
    assert [event.id for event in seen] == [event.id for event in everything.events][: len(seen)]
    assert len(seen) >= 15


async def test_many_watchers_are_served_by_one_reader(queue: qo.Queue, worker: qo.Worker) -> None:
    worker.task("build")(lambda: None)
    jobs = [await queue.submit("build") for _ in range(200)]
    reads = 0
    events = queue.store.events

    async def counted(after: int | None, **options: Any) -> Feed:
        nonlocal reads
        reads += len(options.get("subjects") or ()) > 1
        return await events(after, **options)

    queue.store.events = counted  # type: ignore[method-assign]
    waits = [asyncio.create_task(queue.wait(job.id)) for job in jobs]
    async with running(worker):
        ended = await soon(asyncio.gather(*waits))

    assert {job.state for job in ended} == {qo.State.SUCCEEDED}
    assert reads < 100
    assert queue.follower.watchers == {}


async def test_watchers_that_come_and_go_at_random_miss_nothing(queue: qo.Queue, worker: qo.Worker) -> None:
    rng = random.Random(1)

    @worker.task
    async def build(data: Any, ctx: qo.Context) -> None:
        for done in range(10):
            await ctx.progress(done)

    async def follow(job_id: str) -> list[int]:
        """Leave after every few events and come back with the last id."""
        ids: list[int] = []
        after = None
        while True:
            async with aclosing(queue.watch(job_id, after=after)) as events:
                left = rng.randint(1, 3)
                async for event in events:
                    if not event.detail.get("present"):
                        ids.append(event.id)
                    after = event.id
                    left -= 1
                    if left == 0:
                        break
                else:
                    return ids
            if event.kind == "succeeded":
                return ids

    jobs = [await queue.submit("build") for _ in range(10)]
    cursor = (await queue.store.events(None)).cursor
    follows = [asyncio.create_task(follow(job.id)) for job in jobs]
    await asyncio.sleep(0)
    async with running(worker):
        seen = await soon(asyncio.gather(*follows))

    for job, ids in zip(jobs, seen, strict=True):
        everything = await queue.store.events(cursor, subjects=[job.id])
        assert ids == [event.id for event in everything.events]


async def test_a_watcher_that_comes_while_the_feed_is_being_read_misses_nothing(queue: qo.Queue) -> None:
    """The read under way does not look for the newcomer's job, and passes over what happens to it meanwhile."""
    known, new = await queue.submit("build"), await queue.submit("build")
    cursor = (await queue.store.events(None)).cursor
    real = queue.store.events
    held, newcomer_has_read, reads_of_the_known = asyncio.Event(), asyncio.Event(), 0
    known_has_read, reader_waits = asyncio.Event(), asyncio.Event()

    async def staged(after: int | None, **options: Any) -> Feed:
        nonlocal reads_of_the_known
        subjects = options.get("subjects")
        if "timeout_seconds" in options:
            reader_waits.set()
        if subjects == [known.id]:
            reads_of_the_known += 1
            if reads_of_the_known == 2:  # the first is that of the watcher itself, this one is the reader's
                held.set()
                with suppress(TimeoutError):  # it must not read now, so nothing else than time can end this
                    await asyncio.wait_for(newcomer_has_read.wait(), 0.3)
                await queue.store.set_priority(33, job_id=new.id)
        feed = await real(after, **options)
        if subjects == [known.id]:
            known_has_read.set()
        if subjects == [new.id]:
            newcomer_has_read.set()
        return feed

    queue.store.events = staged  # type: ignore[method-assign]
    async with (
        aclosing(queue.follower.follow(known.id, after=cursor)) as of_the_known,
        aclosing(queue.follower.follow(new.id, after=cursor)) as of_the_new,
    ):
        first = asyncio.create_task(anext(of_the_known))
        await soon(known_has_read.wait())
        await soon(reader_waits.wait())
        await queue.store.set_priority(22, job_id=known.id)
        await soon(held.wait())
        event = await soon(anext(of_the_new))

        assert isinstance(event, Event)
        assert (event.kind, event.subject, event.detail["priority"]) == ("priority", new.id, 33)
        await soon(first)


async def test_with_real_time_a_watcher_hears_every_place_until_the_start(
    queue: qo.Queue, worker: qo.Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(positions, "TICK_SECONDS", 0.01)
    may_end = asyncio.Event()

    @worker.task(max_concurrent=1)
    async def build(data: Any, ctx: qo.Context) -> None:
        if data is not None:
            await may_end.wait()

    await queue.submit("build", "waits", id="first")
    for name in "ab":
        await queue.submit("build", id=name)
    heard: list[Event] = []
    async with aclosing(queue.watch("b")) as events:
        await soon(anext(events))

        async def listen() -> None:
            async for event in events:
                heard.append(event)
                if event.kind == "position":
                    may_end.set()

        async with running(worker):
            await soon(listen())

    places = [event.detail["position"] for event in heard if event.kind == "position"]
    assert [event.kind for event in heard][-3:] == ["starting", "running", "succeeded"]
    assert places[0] == 2
    assert sorted(places, reverse=True) == places
