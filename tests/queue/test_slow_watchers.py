"""A watcher that does not read is given the present state later, costs little meanwhile, and holds nobody up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

import pytest

import qo
from qo.event import Event
from qo.job import Job
from qo.queue.follower import WOKEN_AT_ONCE
from qo.queue.inbox import MOST_EVENTS, RESET, Inbox, Reset
from qo.queue.positions import TOLD_AT_ONCE, Positions, Watched
from tests.by_hand import JobByHand, start
from tests.worker.running import soon, until

AT = datetime(2026, 1, 1, tzinfo=UTC)


def event(number: int) -> Event:
    return Event(id=number, at=AT, kind="progress", subject="job", detail={})


async def everything_in(inbox: Inbox[Event]) -> list[Event | Reset | Watched]:
    inbox.put_event(event(-1))
    found = []
    while (item := await soon(inbox.get())) != event(-1):
        found.append(item)
    return found


async def test_an_inbox_holds_256_events_in_order() -> None:
    inbox = Inbox[Event]()
    for number in range(255):
        inbox.put_event(event(number))

    assert await everything_in(inbox) == [event(number) for number in range(255)]


async def test_a_full_inbox_gives_one_reset_in_place_of_everything_unread() -> None:
    inbox = Inbox[Event]()
    for number in range(MOST_EVENTS + 1):
        inbox.put_event(event(number))
    inbox.put_event(event(1000))

    assert await everything_in(inbox) == [RESET, event(1000)]


async def test_an_inbox_that_overflows_again_and_again_still_holds_one_reset() -> None:
    inbox = Inbox[Event]()
    for number in range(MOST_EVENTS * 10):
        inbox.put_event(event(number))

    found = await everything_in(inbox)

    assert [item for item in found if item is RESET] == [RESET]
    assert found[0] is RESET
    assert len(found) <= MOST_EVENTS


async def test_news_of_a_position_outlives_an_overflow() -> None:
    """Else the watcher would get no position any more: news that was not taken is not put in again."""
    inbox = Inbox[Event]()
    watched = Watched("job", inbox)
    inbox.put_nowait(watched)
    for number in range(MOST_EVENTS + 1):
        inbox.put_event(event(number))

    assert await everything_in(inbox) == [RESET, watched]


async def test_events_that_were_read_make_room_for_others() -> None:
    inbox = Inbox[Event]()
    for number in range(MOST_EVENTS * 3):
        inbox.put_event(event(number))
        assert await soon(inbox.get()) == event(number)

    assert await everything_in(inbox) == []


async def test_a_watcher_that_stops_reading_goes_on_from_the_present_state(queue: qo.Queue) -> None:
    job = await queue.submit("build")
    by_hand = await start(queue)
    async with aclosing(queue.watch(job.id)) as stopped, aclosing(queue.watch(job.id)) as reading:
        await soon(anext(stopped))
        await soon(anext(reading))
        await by_hand.runs()
        assert (await soon(anext(stopped))).kind == "running"
        assert (await soon(anext(reading))).kind == "running"

        seen = await reported_and_read(reading, by_hand, range(MOST_EVENTS * 2))
        reset = await soon(anext(stopped))
        await by_hand.is_at("testing")
        await by_hand.succeeds()
        after_the_reset = [event.kind async for event in stopped if event.kind != "progress"]
        rest = [event.kind async for event in reading]

    assert seen == list(range(MOST_EVENTS * 2)), "the other watcher noticed nothing"
    assert reset.detail["present"]
    assert reset.kind == "running"
    assert after_the_reset == ["stage", "succeeded"]
    assert rest == ["stage", "succeeded"]


async def test_after_a_reset_no_event_from_before_it_comes(queue: qo.Queue) -> None:
    job = await queue.submit("build")
    by_hand = await start(queue)
    async with aclosing(queue.watch(job.id)) as stopped, aclosing(queue.watch(job.id)) as reading:
        await soon(anext(stopped))
        await soon(anext(reading))
        await by_hand.runs()
        await soon(anext(stopped))
        await soon(anext(reading))
        # 44 of them come into the inbox after it overflowed, and are older than the present state that is read later.
        await reported_and_read(reading, by_hand, range(300))

        reset = await soon(anext(stopped))
        await by_hand.succeeds()
        last = [event async for event in stopped]

    assert reset.detail["present"]
    assert [event.kind for event in last] == ["succeeded"]
    assert last[0].id > reset.id


async def test_a_watcher_that_reads_is_not_reset_by_a_page_full_of_its_events(queue: qo.Queue) -> None:
    job = await queue.submit("build")
    by_hand = await start(queue)
    async with aclosing(queue.watch(job.id)) as reading:
        await soon(anext(reading))
        await by_hand.runs()
        assert (await soon(anext(reading))).kind == "running"

        # One step of the store, and so one page of the reader.
        assert await reported_and_read(reading, by_hand, range(900)) == list(range(900))


async def reported_and_read(reading: AsyncGenerator[Event], by_hand: JobByHand, numbers: Sequence[int]) -> list[float]:
    """Report these numbers, and read them with this watcher."""
    listening = asyncio.create_task(_progress_of(reading, len(numbers)))
    await by_hand.has_done(*numbers)
    return await soon(listening)


async def _progress_of(reading: AsyncGenerator[Event], count: int) -> list[float]:
    return [(await anext(reading)).detail["done"] for _ in range(count)]


class Turns:
    """Counts how many watchers the event loop wakes between two turns of other work."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.most = 0
        self._woken = 0
        for name in ("put_event", "put_nowait"):
            monkeypatch.setattr(Inbox, name, self._counted(getattr(Inbox, name)))

    def _counted(self, put: Callable[[Inbox[Any], Any], None]) -> Callable[[Inbox[Any], Any], None]:
        def counted(inbox: Inbox[Any], item: Any) -> None:
            self._woken += inbox.is_empty
            self.most = max(self.most, self._woken)
            put(inbox, item)

        return counted

    async def take(self) -> None:
        """The other work, which takes a turn whenever it can."""
        while True:
            self._woken = 0
            await asyncio.sleep(0)


