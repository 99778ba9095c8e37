"""Leases of a limiter on a queue: kept alive, lost, handed on, and given back at any moment."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

import qo
from qo.errors import StoreUnavailable
from qo.queue.queue import Queue
from tests.limits.limiters_on_a_queue import (
    ASK_AGAIN_OFTEN,
    MakeLimiter,
    enter_and_leave,
    held,
    make_fixture,  # noqa: F401 - asked for by name
    waiting,
)
from tests.worker.running import soon, until

SOON_SECONDS = 20


class Mortal:
    """A store that takes nothing any more once it is gone."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.is_gone = False

    def __getattr__(self, name: str) -> Any:
        if self.is_gone:
            raise StoreUnavailable("gone")
        return getattr(self._store, name)


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
    store = Mortal(queue.store)
    dying, living = qo.Limiter({"ollama": 1}, queue=Queue(store, queue.settings)), make({"ollama": 1})
    entered = await dying.acquire("ollama").__aenter__()
    for _ in range(20):  # fifty would do as well: they cost the time of one
        asyncio.ensure_future(enter_and_leave(dying, "ollama")).add_done_callback(lambda done: done.exception())
    await waiting(queue, "provider:ollama", 20)
    began = time.monotonic()
    store.is_gone = True  # from now on nothing of the dying limiter's is renewed or given back
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


@pytest.mark.parametrize("overrides", [ASK_AGAIN_OFTEN])
async def test_an_old_answer_does_not_take_the_slot_from_who_was_let_in_meanwhile(
    queue: qo.Queue, make: MakeLimiter
) -> None:
    """The limiter's thread asks again for a waiting caller. The answer, "wait", comes when the caller is inside."""
    limiter = make({"ollama": 1})
    acquire, asked, go_on, returned = queue.store.acquire, threading.Event(), threading.Event(), threading.Event()
    is_late = False

    async def late(*args: Any, **options: Any) -> Any:
        answer = await acquire(*args, **options)
        if is_late and not asked.is_set():
            asked.set()
            await asyncio.to_thread(go_on.wait, SOON_SECONDS)
            returned.set()
        return answer

    queue.store.acquire = late  # type: ignore[method-assign]
    entered, leave = asyncio.Event(), asyncio.Event()

    async def stay() -> None:
        async with limiter.acquire("ollama"):
            entered.set()
            await leave.wait()

    async with limiter.acquire("ollama"):
        staying = asyncio.create_task(stay())
        await waiting(queue, "provider:ollama", 1)
        is_late = True
        assert await asyncio.to_thread(asked.wait, SOON_SECONDS)
    await asyncio.wait_for(entered.wait(), SOON_SECONDS)
    go_on.set()
    assert await asyncio.to_thread(returned.wait, SOON_SECONDS)
    await asyncio.to_thread(limiter.set_limit, "ollama", 1)  # by the limiter's thread, after the late answer

    assert await held(queue, "provider:ollama") == 1
    leave.set()
    await staying
    assert await held(queue, "provider:ollama") == 0


async def test_who_hears_that_it_has_to_wait_when_the_limiter_is_closed_is_refused(
    queue: qo.Queue, make: MakeLimiter
) -> None:
    holding, closing = make({"ollama": 1}), make({"ollama": 1})
    threads = limiter_threads()
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
        assert limiter_threads() == threads + 1, "the closed limiter must not be opened again"


def limiter_threads() -> int:
    return sum(thread.name == "qo-limiter" for thread in threading.enumerate())
