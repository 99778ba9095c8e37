"""A watched job that waits is told where it stands: when that changed, at least every few seconds, once a second at
most, and by one read of the store for all watchers of a process. Time is the test's."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Any

import pytest

import qo
from qo.errors import StoreUnavailable
from qo.event import Event
from qo.queue import queue as queue_module
from qo.queue.positions import Positions
from qo.store.contract import Store
from qo.values import Outcome, Place
from tests.worker.running import soon, until


class Time:
    """Seconds that pass when the test says so. Whoever sleeps has done everything before."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._sleeper: asyncio.Future[None] | None = None

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self._sleeper = asyncio.get_running_loop().create_future()
        try:
            await self._sleeper
        finally:
            self._sleeper = None

    def is_slept(self) -> bool:
        return self._sleeper is not None

    def wake(self) -> None:
        assert self._sleeper is not None
        self._sleeper.set_result(None)
        self._sleeper = None

    async def second(self, count: int = 1) -> None:
        """Seconds pass, and the tick that each of them brings is over."""
        for _ in range(count):
            await soon(self.until_asleep())
            self.now += 1
            self.wake()
            await soon(self.until_asleep())

    async def until_asleep(self) -> None:
        while self._sleeper is None:  # noqa: ASYNC110 - threads of the store are on the way
            await asyncio.sleep(0.001)


class Asked:
    """Counts what a store is asked for positions."""

    def __init__(self, queue: qo.Queue) -> None:
        self.calls: list[Sequence[str]] = []
        self._positions = queue.store.positions
        queue.store.positions = self.positions  # type: ignore[method-assign]

    async def positions(self, job_ids: Sequence[str]) -> dict[str, Place]:
        self.calls.append(job_ids)
        return await self._positions(job_ids)


@pytest.fixture
def asked(queue: qo.Queue) -> Asked:
    return Asked(queue)


@pytest.fixture(autouse=True)  # so that it comes before the queue, which makes its positions at once
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()

    def on_this_time(store: Store, **options: Any) -> Positions:
        return Positions(store, **{**options, "clock": time.clock, "sleep": time.sleep})

    monkeypatch.setattr(queue_module, "Positions", on_this_time)
    return time


def is_ticking() -> bool:
    return any(task.get_name() == "qo-positions" and not task.cancelling() for task in asyncio.all_tasks())


class Watcher:
    """Somebody who watches a job, and what they have heard so far."""

    def __init__(self, events: AsyncGenerator[Event]) -> None:
        self.heard: list[Event] = []
        self._events = events
        self.has_begun = asyncio.Event()

    async def listen(self) -> None:
        async with aclosing(self._events) as events:
            async for event in events:
                self.heard.append(event)
                self.has_begun.set()

    def positions(self) -> list[int]:
        return [event.detail["position"] for event in self.heard if event.kind == "position"]


@asynccontextmanager
async def watching(queue: qo.Queue, job_id: str, *, after: int | None = None) -> AsyncIterator[Watcher]:
    watcher = Watcher(queue.watch(job_id, after=after))
    listening = asyncio.create_task(watcher.listen())
    try:
        if after is None:
            await soon(watcher.has_begun.wait())
        yield watcher
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)


async def heard(watcher: Watcher, kind: str) -> None:
    async def has_heard() -> bool:
        return any(event.kind == kind for event in watcher.heard)

    await until(has_heard)


async def test_a_changed_position_is_published_with_the_message_for_the_user(queue: qo.Queue, time: Time) -> None:
    for name in "abc":
        await queue.submit("build", id=name)
    async with watching(queue, "c") as watcher:
        await time.second()
        assert watcher.positions() == []
        await queue.cancel("a")
        await time.second()
        assert watcher.positions() == [2]
        await queue.submit("build", priority="urgent")
        await queue.submit("build", priority="urgent")
        await time.second()

    first, second = watcher.heard[1:]
    assert (first.kind, first.subject, first.id) == ("position", "c", watcher.heard[0].id)
    assert (first.detail["position"], first.detail["position_original"]) == (2, 3)
    assert (
        first.detail["position_message"] == "You are #2 in queue. Your position may change as priority jobs are added"
    )
    assert second.detail["position_message"] == "Originally #3, now #4: 2 priority jobs were placed ahead of you"