async def read_all(watcher: AsyncGenerator[Event], seen: list[Event]) -> None:
    async with aclosing(watcher) as events:
        async for each in events:
            seen.append(each)


async def test_requests_get_their_turn_while_a_step_wakes_many_watchers(
    queue: qo.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[Event]] = [[] for _ in range(100)]
    jobs = [await queue.submit("build", parent="app") for _ in seen]
    watching = [asyncio.create_task(read_all(queue.watch(job.id), each)) for job, each in zip(jobs, seen, strict=True)]

    async def all_watch() -> bool:
        return all(seen)

    await until(all_watch)
    turns = Turns(monkeypatch)
    other = asyncio.create_task(turns.take())

    await queue.cancel(parent="app")
    await soon(asyncio.gather(*watching))

    other.cancel()
    assert all(each[-1].kind == "cancelled" for each in seen)
    assert 0 < turns.most <= WOKEN_AT_ONCE + TOLD_AT_ONCE


async def no_estimates(jobs: Sequence[Job]) -> list[None]:
    return [None] * len(jobs)


async def test_requests_get_their_turn_while_many_positions_are_told(
    queue: qo.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [await queue.submit("build") for _ in range(100)]
    watched = [Watched(job.id, Inbox[Event]()) for job in jobs]
    positions = Positions(queue.store, every_seconds=5, estimates=no_estimates)
    for each in watched:
        positions.look_at(each)
    turns = Turns(monkeypatch)
    other = asyncio.create_task(turns.take())

    await positions.tick()

    other.cancel()
    await positions.close()
    assert [news.place.position for each in watched if (news := each.take_news()) is not None] == [*range(1, 101)]
    assert turns.most == TOLD_AT_ONCE
