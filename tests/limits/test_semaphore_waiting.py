"""Waiting for the slot of a semaphore: in the order they came, woken by the store, for as long as they said."""

from __future__ import annotations

import asyncio
from typing import Any

import qo
from qo.limits.semaphore import user_semaphore
from qo.values import SlotInfo
from tests.limits.semaphore_fixtures import clock_fixture, overrides_fixture, staged_fixture  # noqa: F401 - asked for by name
from tests.limits.semaphore_staging import (
    NEWEST,
    Staged,
    asked_at,
    is_untouched,
    listening,
    queue_on,
    two_on_one_slot,
    waiting,
)
from tests.worker.clocked import ClockedStore
from tests.worker.running import soon, until


async def test_one_that_waits_is_woken_by_the_store_and_asks_no_more_than_it_must(
    queue: qo.Queue, staged: Staged
) -> None:
    semaphore, other = two_on_one_slot(staged, queue)
    await other.acquire("first")
    waiter = asyncio.create_task(semaphore.acquire("h", timeout=60))
    await listening(staged)
    for _ in range(5):  # a busy feed
        await queue.submit_many([qo.New("build")] * 20)
    began = asyncio.get_running_loop().time()
    asked_meanwhile = staged.calls["acquire"]
    await other.release("first")

    assert await soon(waiter)
    assert asyncio.get_running_loop().time() - began < 4  # it would have asked by itself after 5 seconds
    assert (asked_meanwhile, staged.calls["acquire"], staged.calls["renew"]) == (2, 3, 1)


async def test_one_that_waits_hears_of_a_slot_that_came_before_it_listened(queue: qo.Queue, staged: Staged) -> None:
    semaphore, other = two_on_one_slot(staged, queue)
    await other.acquire("first")

    async def release(*_: Any) -> None:
        await other.release("first")

    staged.before[NEWEST] = release
    began = asyncio.get_running_loop().time()

    assert await soon(semaphore.acquire("h", timeout=60))
    assert asyncio.get_running_loop().time() - began < 4
    assert staged.calls["acquire"] == 2


async def test_one_that_was_handed_a_slot_and_lost_it_before_it_noticed_waits_on(
    queue: qo.Queue, staged: Staged
) -> None:
    semaphore, other = two_on_one_slot(staged, queue)
    await other.acquire("first")
    waiter = asyncio.create_task(semaphore.acquire("h", timeout=60))
    lost = []

    async def take_it_away(*_: Any) -> None:
        if staged.calls["acquire"] == 3:
            lost.append(await queue.release_slot("user:ada", 0, by="ops", force=True))
            assert await other.acquire("second")

    staged.before["acquire"] = take_it_away

    async def has_asked_again() -> bool:
        return staged.answers["acquire"] >= 3

    await listening(staged)
    await other.release("first")
    await until(has_asked_again)
    for _ in range(50):
        assert await other.count() == 1
    asked = staged.calls["acquire"]
    await other.release("second")

    assert await soon(waiter)
    assert lost == ["semaphore:user:ada:h"]
    assert asked <= 4  # once more for the event that told it of its loss


async def test_when_the_time_is_up_it_is_told_and_nothing_is_left_in_line(queue: qo.Queue) -> None:
    semaphore = user_semaphore(queue, "ada", "solo")
    await semaphore.acquire("first")
    began = asyncio.get_running_loop().time()

    got = await semaphore.acquire("h", timeout=0.2)

    assert not got
    assert asyncio.get_running_loop().time() - began >= 0.2
    await semaphore.release("first")
    assert await is_untouched(semaphore)


async def test_without_a_timeout_the_answer_is_now_and_nothing_is_left_in_line(queue: qo.Queue, staged: Staged) -> None:
    semaphore = user_semaphore(queue_on(staged), "ada", "solo")
    await user_semaphore(queue, "ada", "solo").acquire("first")

    assert not await semaphore.acquire("h")
    assert staged.calls["acquire"] == 1
    assert (await queue.limit("user:ada")).waiting == 0


async def test_fifty_that_wait_get_the_slot_in_the_order_they_came(queue: qo.Queue) -> None:
    semaphore = user_semaphore(queue, "ada", "solo")
    await semaphore.acquire("first")
    order: list[int] = []

    async def take_a_turn(number: int) -> None:
        assert await semaphore.acquire(f"h{number}", timeout=60)
        order.append(number)
        assert await semaphore.count() == 1
        await semaphore.release(f"h{number}")

    turns = []
    for number in range(50):
        turns.append(asyncio.create_task(take_a_turn(number)))
        await waiting(semaphore, number + 1)
    await semaphore.release("first")
    await soon(asyncio.gather(*turns))

    assert order == list(range(50))
    assert await is_untouched(semaphore)
    assert queue.follower.watchers == {}


async def test_a_place_in_line_is_kept_as_long_as_its_holder_waits(clock: ClockedStore) -> None:
    """Time passes in steps shorter than a place lives without its holder, for ten times as long."""
    staged = Staged(clock)
    asked = asked_at(staged, clock)
    semaphore = user_semaphore(queue_on(staged, limiter={"waiter_alive_secs": 0.15}), "ada", "solo")
    await semaphore.acquire("first")
    turns = []
    for amount, holder in enumerate("ab", start=1):
        turns.append(asyncio.create_task(semaphore.acquire(holder, timeout=60)))
        await waiting(semaphore, amount)
    for _ in range(15):
        clock.now += 100

        async def both_asked() -> bool:
            return {("a", clock.now), ("b", clock.now)} <= asked

        await until(both_asked)
        await clock.catch_up()
        assert (await clock.groups(["user:ada"]))[0].waiting == 2
    await semaphore.release("first")

    assert await soon(turns[0])
    assert not turns[1].done()
    await semaphore.release("a")
    assert await soon(turns[1])


async def test_a_slot_that_comes_in_the_moment_the_time_is_up_is_kept(queue: qo.Queue, staged: Staged) -> None:
    semaphore, other = two_on_one_slot(staged, queue)
    await other.acquire("first")
    handed_over: list[SlotInfo] = []

    async def release(tickets: Any) -> None:
        if tickets[0].wait_ms == 0:
            await other.release("first")
            handed_over.extend((await queue.limit("user:ada")).slots)

    staged.before["acquire"] = release

    assert await semaphore.acquire("h", timeout=0.05)
    (short,) = handed_over
    (slot,) = (await queue.limit("user:ada")).slots
    assert slot.token == short.token
    assert (slot.expires_at - short.expires_at).total_seconds() > 3500


async def test_a_slot_that_comes_just_after_the_time_was_up_stays_free(queue: qo.Queue, staged: Staged) -> None:
    semaphore, other = two_on_one_slot(staged, queue)
    await other.acquire("first")
    released = []

    async def release(tickets: Any) -> None:
        if tickets[0].wait_ms == 0:
            released.append(await other.release("first"))

    staged.after["acquire"] = release

    assert not await semaphore.acquire("h", timeout=0.05)
    assert released == [True]
    assert await is_untouched(semaphore)