async def test_a_position_that_does_not_change_is_published_every_five_seconds(queue: qo.Queue, time: Time) -> None:
    job = await queue.submit("build")
    async with watching(queue, job.id) as watcher:
        counts = []
        for _ in range(15):
            await time.second()
            counts.append(len(watcher.positions()))

    assert counts[3:5] == [0, 1]  # the watch itself began with the position
    assert counts == [second // 5 for second in range(1, 16)]


async def test_many_changes_within_a_second_are_published_once(queue: qo.Queue, time: Time) -> None:
    for name in "abcdef":
        await queue.submit("build", id=name)
    async with watching(queue, "f") as watcher:
        for name in "abc":
            await queue.cancel(name)
        await time.second()

        assert watcher.positions() == [3]


async def test_a_hundred_watchers_of_a_hundred_jobs_cost_one_read_a_tick(
    queue: qo.Queue, time: Time, asked: Asked
) -> None:
    jobs = [f"job-{number:03d}" for number in range(101)]
    await queue.submit_many([qo.New("build", id=job_id) for job_id in jobs])
    async with contexts([watching(queue, job_id) for job_id in jobs[1:]]) as watchers:
        await queue.cancel("job-000")
        await time.second()

        assert [watcher.positions() for watcher in watchers] == [[number] for number in range(1, 101)]
        assert len(asked.calls) == 1
        await time.second(3)
        assert len(asked.calls) == 4


async def test_watchers_of_the_same_job_ask_for_it_once(queue: qo.Queue, time: Time, asked: Asked) -> None:
    job = await queue.submit("build")
    async with contexts([watching(queue, job.id) for _ in range(3)]):
        await time.second()

    assert asked.calls == [[job.id]]


async def test_nothing_is_read_while_no_job_in_line_is_watched(queue: qo.Queue, time: Time, asked: Asked) -> None:
    later = await queue.submit("build", delay=3600)
    job = await queue.submit("build")
    async with watching(queue, later.id):
        assert not time.is_slept()
        async with watching(queue, job.id) as watcher:
            await time.second()
            assert is_ticking()
            await queue.store.claim(worker="w", tasks=["build"], capacity=1, lease_ms=60_000, claim_id="c")
            await heard(watcher, "starting")
            assert not is_ticking()
    async with watching(queue, later.id):
        assert not is_ticking()

    assert len(asked.calls) == 1


async def test_the_last_watcher_that_leaves_ends_the_ticks_and_is_forgotten(
    queue: qo.Queue, time: Time, asked: Asked
) -> None:
    job, other = await queue.submit("build"), await queue.submit("build")
    async with watching(queue, job.id):
        await time.second()
        assert is_ticking()

    assert not is_ticking()
    async with watching(queue, other.id):
        await time.second()
    assert asked.calls == [[job.id], [other.id]]


async def test_positions_of_a_job_that_comes_back_are_published_again(queue: qo.Queue, time: Time) -> None:
    job = await queue.submit("build")
    async with watching(queue, job.id) as watcher:
        claimed = await queue.store.claim(worker="w", tasks=["build"], capacity=1, lease_ms=60_000, claim_id="c")
        await heard(watcher, "starting")
        await queue.submit("build", priority="urgent")
        (lease,) = claimed.leases
        await queue.store.finish([Outcome(job_id=job.id, token=lease.token, state=qo.State.QUEUED)])
        await heard(watcher, "queued")
        await time.second()

        assert [event.kind for event in watcher.heard] == ["queued", "starting", "queued", "position"]
        assert watcher.positions() == [2]


async def test_a_position_that_was_read_before_the_job_started_is_not_published_after_it(
    queue: qo.Queue, time: Time, asked: Asked
) -> None:
    """The job starts, and its watcher hears of it, while its position is on the way from the store."""
    job = await queue.submit("build")
    is_read, may_come = asyncio.Event(), asyncio.Event()

    async def on_the_way(job_ids: Sequence[str]) -> dict[str, Place]:
        places = await asked.positions(job_ids)
        is_read.set()
        await may_come.wait()
        return places

    queue.store.positions = on_the_way  # type: ignore[method-assign]
    other = await queue.submit("other")
    async with watching(queue, job.id) as watcher, watching(queue, other.id):
        await soon(time.until_asleep())
        time.now += 10
        time.wake()
        await soon(is_read.wait())
        await queue.store.claim(worker="w", tasks=["build"], capacity=1, lease_ms=60_000, claim_id="c")
        await heard(watcher, "starting")
        may_come.set()
        await soon(time.until_asleep())

        assert [event.kind for event in watcher.heard] == ["queued", "starting"]


async def test_a_watcher_that_does_not_listen_finds_the_newest_position_only(queue: qo.Queue, time: Time) -> None:
    for name in "abcd":
        await queue.submit("build", id=name)
    async with aclosing(queue.watch("d")) as events:
        await soon(anext(events))
        waiting = asyncio.ensure_future(anext(events))
        for name in "ab":
            await queue.cancel(name)
            await time.second()
        first = await soon(waiting)  # the first was taken at once
        await queue.cancel("c")
        await time.second(6)
        second = await soon(anext(events))
        await queue.cancel("d")
        third = await soon(anext(events))

    assert [first.detail["position"], second.detail["position"], third.kind] == [3, 1, "cancelled"]


async def test_a_watch_that_goes_on_behind_a_position_misses_and_repeats_nothing(queue: qo.Queue, time: Time) -> None:
    for name in "ab":
        await queue.submit("build", id=name)
    async with watching(queue, "b") as watcher:
        await queue.set_priority("b", 60)
        await heard(watcher, "priority")
        await queue.cancel("a")
        await time.second()
    position = watcher.heard[-1]
    assert position.kind == "position"
    await queue.set_priority("b", 70)

    async with watching(queue, "b", after=position.id) as watcher:
        await heard(watcher, "priority")
        await time.second()

    assert [(event.kind, event.detail.get("priority")) for event in watcher.heard] == [
        ("priority", 70),
        ("position", None),
    ]
    assert watcher.heard[1].id == watcher.heard[0].id > position.id


async def test_waiting_for_the_end_of_a_job_reads_no_positions(queue: qo.Queue, time: Time, asked: Asked) -> None:
    job = await queue.submit("build")
    waiting = asyncio.create_task(queue.wait(job.id))
    await until(lambda: _is_watched(queue, job.id))

    assert not is_ticking()
    await queue.cancel(job.id)
    assert (await soon(waiting)).state is qo.State.CANCELLED
    assert asked.calls == []


async def test_a_store_that_is_away_is_logged_once_and_asked_again(
    queue: qo.Queue, time: Time, asked: Asked, caplog: pytest.LogCaptureFixture
) -> None:
    async def away(job_ids: Sequence[str]) -> Any:
        raise StoreUnavailable("The store is away.")

    for name in "ab":
        await queue.submit("build", id=name)
    async with watching(queue, "b") as watcher:
        queue.store.positions = away  # type: ignore[method-assign]
        with caplog.at_level(logging.WARNING, logger="qo.positions"):
            await time.second(3)
        queue.store.positions = asked.positions  # type: ignore[method-assign]
        await queue.cancel("a")
        await time.second()

        assert watcher.positions() == [1]
    assert caplog.messages == ["positions cannot be told for now, trying again: The store is away."]


async def _is_watched(queue: qo.Queue, job_id: str) -> bool:
    return job_id in queue.follower.watchers


@asynccontextmanager
async def contexts(entering: Sequence[Any]) -> AsyncIterator[list[Any]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(context) for context in entering]
