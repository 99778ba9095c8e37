"""Callers of a limiter on a store that give up leave neither a slot nor a place in line, however many do at once."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import qo
from qo.errors import StoreUnavailable
from qo.limits.on_store.calls import MOST_PER_CALL
from qo.limits.on_store.requests import Request, Requests
from qo.limits.on_store.waiters import ThreadWaiter
from tests.limits.limiters_on_a_queue import (
    ASK_AGAIN_OFTEN,
    MakeLimiter,
    enter_and_leave,
    make_fixture,  # noqa: F401 - asked for by name
    waiting,
)
from tests.worker.running import soon, until
from tests.worker.slow_store import SlowStore

NothingIsLeft = Callable[[qo.Limiter], Awaitable[None]]

MANY = 60
SOON_SECONDS = 20
SECONDS_FOR_ANSWERS = 8
"""for calls under way to be answered; what was left behind would live for 10 seconds and more"""


@pytest.fixture(name="slow")
async def slow_fixture(queue: qo.Queue) -> SlowStore:
    slow = SlowStore(queue.store, {"acquire", "release"})
    queue.store = slow
    return slow


@pytest.fixture(name="nothing_is_left")
async def nothing_is_left_fixture(queue: qo.Queue) -> NothingIsLeft:
    """Once the calls under way have been answered: in the store, in the limiter's figures, and for the next caller."""
    acquire, under_way = queue.store.acquire, set()

    async def noted(*args: Any, **options: Any) -> Any:
        call = object()
        under_way.add(call)
        try:
            return await acquire(*args, **options)
        finally:
            under_way.discard(call)

    async def is_empty() -> bool:
        status = await queue.limit("provider:ollama")
        return not under_way and (status.active, status.waiting) == (0, 0)

    async def check(limiter: qo.Limiter) -> None:
        await asyncio.wait_for(until(is_empty), SECONDS_FOR_ANSWERS)
        metrics = limiter.get_metrics()
        assert (metrics["in_flight"]["ollama"], metrics["waiting"].get("ollama", 0)) == (0, 0)
        async with limiter.acquire("ollama", timeout=0):
            pass

    queue.store.acquire = noted  # type: ignore[method-assign]
    return check


@pytest.mark.parametrize("give_up", ["cancelled", "timed out"])
async def test_requests_that_were_not_sent_yet_do_not_go_out_after_their_callers_gave_up(
    queue: qo.Queue, make: MakeLimiter, slow: SlowStore, give_up: str, nothing_is_left: NothingIsLeft
) -> None:
    """Two calls for patient callers are held up on their way, so the requests of the others wait to be sent. The
    others give up, and are released before anything of theirs has reached the store."""
    limiter = make({"ollama": 1})
    await enter_and_leave(limiter, "ollama")
    timeout = None if give_up == "cancelled" else 0.005

    async def call() -> None:
        async with limiter.acquire("ollama", timeout=timeout):
            raise AssertionError("the slot is the first caller's until the way is free")

    slow.hold_up()
    patient = [asyncio.create_task(enter_and_leave(limiter, "ollama")) for _ in range(1 + MOST_PER_CALL)]
    await until_begun(slow, "acquire", 1 + 2)
    calls = [asyncio.create_task(call()) for _ in range(MANY)]
    await asyncio.sleep(0)  # in which they have asked
    if give_up == "cancelled":
        for each in calls:
            each.cancel()
    ended = await soon(asyncio.gather(*calls, return_exceptions=True))
    await until_begun(slow, "release", 1 + 1)
    slow.let_through()

    expected: type[BaseException] = asyncio.CancelledError if give_up == "cancelled" else qo.Timeout
    assert {type(error) for error in ended} == {expected}
    await asyncio.wait_for(asyncio.gather(*patient), SECONDS_FOR_ANSWERS)
    await nothing_is_left(limiter)


