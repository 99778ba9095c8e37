"""A limiter on a queue: the same groups and slots that jobs use, for tasks and threads, across processes."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from running import run_one, running, soon, until

import qo
from qo.errors import StoreUnavailable

SOON_SECONDS = 20

MakeLimiter = Callable[..., qo.Limiter]


@pytest.fixture
async def make(queue: qo.Queue) -> AsyncIterator[MakeLimiter]:
    """Limiters on the same queue, each as if in a process of its own; closed at the end."""
    made: list[qo.Limiter] = []

    def limiter(*args: Any, **options: Any) -> qo.Limiter:
        made.append(qo.Limiter(*args, **options, queue=queue))
        return made[-1]

    yield limiter
    for each in made:
        await asyncio.to_thread(each.close)


async def held(queue: qo.Queue, group: str) -> int:
    return (await queue.limit(group)).active


async def waiting(queue: qo.Queue, group: str, number: int) -> None:
    async def do_wait() -> bool:
        return (await queue.limit(group)).waiting == number

    await until(do_wait)


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


async def enter_and_leave(limiter: qo.Limiter, provider: str) -> dict[str, int]:
    async with limiter.acquire(provider) as lease:
        return dict(lease.slots)


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
    queue: qo.Queue, make: MakeLimiter
) -> None:
    """The answer is on its way to the caller's loop when the caller is cancelled."""
    limiter = make({"ollama": 1})
    answered = threading.Event()
    keeper = limiter._slots._keeper  # type: ignore[attr-defined]
    let_in = keeper._let_in

    def let_in_and_tell(*args: Any) -> None:
        let_in(*args)
        answered.set()

    keeper._let_in = let_in_and_tell
    async with limiter.acquire("ollama"):
        waits = asyncio.create_task(enter_and_leave(limiter, "ollama"))
        await waiting(queue, "provider:ollama", 1)
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


# --- leases ---------------------------------------------------------------------------------------------------


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
    await asyncio.to_thread(dying.close)  # from now on nobody renews anything there
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


# --- a store that is away -------------------------------------------------------------------------------------


async def test_a_release_that_the_store_does_not_take_is_tried_until_it_does(
    queue: qo.Queue, make: MakeLimiter, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from qo.runtime import limiter_keeper

    monkeypatch.setattr(limiter_keeper, "TRY_AGAIN_SECONDS", 0.01)
    limiter = make({"ollama": 1})
    release, failures = queue.store.release, 3

    async def sometimes(*args: Any, **options: Any) -> Any:
        nonlocal failures
        if failures:
            failures -= 1
            raise StoreUnavailable("away")
        return await release(*args, **options)

    queue.store.release = sometimes  # type: ignore[method-assign]
    async with limiter.acquire("ollama"):
        pass

    assert (failures, await held(queue, "provider:ollama")) == (0, 0)
    assert caplog.text.count("a slot cannot be given back for now") == 1


@pytest.mark.parametrize("in_thread", [False, True])
async def test_a_block_does_not_wait_for_ever_to_give_its_slots_back(
    queue: qo.Queue, make: MakeLimiter, monkeypatch: pytest.MonkeyPatch, in_thread: bool
) -> None:
    from qo.runtime import limiter_on_store

    monkeypatch.setattr(limiter_on_store, "LEAVE_SECONDS", 0.05)
    limiter = make({"ollama": 1})
    release, is_back = queue.store.release, threading.Event()

    async def when_it_is_back(*args: Any, **options: Any) -> Any:
        await asyncio.to_thread(is_back.wait, SOON_SECONDS)
        return await release(*args, **options)

    queue.store.release = when_it_is_back  # type: ignore[method-assign]
    if in_thread:
        await asyncio.to_thread(enter_and_leave_thread, limiter)
    else:
        await enter_and_leave(limiter, "ollama")
    still_held = await held(queue, "provider:ollama")
    is_back.set()

    async def nobody_holds() -> bool:
        return await held(queue, "provider:ollama") == 0

    await until(nobody_holds)
    assert still_held == 1


def enter_and_leave_thread(limiter: qo.Limiter) -> None:
    with limiter.acquire("ollama"):
        pass


async def test_what_cannot_be_asked_for_is_raised_and_nothing_is_left(queue: qo.Queue, make: MakeLimiter) -> None:
    limiter = make({"ollama": 1})
    acquire, is_away = queue.store.acquire, True

    async def sometimes(*args: Any, **options: Any) -> Any:
        if is_away:
            raise StoreUnavailable("away")
        return await acquire(*args, **options)

    queue.store.acquire = sometimes  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable, match="away"):
        async with limiter.acquire("ollama"):
            pass
    is_away = False

    assert await enter_and_leave(limiter, "ollama") == {"provider:ollama": 0}


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
