"""Leases of a limiter on a queue: kept alive, lost, handed on, and given back at any moment."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from limiters_on_a_queue import (
    MakeLimiter,
    enter_and_leave,
    held,
    make_fixture,  # noqa: F401 - asked for by name
    waiting,
)
from running import soon, until

import qo
from qo.errors import StoreUnavailable

SOON_SECONDS = 20


class Gone:
    """A store that takes nothing any more."""

    async def release(self, *args: Any) -> Any:
        raise StoreUnavailable("gone")


async def test_a_lost_lease_cancels_the_block(queue: qo.Queue, make: MakeLimiter) -> None:
    limiter = make({"ollama": 1})
    leases: list[Any] = []

    async def call() -> None:
        async with limiter.acquire("ollama") as lease:
            leases.append(lease)
            await queue.release_slot("provider:ollama", 0, force=True)
            await soon(asyncio.Event().wait())

    with pytest.raises(qo.LeaseLost):
        await call()

    assert leases[0].lost
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    assert await enter_and_leave(limiter, "ollama") == {"provider:ollama": 0}


async def test_a_block_that_was_cancelled_by_somebody_else_stays_cancelled(queue: qo.Queue, make: MakeLimiter) -> None:
    limiter = make({"ollama": 1})
    begun = asyncio.Event()

    async def call() -> None:
        async with limiter.acquire("ollama"):
            begun.set()
            await asyncio.Event().wait()

    calling = asyncio.create_task(call())
    await soon(begun.wait())
    calling.cancel()
    await asyncio.gather(calling, return_exceptions=True)

    assert calling.cancelled()
    assert await held(queue, "provider:ollama") == 0


async def test_a_lost_lease_is_visible_in_a_thread(queue: qo.Queue, make: MakeLimiter) -> None:
    limiter = make({"ollama": 1})
    begun = threading.Event()

    def work() -> float:
        with limiter.acquire("ollama") as lease:
            begun.set()
            until_seconds = time.monotonic() + SOON_SECONDS
            while not lease.lost and time.monotonic() < until_seconds:
                time.sleep(0.001)
            return until_seconds - time.monotonic()

    working = asyncio.create_task(asyncio.to_thread(work))
    await asyncio.to_thread(begun.wait, SOON_SECONDS)
    await queue.release_slot("provider:ollama", 0, force=True)

    assert await soon(working) > 0


@pytest.mark.parametrize("overrides", [{"concurrency": {"default_lease_duration_secs": 0.3}}])
async def test_a_lease_lives_as_long_as_its_block_also_when_the_loop_stands_still(
    queue: qo.Queue, make: MakeLimiter
) -> None:
    limiter, other = make({"ollama": 1}), make({"ollama": 1})
    async with limiter.acquire("ollama") as lease:
        time.sleep(1)  # noqa: ASYNC251 - that is the point
        with pytest.raises(qo.Timeout):
            async with other.acquire("ollama", timeout=0):
                pass
        assert not lease.lost


@pytest.mark.parametrize("overrides", [{"limiter": {"waiter_alive_secs": 0.3}}])
async def test_a_place_in_line_lives_as_long_as_its_caller_waits(queue: qo.Queue, make: MakeLimiter) -> None:
    limiter = make({"ollama": 1})
    async with limiter.acquire("ollama"):
        waits = asyncio.create_task(enter_and_leave(limiter, "ollama"))
        await waiting(queue, "provider:ollama", 1)
        (before,) = (await queue.limit("provider:ollama")).slots
        acquire, asked = queue.store.acquire, 0

        async def counted(*args: Any, **options: Any) -> Any:
            nonlocal asked
            asked += 1
            return await acquire(*args, **options)

        async def asked_for_three_lives() -> bool:
            return asked >= 9

        queue.store.acquire = counted  # type: ignore[method-assign]
        await until(asked_for_three_lives)
        await queue.store.catch_up()
        assert (await queue.limit("provider:ollama")).waiting == 1
    assert await soon(waits) == {"provider:ollama": before.slot_id}


@pytest.mark.parametrize(
    "overrides",
    [{"concurrency": {"default_lease_duration_secs": 1.5}, "limiter": {"waiter_alive_secs": 0.3}}],
)
async def test_the_slot_of_a_holder_that_died_is_handed_on_a_lease_later(queue: qo.Queue, make: MakeLimiter) -> None:
    dying, living = make({"ollama": 1}), make({"ollama": 1})
    entered = await dying.acquire("ollama").__aenter__()
    for _ in range(20):  # fifty would do as well: they cost the time of one
        asyncio.ensure_future(enter_and_leave(dying, "ollama")).add_done_callback(lambda done: done.exception())
    await waiting(queue, "provider:ollama", 20)
    began = time.monotonic()
    # From now on nobody renews anything there, nor gives anything back.
    dying._slots._keeper._store = Gone()  # type: ignore[attr-defined]
    await asyncio.to_thread(dying.close)
    async with living.acquire("ollama") as lease:
        waited = time.monotonic() - began

    assert int(lease.token) > int(entered.token)
    assert waited < 4 * 1.5


async def test_nobody_enters_before_the_limits_are_set(queue: qo.Queue, make: MakeLimiter) -> None:
    limiter = make({"ollama": 1})
    calls: list[str] = []
    set_limits, acquire = queue.store.set_limits, queue.store.acquire

    async def set_slowly(*args: Any, **options: Any) -> Any:
        await asyncio.sleep(0.02)  # so that others could overtake it
        answer = await set_limits(*args, **options)
        calls.append("set")
        return answer

    async def acquire_and_note(*args: Any, **options: Any) -> Any:
        calls.append("acquire")
        return await acquire(*args, **options)

    queue.store.set_limits = set_slowly  # type: ignore[method-assign]
    queue.store.acquire = acquire_and_note  # type: ignore[method-assign]
    await asyncio.gather(*(enter_and_leave(limiter, "ollama") for _ in range(5)))

    assert calls.index("set") == 0


async def test_an_old_answer_does_not_take_the_slot_from_who_was_let_in_meanwhile(
    queue: qo.Queue, make: MakeLimiter
) -> None:
    """The keeper asks again for one who waits; the answer, "wait", is late, and comes when that one is inside."""
    limiter = make({"ollama": 1})
    acquire, asked, go_on = queue.store.acquire, threading.Event(), threading.Event()
    is_late = False

    async def late(*args: Any, **options: Any) -> Any:
        answer = await acquire(*args, **options)
        if is_late:
            asked.set()
            await asyncio.to_thread(go_on.wait, SOON_SECONDS)
        return answer

    queue.store.acquire = late  # type: ignore[method-assign]
    keeper = limiter._slots._keeper  # type: ignore[attr-defined]
    entered, leave = asyncio.Event(), asyncio.Event()

    async def stay() -> None:
        async with limiter.acquire("ollama"):
            entered.set()
            await leave.wait()

    async with limiter.acquire("ollama"):
        staying = asyncio.create_task(stay())
        await waiting(queue, "provider:ollama", 1)
        is_late = True
        keeper._post(keeper._ask_for_all)
        await asyncio.to_thread(asked.wait, SOON_SECONDS)
    await asyncio.wait_for(entered.wait(), SOON_SECONDS)
    go_on.set()
    await asyncio.to_thread(keeper.run(asyncio.sleep(0)).result)  # what was late has been dealt with

    assert await held(queue, "provider:ollama") == 1
    leave.set()
    await staying
    assert await held(queue, "provider:ollama") == 0


async def test_who_hears_that_it_has_to_wait_when_the_limiter_is_closed_is_refused(
    queue: qo.Queue, make: MakeLimiter
) -> None:
    holding, closing = make({"ollama": 1}), make({"ollama": 1})
    acquire, asked, go_on = queue.store.acquire, asyncio.Event(), asyncio.Event()

    async def late(*args: Any, **options: Any) -> Any:
        answer = await acquire(*args, **options)
        asked.set()
        await go_on.wait()
        return answer

    async with holding.acquire("ollama"):
        queue.store.acquire = late  # type: ignore[method-assign]
        waits = asyncio.create_task(enter_and_leave(closing, "ollama"))
        await asyncio.wait_for(asked.wait(), SOON_SECONDS)
        await asyncio.to_thread(closing.close)
        go_on.set()

        with pytest.raises(StoreUnavailable, match="was closed"):
            await asyncio.wait_for(waits, SOON_SECONDS)
        queue.store.acquire = acquire  # type: ignore[method-assign]
        assert closing._slots._keeper._mailbox is None, "it must not be opened again"  # type: ignore[attr-defined]