async def until_begun(slow: SlowStore, name: str, times: int) -> None:
    """The call that the limiter was warmed up with is one of them."""

    async def is_so() -> bool:
        return slow.times(name) >= times

    await until(is_so)


@pytest.mark.parametrize(("amount", "timeout"), [(150, 0.005), (MANY, None)])
async def test_however_many_give_up_at_once_the_next_caller_enters_at_once(
    queue: qo.Queue, make: MakeLimiter, amount: int, timeout: float | None, nothing_is_left: NothingIsLeft
) -> None:
    limiter = make({"ollama": 1})
    await enter_and_leave(limiter, "ollama")

    async def call() -> None:
        async with limiter.acquire("ollama", timeout=timeout):
            await asyncio.sleep(0.001)

    calls = [asyncio.create_task(call()) for _ in range(amount)]
    if timeout is None:
        await asyncio.sleep(0.003)
        for each in calls:
            each.cancel()
    await soon(asyncio.gather(*calls, return_exceptions=True))

    await nothing_is_left(limiter)


@pytest.mark.parametrize("in_thread", [False, True])
async def test_a_caller_whose_time_is_up_when_it_is_counted_as_waiting_does_not_stay_counted(
    queue: qo.Queue, make: MakeLimiter, monkeypatch: pytest.MonkeyPatch, in_thread: bool
) -> None:
    """The limiter's thread counts who waits beside the callers, so it may do so at the moment a caller gives up."""
    limiter = make({"ollama": 1})
    give_up = Requests.give_up

    def give_up_and_count(requests: Requests, request: Request) -> bool:
        has_given_up = give_up(requests, request)
        request.blocked_by = None  # as if the look took until now
        requests.count_blocked(request, "provider:ollama")
        return has_given_up

    def call_in_thread() -> None:
        with limiter.acquire("ollama", timeout=0.05):
            raise AssertionError("there was no slot")

    async def call_in_task() -> None:
        async with limiter.acquire("ollama", timeout=0.05):
            raise AssertionError("there was no slot")

    async with limiter.acquire("ollama"):
        monkeypatch.setattr(Requests, "give_up", give_up_and_count)
        with pytest.raises(qo.Timeout):
            await (asyncio.to_thread(call_in_thread) if in_thread else call_in_task())

    assert limiter.get_metrics()["waiting"] == {"ollama": 0}


@pytest.mark.parametrize("overrides", [ASK_AGAIN_OFTEN])
async def test_a_slot_that_the_limiters_thread_got_is_kept_though_the_callers_own_request_is_still_on_its_way(
    queue: qo.Queue, make: MakeLimiter, slow: SlowStore, nothing_is_left: NothingIsLeft
) -> None:
    limiter = make({"ollama": 1})
    await enter_and_leave(limiter, "ollama")
    slow.hold_up()
    entered, leave = asyncio.Event(), asyncio.Event()

    async def call() -> bool:
        async with limiter.acquire("ollama", timeout=SOON_SECONDS) as lease:
            entered.set()
            await leave.wait()
            return lease.lost

    calling = asyncio.create_task(call())
    await soon(entered.wait())
    assert slow.on_the_way() == 1
    slow.let_through()

    async def is_answered() -> bool:
        return slow.arrived.count("acquire") == 1 + 1

    await until(is_answered)
    await asyncio.to_thread(limiter.set_limit, "ollama", 1)  # by the limiter's thread, after what it would give back
    held = (await queue.limit("provider:ollama")).active
    leave.set()

    assert (held, await soon(calling)) == (1, False)
    await nothing_is_left(limiter)


# --- when the event loop or the limiter ends --------------------------------------------------------------------


