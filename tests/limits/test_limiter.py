"""A limiter in process: providers and their total, groups of one's own, slots, timeouts."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections import Counter
from contextlib import AsyncExitStack

import pytest

import qo
from qo.limits.in_process.line import Group, Line
from tests.limits.provider_limiter import (  # noqa: F401 - asked for by name
    PROVIDERS,
    held_fixture,
    in_flight,
    is_full,
    limiter_fixture,
    take,
    until_waiting,
    waiting,
)
from tests.worker.running import soon


async def test_one_full_provider_leaves_the_others_their_room(limiter: qo.Limiter, held: AsyncExitStack) -> None:
    await take(held, limiter, "ollama", 4)

    assert await is_full(limiter, "ollama")
    await take(held, limiter, "gemini", 8)
    assert in_flight(limiter) == {"ollama": 4, "gemini": 8, "total": 12}


async def test_a_mixed_load_fills_the_total(limiter: qo.Limiter, held: AsyncExitStack) -> None:
    for provider in PROVIDERS:
        await take(held, limiter, provider, 3)

    assert [await is_full(limiter, provider) for provider in PROVIDERS] == [True] * 4
    assert in_flight(limiter) == {"ollama": 3, "gemini": 3, "openai": 3, "deepseek": 3, "total": 12}


async def test_a_full_total_stops_providers_that_have_room(limiter: qo.Limiter, held: AsyncExitStack) -> None:
    await take(held, limiter, "openai", 10)
    await take(held, limiter, "gemini", 2)
    task, leave = await waiting(limiter, "deepseek")

    assert limiter.get_metrics()["blocked_by"] == {"total": 1}
    assert in_flight(limiter) == {"openai": 10, "gemini": 2, "total": 12}
    await held.aclose()
    leave.set()
    await soon(task)


async def test_a_caller_that_waits_for_the_total_holds_no_slot_of_its_provider(held: AsyncExitStack) -> None:
    limiter = qo.Limiter({"ollama": 1, "gemini": 1}, total=1)
    await take(held, limiter, "gemini")
    task, leave = await waiting(limiter, "ollama")
    limiter.set_total(2)
    # Were the slot of ollama held since before, raising the total and no more would now have changed nothing.
    await asyncio.sleep(0)

    assert in_flight(limiter) == {"ollama": 1, "gemini": 1, "total": 2}
    leave.set()
    await soon(task)


async def test_one_that_waits_for_the_total_does_not_block_the_provider_for_groups_outside_of_it(
    held: AsyncExitStack,
) -> None:
    limiter = qo.Limiter({"ollama": 4}, total=1, groups={"gpu": 1})
    await take(held, limiter, "ollama")
    blocked = asyncio.create_task(limiter.acquire(groups=["gpu", "provider:ollama"]).__aenter__())
    await asyncio.sleep(0)

    async with limiter.acquire(groups=["gpu"], timeout=0) as lease:
        assert lease.slots == {"gpu": 0}
    blocked.cancel()


async def test_taking_a_provider_and_the_total_in_opposite_orders_cannot_deadlock() -> None:
    limiter = qo.Limiter(groups={"a": 1, "b": 1})

    async def enter(groups: list[str]) -> None:
        for _ in range(50):
            async with limiter.acquire(groups=groups):
                await asyncio.sleep(0)

    await soon(asyncio.gather(enter(["a", "b"]), enter(["b", "a"]), enter(["a"]), enter(["b"])))

    assert in_flight(limiter) == {}


def test_provider_first_callers_in_threads_cannot_deadlock() -> None:
    limiter = qo.Limiter({"ollama": 2, "gemini": 2}, total=2)

    def enter(provider: str) -> None:
        for _ in range(100):
            with limiter.acquire(provider, timeout=20):
                pass

    threads = [threading.Thread(target=enter, args=(name,)) for name in ("ollama", "gemini") * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)

    assert not any(thread.is_alive() for thread in threads)


async def test_those_who_wait_are_let_in_as_they_came(held: AsyncExitStack) -> None:
    limiter = qo.Limiter({"ollama": 1})
    await take(held, limiter, "ollama")
    tasks = [await waiting(limiter, "ollama") for _ in range(3)]
    await held.aclose()
    tokens = []
    for task, leave in tasks:
        leave.set()
        tokens.append((await soon(task)).token)

    assert tokens == sorted(tokens, key=int)
    assert len({*tokens}) == 3


async def test_a_sooner_priority_goes_first() -> None:
    limiter = qo.Limiter({"ollama": 1})
    order: list[str] = []

    async def enter(priority: int | str) -> None:
        async with limiter.acquire("ollama", priority=priority):
            order.append(f"{priority}")

    async with limiter.acquire("ollama"):
        tasks = [asyncio.create_task(enter(priority)) for priority in ("low", "normal", 49, "urgent")]
        await asyncio.sleep(0)
    await soon(asyncio.gather(*tasks))

    assert order == ["urgent", "49", "normal", "low"]


def test_slots_are_numbered_from_the_lowest_that_is_free() -> None:
    limiter = qo.Limiter({"ollama": 4}, total=12)
    first, second, third = (limiter.acquire("ollama") for _ in range(3))
    given = [block.__enter__().slots for block in (first, second, third)]
    second.__exit__(None, None, None)
    first.__exit__(None, None, None)
    with limiter.acquire("ollama") as again, limiter.acquire("ollama") as later:
        assert given == [{"provider:ollama": number, "providers": number} for number in range(3)]
        assert again.slots == {"provider:ollama": 0, "providers": 0}
        assert later.slots == {"provider:ollama": 1, "providers": 1}


def test_a_slot_handed_over_is_the_lowest_that_is_free_too() -> None:
    limiter = qo.Limiter({"ollama": 2, "gemini": 2}, total=3)
    numbers: list[dict[str, int]] = []
    low, high = limiter.acquire("gemini"), limiter.acquire("ollama")
    other = limiter.acquire("ollama")
    for block in (low, high, other):
        block.__enter__()

    def enter() -> None:
        with limiter.acquire("ollama") as lease:
            numbers.append(dict(lease.slots))

    thread = threading.Thread(target=enter)
    thread.start()
    until_waiting(limiter, "ollama", 1)
    low.__exit__(None, None, None)  # frees number 0 of the total; ollama is still full
    other.__exit__(None, None, None)  # frees number 1 of ollama and 2 of the total
    thread.join(20)

    assert numbers == [{"provider:ollama": 1, "providers": 0}]


def test_a_provider_without_a_limit_takes_only_the_total() -> None:
    limiter = qo.Limiter({"ollama": 1}, total=2)
    with limiter.acquire("mistral") as lease, limiter.acquire("mistral"):
        assert lease.slots == {"providers": 0}
        assert limiter.get_metrics()["in_flight"] == {"ollama": 0, "mistral": 2, "total": 2}
        with pytest.raises(qo.Timeout, match="the total over all providers"), limiter.acquire("mistral", timeout=0):
            pass


def test_groups_of_ones_own_are_taken_all_or_none() -> None:
    limiter = qo.Limiter(groups={"gpu": 1, "licence": 1})
    with limiter.acquire(groups=["gpu", "free", "gpu"]) as lease:
        with pytest.raises(qo.Timeout, match="'gpu'"), limiter.acquire(groups=["licence", "gpu"], timeout=0):
            pass
        assert limiter.get_metrics()["in_flight"] == {"gpu": 1, "licence": 0, "free": 1, "total": 0}
        assert lease.slots == {"gpu": 0}


def test_a_lease_has_a_greater_token_than_those_before_and_is_never_lost() -> None:
    limiter = qo.Limiter()
    with limiter.acquire("ollama") as first:
        pass
    with limiter.acquire(groups=["gpu"]) as second:
        assert int(second.token) > int(first.token)
        assert not second.lost


def test_the_same_caller_twice_takes_two_slots_and_gives_both_back() -> None:
    limiter = qo.Limiter({"ollama": 2})
    with limiter.acquire("provider:ollama"), limiter.acquire("ollama"):
        assert in_flight(limiter) == {"ollama": 2, "total": 2}
    assert in_flight(limiter) == {}


def test_an_exception_gives_the_slots_back() -> None:
    limiter = qo.Limiter({"ollama": 1})
    with pytest.raises(ZeroDivisionError), limiter.acquire("ollama"):
        _ = 1 / 0

    assert in_flight(limiter) == {}


async def test_an_exception_in_a_task_gives_the_slots_back() -> None:
    limiter = qo.Limiter({"ollama": 1})
    with pytest.raises(ZeroDivisionError):
        async with limiter.acquire("ollama"):
            _ = 1 / 0

    assert in_flight(limiter) == {}


def test_an_acquire_is_entered_once() -> None:
    block = qo.Limiter().acquire("ollama")
    with block:
        pass
    with pytest.raises(qo.InvalidValue, match="entered before"), block:
        pass


async def test_an_acquire_entered_by_with_is_not_entered_by_async_with() -> None:
    block = qo.Limiter().acquire("ollama")
    with block:
        pass
    with pytest.raises(qo.InvalidValue, match="entered before"):
        async with block:
            pass


def test_an_acquire_that_is_not_entered_takes_nothing() -> None:
    limiter = qo.Limiter({"ollama": 1})
    limiter.acquire("ollama")

    assert in_flight(limiter) == {}


async def test_a_timeout_says_which_group_was_full_and_how_many_wait(held: AsyncExitStack) -> None:
    limiter = qo.Limiter({"ollama": 1})
    await take(held, limiter, "ollama")
    task, leave = await waiting(limiter, "ollama")
    with pytest.raises(qo.Timeout) as refused:
        async with limiter.acquire("ollama", timeout=0.01):
            pass

    assert str(refused.value) == (
        "No slot in provider 'ollama' within 0.01 seconds: its limit is 1, 1 hold one and 1 more wait. "
        "Wait longer, or raise the limit."
    )
    assert limiter.get_metrics()["waiting"] == {"ollama": 1}
    await held.aclose()
    leave.set()
    await soon(task)


def test_a_timeout_in_a_thread_leaves_no_place_in_line() -> None:
    limiter = qo.Limiter({"ollama": 1})
    with limiter.acquire("ollama"):
        with pytest.raises(qo.Timeout, match="provider 'ollama' within"):
            limiter.acquire("ollama", timeout=0.01).__enter__()
        assert limiter.get_metrics()["waiting"] == {"ollama": 0}
    assert in_flight(limiter) == {}


async def test_no_end_of_waiting_is_too_far_away(held: AsyncExitStack) -> None:
    limiter = qo.Limiter({"ollama": 1})
    await take(held, limiter, "ollama")
    tasks = [asyncio.create_task(limiter.acquire("ollama", timeout=far).__aenter__()) for far in (1e300, float("inf"))]
    await asyncio.sleep(0)

    assert limiter.get_metrics()["waiting"] == {"ollama": 2}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert limiter.get_metrics()["waiting"] == {"ollama": 0}


async def test_threads_and_tasks_of_two_loops_share_one_limiter() -> None:
    limiter = qo.Limiter({"ollama": 1})
    inside: list[str] = []

    async def enter(name: str) -> None:
        async with limiter.acquire("ollama"):
            inside.append(name)

    def enter_in_thread(name: str) -> None:
        with limiter.acquire("ollama"):
            inside.append(name)

    async with limiter.acquire("ollama"):
        here = asyncio.create_task(enter("this loop"))
        await asyncio.sleep(0)
        another_loop = threading.Thread(target=lambda: asyncio.run(enter("another loop")))
        a_thread = threading.Thread(target=enter_in_thread, args=("a thread",))
        another_loop.start()
        until_waiting(limiter, "ollama", 2)
        a_thread.start()
        until_waiting(limiter, "ollama", 3)
    await soon(here)
    for thread in (another_loop, a_thread):
        await asyncio.to_thread(thread.join, 20)

    assert inside == ["this loop", "another loop", "a thread"]
    assert in_flight(limiter) == {}


def test_names_that_come_and_go_are_forgotten() -> None:
    limiter = qo.Limiter(groups={"gpu": 1})
    for customer in range(5000):
        with limiter.acquire(groups=["gpu", f"customer-{customer}"]):
            pass
        if customer % 100 == 0:
            with limiter.acquire(groups=["gpu"]), pytest.raises(qo.Timeout):
                limiter.acquire(groups=["gpu", f"patient-{customer}"], timeout=0.0001).__enter__()
    gc.collect()
    remembered = Counter(type(each) for each in gc.get_objects())

    assert remembered[Line] <= 1100
    assert remembered[Group] <= 1200
    assert limiter.get_metrics()["in_flight"] == {"gpu": 0, "total": 0}
