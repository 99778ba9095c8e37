"""A limiter on a queue: the same groups and slots that jobs use, for tasks and threads, across processes."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import qo
from qo.limits.on_store.requests import Request, Requests
from qo.values import Grant
from tests.limits.limiters_on_a_queue import (
    MakeLimiter,
    enter_and_leave,
    held,
    make_fixture,  # noqa: F401 - asked for by name
    waiting,
)
from tests.worker.running import run_one, running, soon, until

SOON_SECONDS = 20


# --- in and out -----------------------------------------------------------------------------------------------


async def test_a_block_holds_a_slot_of_its_provider_and_one_of_the_total(queue: qo.Queue, make: MakeLimiter) -> None:
    limiter = make({"ollama": 4}, total=12)
    async with limiter.acquire("ollama") as lease:
        assert lease.slots == {"provider:ollama": 0, "providers": 0}
        (slot,) = (await queue.limit("provider:ollama")).slots
        assert (slot.token, lease.lost) == (lease.token, False)
        assert await held(queue, "providers") == 1

    assert (await held(queue, "provider:ollama"), await held(queue, "providers")) == (0, 0)


async def test_a_provider_without_a_limit_takes_only_the_total(queue: qo.Queue, make: MakeLimiter) -> None:
    limiter = make({"ollama": 4}, total=2)
    async with limiter.acquire("mistral") as lease:
        assert lease.slots == {"providers": 0}


async def test_threads_and_tasks_share_the_slots(queue: qo.Queue, make: MakeLimiter) -> None:
    limiter = make({"ollama": 1})
    inside, most, lock = 0, 0, threading.Lock()

    def enter() -> None:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)

    def leave() -> None:
        nonlocal inside
        with lock:
            inside -= 1

    def in_thread() -> None:
        for _ in range(5):
            with limiter.acquire("ollama"):
                enter()
                leave()

    async def in_task() -> None:
        for _ in range(5):
            async with limiter.acquire("ollama"):
                enter()
                await asyncio.sleep(0)
                leave()

    await soon(asyncio.gather(*(asyncio.to_thread(in_thread) for _ in range(3)), *(in_task() for _ in range(3))))

    assert (most, inside, await held(queue, "provider:ollama")) == (1, 0, 0)


async def test_an_error_in_the_block_gives_the_slots_back_and_is_raised(queue: qo.Queue, make: MakeLimiter) -> None:
    limiter = make({"ollama": 1})
    with pytest.raises(KeyError):
        async with limiter.acquire("ollama"):
            raise KeyError("mine")

    assert await held(queue, "provider:ollama") == 0


# --- waiting --------------------------------------------------------------------------------------------------


async def test_callers_of_several_limiters_are_served_first_come_first(queue: qo.Queue, make: MakeLimiter) -> None:
    limiters = [make({"ollama": 1}) for _ in range(3)]
    served: list[int] = []

    async def call(number: int) -> None:
        async with limiters[number % 3].acquire("ollama"):
            served.append(number)

    async with limiters[0].acquire("ollama"):
        calls = []
        for number in range(6):
            calls.append(asyncio.create_task(call(number)))
            await waiting(queue, "provider:ollama", number + 1)
    await soon(asyncio.gather(*calls))

    assert served == [0, 1, 2, 3, 4, 5]


async def test_a_caller_who_waits_for_the_total_holds_no_provider(queue: qo.Queue, make: MakeLimiter) -> None:
    limiter = make({"ollama": 1, "gemini": 1}, total=1)
    async with limiter.acquire("gemini"):
        waits = asyncio.create_task(enter_and_leave(limiter, "ollama"))
        await waiting(queue, "providers", 1)
        assert await held(queue, "provider:ollama") == 0
    await soon(waits)


@pytest.mark.parametrize("timeout", [0, 0.05])
async def test_whoever_waits_no_longer_is_told_what_was_full_and_is_out_of_the_line(
    queue: qo.Queue, make: MakeLimiter, timeout: float
) -> None:
    limiter = make({"ollama": 1})
    async with limiter.acquire("ollama"):
        with pytest.raises(qo.Timeout, match=r"No slot in provider 'ollama' .*: its limit is 1, 1 hold one"):
            async with limiter.acquire("ollama", timeout=timeout):
                raise AssertionError("there was no slot")
        await waiting(queue, "provider:ollama", 0)

    assert await enter_and_leave(limiter, "ollama") == {"provider:ollama": 0}


async def test_a_caller_that_is_cancelled_while_it_waits_is_out_of_the_line(queue: qo.Queue, make: MakeLimiter) -> None:
    limiter = make({"ollama": 1})
    async with limiter.acquire("ollama"):
        waits = asyncio.create_task(enter_and_leave(limiter, "ollama"))
        await waiting(queue, "provider:ollama", 1)
        waits.cancel()
        await asyncio.gather(waits, return_exceptions=True)
        assert waits.cancelled()
        await waiting(queue, "provider:ollama", 0)


async def test_a_caller_cancelled_at_the_moment_it_is_let_in_leaves_nothing_behind(
    queue: qo.Queue, make: MakeLimiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is on its way to the caller's loop when the caller is cancelled."""
    limiter = make({"ollama": 1})
    answered, answer = threading.Event(), Requests.answer

    def answer_and_note(requests: Requests, request: Request, grant: Grant) -> bool:
        is_used = answer(requests, request, grant)
        if grant.token is not None:
            answered.set()
        return is_used

    async with limiter.acquire("ollama"):
        waits = asyncio.create_task(enter_and_leave(limiter, "ollama"))
        await waiting(queue, "provider:ollama", 1)
        monkeypatch.setattr(Requests, "answer", answer_and_note)
    answered.wait(SOON_SECONDS)  # this loop stands still until the slot has been given
    assert answered.is_set()
    waits.cancel()
    await asyncio.gather(waits, return_exceptions=True)

    async def nobody_holds() -> bool:
        return await held(queue, "provider:ollama") == 0

    await until(nobody_holds)
    assert limiter.get_metrics()["in_flight"]["ollama"] == 0


