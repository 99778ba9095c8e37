"""What a limiter costs in process, beside two nested semaphores of the standard library.

Both take turns in short rounds of one run, and the best round of each counts.

Uncontended: one acquire and release over two levels, a provider and the total. In threads the semaphores keep the
same metrics by hand, in tasks they keep none. Contended: 100 wait for 4 slots that are held; how long it takes, for
each, until all have been in and out once those are given back. Every one waits only once, because under constant load
a `threading.Semaphore` lets in again who has just left, and hands over nothing.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack

import qo

Way = Callable[[], Awaitable[float]]

PROVIDER, LIMIT, TOTAL = "ollama", 4, 12
WAITERS = 100
PAIRS = 2000
AT_MOST_TIMES = 1.5


class SemaphoresByHand:
    """Two nested semaphores for threads, with what `Limiter.get_metrics` tells."""

    def __init__(self) -> None:
        self._semaphores = {PROVIDER: threading.Semaphore(LIMIT), "total": threading.Semaphore(TOTAL)}
        self._lock = threading.Lock()
        self._in_flight = dict.fromkeys(self._semaphores, 0)
        self._blocked_by = dict.fromkeys(self._semaphores, 0)
        self.waiting = dict.fromkeys(self._semaphores, 0)
        self._blocked_seconds = 0.0

    def __enter__(self) -> None:
        self._take(PROVIDER)
        try:
            self._take("total")
        except BaseException:
            self._give_back(PROVIDER)
            raise

    def __exit__(self, *_: object) -> None:
        self._give_back("total")
        self._give_back(PROVIDER)

    def _take(self, name: str) -> None:
        semaphore = self._semaphores[name]
        if not semaphore.acquire(blocking=False):
            began = time.monotonic()
            with self._lock:
                self.waiting[name] += 1
                self._blocked_by[name] += 1
            semaphore.acquire()
            with self._lock:
                self.waiting[name] -= 1
                self._blocked_seconds += time.monotonic() - began
        with self._lock:
            self._in_flight[name] += 1

    def _give_back(self, name: str) -> None:
        with self._lock:
            self._in_flight[name] -= 1
        self._semaphores[name].release()


async def report(*, rounds: int = 60) -> None:
    print(f"limiter in process, {PROVIDER} {LIMIT} and a total of {TOTAL}: an acquire and release, uncontended")
    _tell("threads", await best_of_turns(rounds, threads_on_limiter(), threads_by_hand()), bar=AT_MOST_TIMES)
    _tell("tasks", await best_of_turns(rounds, tasks_on_limiter(), tasks_by_semaphores()), bar=AT_MOST_TIMES)
    print(f"the same with {WAITERS} waiting: a hand-over")
    _tell("threads", await best_of_turns(rounds, drain_threads_of_limiter, drain_threads_by_hand), bar=1)
    _tell("tasks", await best_of_turns(rounds, drain_tasks_of_limiter, drain_tasks_of_semaphores), bar=1)


async def best_of_turns(rounds: int, *ways: Way) -> list[float]:
    """The fewest seconds that each way took for one."""
    best = [float("inf")] * len(ways)
    for _ in range(rounds):
        best = [min(before, await way()) for before, way in zip(best, ways, strict=True)]
    return best


def threads_on_limiter() -> Way:
    limiter = _limiter()

    async def pairs() -> float:
        began = time.perf_counter()
        for _ in range(PAIRS):
            with limiter.acquire(PROVIDER):
                pass
        return (time.perf_counter() - began) / PAIRS

    return pairs


def threads_by_hand() -> Way:
    by_hand = SemaphoresByHand()

    async def pairs() -> float:
        began = time.perf_counter()
        for _ in range(PAIRS):
            with by_hand:
                pass
        return (time.perf_counter() - began) / PAIRS

    return pairs


def tasks_on_limiter() -> Way:
    limiter = _limiter()

    async def pairs() -> float:
        began = time.perf_counter()
        for _ in range(PAIRS):
            async with limiter.acquire(PROVIDER):
                pass
        return (time.perf_counter() - began) / PAIRS

    return pairs


def tasks_by_semaphores() -> Way:
    provider, total = asyncio.Semaphore(LIMIT), asyncio.Semaphore(TOTAL)

    async def pairs() -> float:
        began = time.perf_counter()
        for _ in range(PAIRS):
            async with provider, total:
                pass
        return (time.perf_counter() - began) / PAIRS

    return pairs


async def drain_threads_of_limiter() -> float:
    limiter = _limiter()
    return drain_threads(lambda: limiter.acquire(PROVIDER), lambda: limiter.get_metrics()["waiting"][PROVIDER])


async def drain_threads_by_hand() -> float:
    by_hand = SemaphoresByHand()
    return drain_threads(lambda: by_hand, lambda: by_hand.waiting[PROVIDER])


async def drain_tasks_of_limiter() -> float:
    limiter = _limiter()

    async def enter() -> None:
        async with limiter.acquire(PROVIDER):
            pass

    async with AsyncExitStack() as held:
        for _ in range(LIMIT):
            await held.enter_async_context(limiter.acquire(PROVIDER))
        return await drain_tasks(enter, held)


async def drain_tasks_of_semaphores() -> float:
    provider, total = asyncio.Semaphore(LIMIT), asyncio.Semaphore(TOTAL)

    async def enter() -> None:
        async with provider, total:
            pass

    async with AsyncExitStack() as held:
        for _ in range(LIMIT):
            await held.enter_async_context(total)
            await held.enter_async_context(provider)
        return await drain_tasks(enter, held)


def drain_threads(block: Callable[[], AbstractContextManager[object]], waiting: Callable[[], int]) -> float:
    """Seconds a hand-over. `block` makes something to enter, `waiting` counts those who wait for it."""

    def enter() -> None:
        with block():
            pass

    threads = [threading.Thread(target=enter) for _ in range(WAITERS)]
    with ExitStack() as held:
        for _ in range(LIMIT):
            held.enter_context(block())
        for thread in threads:
            thread.start()
        while waiting() < WAITERS:
            time.sleep(0.001)
        time.sleep(0.005)  # they are counted a moment before they wait
        began = time.perf_counter()
    for thread in threads:
        thread.join()
    return (time.perf_counter() - began) / WAITERS


async def drain_tasks(enter: Callable[[], Coroutine[None, None, None]], held: AsyncExitStack) -> float:
    """Seconds a hand-over. `held` holds all slots."""
    tasks = [asyncio.create_task(enter()) for _ in range(WAITERS)]
    await asyncio.sleep(0)
    began = time.perf_counter()
    await held.aclose()
    for task in tasks:
        await task
    return (time.perf_counter() - began) / WAITERS


def _limiter() -> qo.Limiter:
    return qo.Limiter({PROVIDER: LIMIT}, total=TOTAL)


def _tell(who: str, seconds: list[float], *, bar: float) -> None:
    limiter, semaphores = seconds
    print(
        f"  {who}: {limiter * 1e6:.2f} µs, two semaphores {semaphores * 1e6:.2f} µs: "
        f"{limiter / semaphores:.2f} times as long (at most {bar})"
    )
