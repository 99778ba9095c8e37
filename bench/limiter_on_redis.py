"""A limiter on Redis beside redis-py's own lock and what that client can do at most; and how soon a slot moves on.

All on one server, in one run, with 50 tasks of one process. The ways take turns in short rounds; medians count, those
of ratios over the rounds. Uncontended, the limit lets everybody in, and every task has a lock of its own. Contended,
all share one slot, and one lock: a limiter serves callers in order, while the task that has just left a lock takes it
again before others look.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from redis.asyncio import Redis

import qo

Way = Callable[[], Awaitable[float]]

TASKS = 50
PAIRS_OF_A_TASK = 40
GROUP = "gpu"
SETTLE_SECONDS = 0.02
"""The pause between hand-overs, so that the waiter's thread is idle when the slot becomes free."""

WAITER = """
import asyncio, sys, time
import qo

async def main():
    async with await qo.connect(sys.argv[1], namespace="handover") as queue:
        limiter = qo.Limiter(groups={"gpu": 1}, queue=queue)
        while await asyncio.to_thread(sys.stdin.readline):
            async with limiter.acquire(groups=["gpu"]):
                entered = time.monotonic()
            print(entered, flush=True)
        await asyncio.to_thread(limiter.close)

asyncio.run(main())
"""


# --- pairs a second -------------------------------------------------------------------------------------------


async def pairs_per_second(enter: Callable[[int], AbstractAsyncContextManager[Any]]) -> float:
    """Pairs a second of all tasks together. `enter(number)` makes the block that a task enters and leaves."""

    async def work(number: int) -> None:
        for _ in range(PAIRS_OF_A_TASK):
            async with enter(number):
                pass

    began = time.perf_counter()
    await asyncio.gather(*(work(number) for number in range(TASKS)))
    return TASKS * PAIRS_OF_A_TASK / (time.perf_counter() - began)


def on_limiter(limiter: qo.Limiter) -> Way:
    return lambda: pairs_per_second(lambda _: limiter.acquire(groups=[GROUP]))


def on_locks(client: Redis, number_of_locks: int, *, sleep_seconds: float) -> Way:
    def enter(number: int) -> AbstractAsyncContextManager[Any]:
        return client.lock(f"lock-{number % number_of_locks}", timeout=60, sleep=sleep_seconds)

    return lambda: pairs_per_second(enter)


async def on_trivial_scripts(client: Redis) -> Way:
    script = await client.script_load("return 1")

    @asynccontextmanager
    async def two_calls(_: int) -> AsyncIterator[None]:
        await client.evalsha(script, 0)
        yield
        await client.evalsha(script, 0)

    return lambda: pairs_per_second(two_calls)


async def in_turns(rounds: int, ways: dict[str, Way]) -> dict[str, list[float]]:
    """The pairs a second of each way in each round."""
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            rates[name].append(await way())
    return rates


def times_as_many(these: list[float], others: list[float]) -> float:
    """The median of the ratios of the rounds, because a fast moment of the machine affects both sides."""
    return statistics.median(one / other for one, other in zip(these, others, strict=True))


@asynccontextmanager
async def limiter_on(url: str, namespace: str, slots: int) -> AsyncIterator[qo.Limiter]:
    async with await qo.connect(url, namespace=namespace) as queue:
        limiter = qo.Limiter(groups={GROUP: slots}, queue=queue)
        try:
            yield limiter
        finally:
            await asyncio.to_thread(limiter.close)


async def report_pairs(url: str, rounds: int) -> None:
    client = Redis.from_url(url)
    async with client, limiter_on(url, "open", 10 * TASKS) as wide, limiter_on(url, "tight", 1) as tight:
        rates = await in_turns(
            rounds,
            {
                "limiter": on_limiter(wide),
                "locks": on_locks(client, TASKS, sleep_seconds=0.1),
                "scripts": await on_trivial_scripts(client),
                "limiter, full": on_limiter(tight),
            },
        )
        # A task that finds the lock taken sleeps for a tenth of a second by default, so rounds are long.
        full = await in_turns(
            1,
            {
                "as it is": on_locks(client, 1, sleep_seconds=0.1),
                "that looks every millisecond": on_locks(client, 1, sleep_seconds=0.001),
            },
        )
    rate = {name: statistics.median(each) for name, each in (rates | full).items()}
    print(f"\nlimiter on Redis, {TASKS} tasks enter and leave, median of {rounds} rounds")
    print(f"  {rate['limiter']:6.0f} pairs/s through a limiter that lets all in")
    for figure, name, bar in (("locks", "redis-py's locks, one a task", 3), ("scripts", "two trivial scripts", 0.6)):
        ratio = times_as_many(rates["limiter"], rates[figure])
        print(f"  {rate[figure]:6.0f} pairs/s of {name}: the limiter does {ratio:.2f} times as many (at least {bar})")
    print(f"  {rate['limiter, full']:6.0f} pairs/s through a limiter with one slot, all in their turn")
    for name in full:
        ratio = rate["limiter, full"] / rate[name]
        print(
            f"  {rate[name]:6.0f} pairs/s of one lock {name}, in no order: the limiter does {ratio:.1f} times as many"
        )


# --- hand-over ------------------------------------------------------------------------------------------------


async def hand_over_ms(url: str, times: int, waiter: Callable[[qo.Limiter], Awaitable[float]]) -> float:
    """The median from the release call to the first line in the waiter's block. `waiter` returns when that was."""
    waits = []
    async with await qo.connect(url, namespace="handover") as queue:
        limiter = qo.Limiter(groups={GROUP: 1}, queue=queue)
        for _ in range(times):
            async with limiter.acquire(groups=[GROUP]):
                entering = asyncio.ensure_future(waiter(limiter))
                while (await queue.limit(GROUP)).waiting == 0:  # noqa: ASYNC110 - perhaps in another process
                    await asyncio.sleep(0.001)
                await asyncio.sleep(SETTLE_SECONDS)
                released = time.monotonic()
            waits.append(await entering - released)
        await asyncio.to_thread(limiter.close)
    return statistics.median(waits) * 1000


async def same_process(url: str, times: int) -> float:
    async def wait(limiter: qo.Limiter) -> float:
        async with limiter.acquire(groups=[GROUP]):
            return time.monotonic()

    return await hand_over_ms(url, times, wait)


async def other_process(url: str, times: int) -> float:
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", WAITER, url, stdin=pipe, stdout=pipe)
    assert child.stdin is not None
    assert child.stdout is not None
    orders, answers = child.stdin, child.stdout

    async def wait(_: qo.Limiter) -> float:
        orders.write(b"wait\n")
        return float(await answers.readline())

    try:
        return await hand_over_ms(url, times, wait)
    finally:
        orders.close()
        await child.wait()


async def report_hand_over(url: str, times: int) -> None:
    print("from the release to the first line in the block of a waiter, at the median")
    print(f"  in the same process: {await same_process(url, times):.2f} ms (within 2)")
    print(f"  in another process:  {await other_process(url, times):.2f} ms (within 2)")


async def report(url: str, *, rounds: int = 15, hand_overs: int = 200) -> None:
    await report_pairs(url, rounds)
    await report_hand_over(url, hand_overs)
