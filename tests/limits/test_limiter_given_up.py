"""Callers of a limiter on a store that give up leave neither a slot nor a place in line, however many do at once."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any

import pytest
from limiters_on_a_queue import (
    MakeLimiter,
    enter_and_leave,
    make_fixture,  # noqa: F401 - asked for by name
    waiting,
)
from running import soon, until
from slow_store import SlowStore

import qo
from qo.errors import StoreUnavailable
from qo.runtime.limiter_callers import WaitingThread
from qo.runtime.limiter_desk import MOST_PER_CALL

MANY = 60
SOON_SECONDS = 20
SECONDS_FOR_ANSWERS = 8
"""for calls under way to be answered; what was left behind would live for 10 seconds and more"""


@pytest.fixture(name="slow")
async def slow_fixture(queue: qo.Queue) -> SlowStore:
    slow = SlowStore(queue.store, {"acquire", "release"})
    queue.store = slow  # type: ignore[assignment]
    return slow


async def nothing_is_left(queue: qo.Queue, limiter: qo.Limiter) -> None:
    """Once what is under way has been answered: in the store, in the limiter's figures, and for the next caller."""

    desks: Any = limiter._slots._desks  # type: ignore[union-attr]

    async def is_empty() -> bool:
        is_answered = all(desk.asking._in_flight == 0 for loop, desk in desks.items() if not loop.is_closed())
        status = await queue.limit("provider:ollama")
        return is_answered and (status.active, status.waiting) == (0, 0)

    await asyncio.wait_for(until(is_empty), SECONDS_FOR_ANSWERS)
    metrics = limiter.get_metrics()
    assert (metrics["in_flight"]["ollama"], metrics["waiting"].get("ollama", 0)) == (0, 0)
    async with limiter.acquire("ollama", timeout=0):
        pass


@pytest.mark.parametrize("give_up", ["cancelled", "timed out"])
async def test_requests_that_were_not_sent_yet_do_not_go_out_after_their_callers_gave_up(
    queue: qo.Queue, make: MakeLimiter, slow: SlowStore, give_up: str
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
    await nothing_is_left(queue, limiter)


async def until_begun(slow: SlowStore, name: str, times: int) -> None:
    """The call that the limiter was warmed up with is one of them."""

    async def is_so() -> bool:
        return slow.times(name) >= times

    await until(is_so)


@pytest.mark.parametrize(("amount", "timeout"), [(150, 0.005), (MANY, None)])
async def test_however_many_give_up_at_once_the_next_caller_enters_at_once(
    queue: qo.Queue, make: MakeLimiter, amount: int, timeout: float | None
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

    await nothing_is_left(queue, limiter)


@pytest.mark.parametrize("in_thread", [False, True])
async def test_a_caller_whose_time_is_up_when_it_is_counted_as_waiting_does_not_stay_counted(
    queue: qo.Queue, make: MakeLimiter, monkeypatch: pytest.MonkeyPatch, in_thread: bool
) -> None:
    """The limiter's thread counts who waits beside the callers, so it may do so at the moment a caller gives up."""
    limiter = make({"ollama": 1})
    slots: Any = limiter._slots
    give_up = slots._in_the_last_moment

    def counted_then_given_up(request: Any, *rest: Any) -> Any:
        slots._has_to_wait(request, "provider:ollama")
        return give_up(request, *rest)

    def call_in_thread() -> None:
        with limiter.acquire("ollama", timeout=0.05):
            raise AssertionError("there was no slot")

    async def call_in_task() -> None:
        async with limiter.acquire("ollama", timeout=0.05):
            raise AssertionError("there was no slot")

    async with limiter.acquire("ollama"):
        monkeypatch.setattr(slots, "_in_the_last_moment", counted_then_given_up)
        with pytest.raises(qo.Timeout):
            await (asyncio.to_thread(call_in_thread) if in_thread else call_in_task())

    assert limiter.get_metrics()["waiting"] == {"ollama": 0}


async def test_a_slot_that_came_in_the_last_moment_is_kept_though_the_request_is_still_on_its_way(
    queue: qo.Queue, make: MakeLimiter, slow: SlowStore
) -> None:
    """The limiter's thread has let the caller in; then the time is up, then the caller's own request is answered."""
    limiter = make({"ollama": 1})
    await enter_and_leave(limiter, "ollama")
    keeper: Any = limiter._slots._keeper  # type: ignore[union-attr]
    slow.hold_up()
    entered, leave = asyncio.Event(), asyncio.Event()

    async def call() -> bool:
        async with limiter.acquire("ollama", timeout=0.5) as lease:
            entered.set()
            await leave.wait()
            return lease.lost

    calling = asyncio.create_task(call())
    await until_begun(slow, "acquire", 1 + 1)
    keeper._post(keeper._ask_for_all)
    await soon(entered.wait())
    slow.let_through()
    asking = limiter._slots._desks[asyncio.get_running_loop()].asking  # type: ignore[union-attr]

    async def is_answered() -> bool:
        return bool(asking._in_flight == 0)

    await until(is_answered)
    for _ in range(2):  # what the thread was told to give back has been given back
        await asyncio.wrap_future(keeper.run(queue.store._store.catch_up()))  # type: ignore[attr-defined]
    held = (await queue.limit("provider:ollama")).active
    leave.set()

    assert (held, await soon(calling)) == (1, False)
    await nothing_is_left(queue, limiter)


# --- when the event loop or the limiter ends --------------------------------------------------------------------


async def test_callers_whose_event_loop_ends_leave_nothing_behind(
    queue: qo.Queue, make: MakeLimiter, caplog: pytest.LogCaptureFixture
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
    await nothing_is_left(queue, limiter)
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
    queue: qo.Queue, make: MakeLimiter, monkeypatch: pytest.MonkeyPatch, answer: str
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

    monkeypatch.setattr(WaitingThread, "wait", time_is_up_when_it_was_asked_for)

    queue.store.acquire = late  # type: ignore[method-assign]
    queue.store.release = release_and_tell  # type: ignore[method-assign]
    with pytest.raises(qo.Timeout):
        await asyncio.to_thread(call)
    assert await asyncio.to_thread(has_arrived.wait, SOON_SECONDS)

    await nothing_is_left(queue, limiter)