async def test_a_raised_limit_lets_in_who_waits(queue: qo.Queue, make: MakeLimiter) -> None:
    limiter = make({"ollama": 0})
    waits = asyncio.create_task(enter_and_leave(limiter, "ollama"))
    await waiting(queue, "provider:ollama", 1)
    await asyncio.to_thread(limiter.set_limit, "ollama", 1)

    assert await soon(waits) == {"provider:ollama": 0}


# --- with jobs ------------------------------------------------------------------------------------------------


async def test_a_job_and_a_caller_share_a_group(queue: qo.Queue, worker: qo.Worker, make: MakeLimiter) -> None:
    limiter = make(groups={"gpu": 1})
    ran = []

    @worker.task(groups=["gpu"])
    async def build() -> None:
        ran.append("job")

    async with limiter.acquire(groups=["gpu"]):
        job = await queue.submit("build")
        await worker.run_until_idle()
        assert ran == []
    await soon(worker.run_until_idle())

    assert (ran, (await queue.get(job.id)).state) == (["job"], qo.State.SUCCEEDED)


@pytest.mark.parametrize("in_thread", [False, True])
async def test_a_handler_that_calls_the_limiter_does_not_wait_for_itself(
    queue: qo.Queue, worker: qo.Worker, make: MakeLimiter, in_thread: bool
) -> None:
    """Its job holds the only slot of the group, of its task and of everything."""
    limiter = make({"ollama": 1}, total=1)
    for group in ("global", "gpu"):
        await queue.set_limit(group, 1)

    async def asynchronous(data: Any, ctx: qo.Context) -> list[Any]:
        async with limiter.acquire(groups=["gpu"], timeout=5) as own, limiter.acquire("ollama", timeout=5) as other:
            return [own.token == ctx.token, dict(own.slots), dict(other.slots)]

    def plain(data: Any, ctx: Any) -> list[Any]:
        with limiter.acquire(groups=["gpu"], timeout=5) as own, limiter.acquire("ollama", timeout=5) as other:
            return [own.token == ctx.token, dict(own.slots), dict(other.slots)]

    worker.task("call", groups=["gpu"], max_concurrent=1)(plain if in_thread else asynchronous)
    job = await run_one(queue, worker, "call")

    assert job.result == [True, {"gpu": 0}, {"provider:ollama": 0, "providers": 0}], job.error
    assert await held(queue, "provider:ollama") == 0


async def test_an_operators_limit_wins_over_the_limiters(
    queue: qo.Queue, make: MakeLimiter, caplog: pytest.LogCaptureFixture
) -> None:
    await queue.set_limit("provider:ollama", 1)
    limiter = make({"ollama": 4})
    async with limiter.acquire("ollama"):
        with pytest.raises(qo.Timeout):
            async with limiter.acquire("ollama", timeout=0):
                pass

    assert "provider:ollama" in caplog.text


# --- metrics --------------------------------------------------------------------------------------------------


async def test_metrics_are_those_of_this_process(queue: qo.Queue, make: MakeLimiter) -> None:
    limiter, other = make({"ollama": 1, "gemini": 8}, total=12), make({"ollama": 1})
    async with other.acquire("ollama"):
        waits = asyncio.create_task(enter_and_leave(limiter, "ollama"))

        async def is_counted() -> bool:
            return limiter.get_metrics()["blocked_requests"] == 1

        await until(is_counted)
        async with limiter.acquire("gemini"):
            inside = limiter.get_metrics()
    await soon(waits)
    after = limiter.get_metrics()

    assert inside["in_flight"] == {"ollama": 0, "gemini": 1, "total": 1}
    assert (inside["waiting"], inside["blocked_by"]) == ({"ollama": 1}, {"ollama": 1})
    assert inside["limits"] == {"ollama": 1, "gemini": 8, "global": 12}
    assert (after["blocked_requests"], after["in_flight"]) == (1, {"ollama": 0, "gemini": 0, "total": 0})
    assert 0 < after["avg_block_time_seconds"] == after["longest_wait_seconds"]


async def test_running_workers_and_callers_go_on_together(
    queue: qo.Queue, worker: qo.Worker, make: MakeLimiter
) -> None:
    limiter = make(groups={"gpu": 2})
    inside, most = 0, 0

    async def use() -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0.001)
        inside -= 1

    @worker.task(groups=["gpu"])
    async def build() -> None:
        await use()

    async def call() -> None:
        async with limiter.acquire(groups=["gpu"]):
            await use()

    await call()  # the store is told of the limit when somebody enters, so before any job starts
    jobs = [await queue.submit("build") for _ in range(20)]
    async with running(worker):
        await soon(asyncio.gather(*(call() for _ in range(20)), *(queue.wait(job.id) for job in jobs)))

    assert most == 2