async def test_callers_whose_event_loop_ends_leave_nothing_behind(
    queue: qo.Queue, make: MakeLimiter, caplog: pytest.LogCaptureFixture, nothing_is_left: NothingIsLeft
) -> None:
    """A program that ends cancels its tasks, and its loop stops before anything can be sent from there."""
    limiter = make({"ollama": 1})

    async def program() -> list[asyncio.Task[Any]]:
        calls = [asyncio.create_task(enter_and_leave(limiter, "ollama")) for _ in range(MANY)]
        await waiting(queue, "provider:ollama", MANY)
        return calls

    async with limiter.acquire("ollama"):
        calls = await soon(asyncio.to_thread(lambda: asyncio.run(program())))
        assert all(call.cancelled() for call in calls)
        await asyncio.wait_for(waiting(queue, "provider:ollama", 0), SECONDS_FOR_ANSWERS)
    await nothing_is_left(limiter)
    gc.collect()
    assert "destroyed" not in caplog.text


async def test_a_limiter_that_is_closed_first_gives_back_what_callers_have_left(
    queue: qo.Queue, make: MakeLimiter
) -> None:
    holding, closing = make({"ollama": 1}), make({"ollama": 1})
    async with holding.acquire("ollama"):
        calls = [asyncio.create_task(enter_and_leave(closing, "ollama")) for _ in range(MANY)]

        async def all_know_that_they_wait() -> bool:
            return closing.get_metrics()["waiting"].get("ollama") == MANY

        await until(all_know_that_they_wait)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        closing.close()  # in this very loop, in which nothing else can be sent meanwhile

        assert (await queue.limit("provider:ollama")).waiting == 0


async def test_callers_that_wait_when_their_limiter_is_closed_are_refused_and_out_of_the_line(
    queue: qo.Queue, make: MakeLimiter
) -> None:
    holding, closing = make({"ollama": 1}), make({"ollama": 1})
    async with holding.acquire("ollama"):
        call = asyncio.create_task(enter_and_leave(closing, "ollama"))
        await waiting(queue, "provider:ollama", 1)
        await asyncio.to_thread(closing.close)

        assert (await queue.limit("provider:ollama")).waiting == 0
        with pytest.raises(StoreUnavailable, match="was closed"):
            await soon(call)


# --- requests of the limiter's thread ---------------------------------------------------------------------------


@pytest.mark.parametrize("answer", ["comes", "is lost"])
async def test_a_request_that_the_release_of_a_thread_overtook_is_given_back(
    queue: qo.Queue, make: MakeLimiter, monkeypatch: pytest.MonkeyPatch, answer: str, nothing_is_left: NothingIsLeft
) -> None:
    """The thread gives up while its request is on the way; the store takes the release first, then the request."""
    limiter = make({"ollama": 1})
    await enter_and_leave(limiter, "ollama")
    acquire, release = queue.store.acquire, queue.store.release
    is_asked, is_released, has_arrived, is_staged = threading.Event(), threading.Event(), threading.Event(), False

    async def late(*args: Any, **options: Any) -> Any:
        nonlocal is_staged
        is_first, is_staged = not is_staged, True
        if is_first:
            is_asked.set()
            await asyncio.to_thread(is_released.wait, SOON_SECONDS)
        granted = await acquire(*args, **options)
        has_arrived.set()
        if is_first and answer == "is lost":
            raise StoreUnavailable("The answer was lost.")
        return granted

    async def release_and_tell(*args: Any, **options: Any) -> Any:
        released = await release(*args, **options)
        is_released.set()
        return released

    def time_is_up_when_it_was_asked_for(*_: Any) -> bool:
        assert is_asked.wait(SOON_SECONDS)
        return False

    def call() -> None:
        with limiter.acquire("ollama", timeout=60):
            raise AssertionError("nothing was answered yet")

    monkeypatch.setattr(ThreadWaiter, "wait", time_is_up_when_it_was_asked_for)

    queue.store.acquire = late  # type: ignore[method-assign]
    queue.store.release = release_and_tell  # type: ignore[method-assign]
    with pytest.raises(qo.Timeout):
        await asyncio.to_thread(call)
    assert await asyncio.to_thread(has_arrived.wait, SOON_SECONDS)

    await nothing_is_left(limiter)
