"""What a limiter costs in process, beside two nested semaphores of the standard library.

Both take turns in short rounds of one run. Times are those of each one's best round, ratios the median over the rounds
and the middle half of them. What runs in one thread is timed by what that thread had of a processor, so that others on
the machine count less. The semaphores are as a program would use them: nested, provider first, and with what
`Limiter.get_metrics` tells kept by hand, but for how long the longest wait is that still goes on; for tasks also bare.

Uncontended: one acquire and release over two levels, a provider and the total. Contended: as many as there are slots
are inside and 100 wait. Threads wait only once: how long, for each, until all have been in and out, because under
constant load a `threading.Semaphore` lets the same thread in again, and hands over nothing. Tasks come back for more,
so often that making them, which is the same for all, and the end, when fewer wait, count little.
"""

from __future__ import annotations

import asyncio
import statistics
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack

import qo

Way = Callable[[], Awaitable[float]]
Block = Callable[[str], AbstractAsyncContextManager[object]]

PROVIDER, LIMIT, TOTAL = "ollama", 4, 12
LIMITS = {PROVIDER: LIMIT, "gemini": 8, "openai": 10, "deepseek": 8}
WAITERS = 100
PAIRS = 2000
ENTRIES_EACH = 10
AT_MOST_TIMES = 1.5


class SemaphoresByHand:
    """Two nested semaphores for threads, with the numbers of `Limiter.get_metrics`."""

    def __init__(self) -> None:
        self._semaphores = {PROVIDER: threading.Semaphore(LIMIT), "total": threading.Semaphore(TOTAL)}
        self._lock = threading.Lock()
        self._in_flight = dict.fromkeys(self._semaphores, 0)
        self._blocked_by = dict.fromkeys(self._semaphores, 0)
        self.waiting = dict.fromkeys(self._semaphores, 0)
        self._waits_ended = 0
        self._blocked_seconds = self._longest_seconds = 0.0

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
            try:
                semaphore.acquire()
            finally:
                with self._lock:
                    waited = time.monotonic() - began
                    self.waiting[name] -= 1
                    self._waits_ended += 1
                    self._blocked_seconds += waited
                    if waited > self._longest_seconds:
                        self._longest_seconds = waited
        with self._lock:
            self._in_flight[name] += 1

    def _give_back(self, name: str) -> None:
        with self._lock:
            self._in_flight[name] -= 1
        self._semaphores[name].release()


class TasksByHand:
    """The same for tasks of one event loop."""

    def __init__(self) -> None:
        limits = {**LIMITS, "total": TOTAL}
        self.semaphores = {name: asyncio.Semaphore(limit) for name, limit in limits.items()}
        self._in_flight = dict.fromkeys(limits, 0)
        self._blocked_by = dict.fromkeys(limits, 0)
        self._waiting = dict.fromkeys(limits, 0)
        self._waits_ended = 0
        self._blocked_seconds = self._longest_seconds = 0.0

    async def take(self, name: str) -> None:
        semaphore = self.semaphores[name]
        if semaphore.locked():
            began = time.monotonic()
            self._waiting[name] += 1
            self._blocked_by[name] += 1
            try:
                await semaphore.acquire()
            finally:
                waited = time.monotonic() - began
                self._waiting[name] -= 1
                self._waits_ended += 1
                self._blocked_seconds += waited
                if waited > self._longest_seconds:
                    self._longest_seconds = waited
        else:
            await semaphore.acquire()
        self._in_flight[name] += 1

    def give_back(self, name: str) -> None:
        self._in_flight[name] -= 1
        self.semaphores[name].release()


class BlockByHand:
    __slots__ = ("_by_hand", "_provider")

    def __init__(self, by_hand: TasksByHand, provider: str) -> None:
        self._by_hand = by_hand
        self._provider = provider

    async def __aenter__(self) -> None:
        await self._by_hand.take(self._provider)
        try:
            await self._by_hand.take("total")
        except BaseException:
            self._by_hand.give_back(self._provider)
            raise

    async def __aexit__(self, *_: object) -> None:
        self._by_hand.give_back("total")
        self._by_hand.give_back(self._provider)


async def report(*, rounds: int = 60) -> None:
    print(f"limiter in process, a provider of {LIMIT} and a total of {TOTAL}: an acquire and release, uncontended")
    limiter, by_hand = _limiter(), SemaphoresByHand()
    in_threads = [pairs_in_a_thread(lambda: limiter.acquire(PROVIDER)), pairs_in_a_thread(lambda: by_hand)]
    _print("threads", await take_turns(rounds, *in_threads), bar=AT_MOST_TIMES)
    _print("tasks", await take_turns(rounds, *(way() for way in PAIRS_IN_A_TASK)), bar=AT_MOST_TIMES)
    print(f"the same with {WAITERS} waiting: from one to the next")
    _print("threads", await take_turns(rounds, drain_threads_of_limiter, drain_threads_by_hand), bar=1)
    for what, providers in (("tasks, one provider full", [PROVIDER]), ("tasks, four providers, total full", [*LIMITS])):
        ways = [contended_tasks(block, providers) for block in (_limited_block, _block_by_hand)]
        bare = contended_bare_tasks(providers)
        _print(what, await take_turns(rounds, *ways, bare), bar=1)


async def take_turns(rounds: int, *ways: Way) -> list[list[float]]:
    """For each way, the seconds for one in each round. Every other round goes backwards, so none is always first."""
    seconds: list[list[float]] = [[] for _ in ways]
    in_order = list(enumerate(ways))
    for number in range(rounds):
        for which, way in in_order if number % 2 else reversed(in_order):
            seconds[which].append(await way())
    return seconds


def pairs_in_a_thread(block: Callable[[], AbstractContextManager[object]]) -> Way:
    async def pairs() -> float:
        began = time.thread_time()
        for _ in range(PAIRS):
            with block():
                pass
        return (time.thread_time() - began) / PAIRS

    return pairs


def pairs_on_limiter() -> Way:
    limiter = _limiter()

    async def pairs() -> float:
        began = time.thread_time()
        for _ in range(PAIRS):
            async with limiter.acquire(PROVIDER):
                pass
        return (time.thread_time() - began) / PAIRS

    return pairs


def pairs_by_hand() -> Way:
    by_hand = TasksByHand()

    async def pairs() -> float:
        began = time.thread_time()
        for _ in range(PAIRS):
            async with BlockByHand(by_hand, PROVIDER):
                pass
        return (time.thread_time() - began) / PAIRS

    return pairs


def pairs_of_bare_semaphores() -> Way:
    provider, total = asyncio.Semaphore(LIMIT), asyncio.Semaphore(TOTAL)

    async def pairs() -> float:
        began = time.thread_time()
        for _ in range(PAIRS):
            async with provider, total:
                pass
        return (time.thread_time() - began) / PAIRS

    return pairs


PAIRS_IN_A_TASK = (pairs_on_limiter, pairs_by_hand, pairs_of_bare_semaphores)


async def drain_threads_of_limiter() -> float:
    limiter = _limiter()
    return drain_threads(lambda: limiter.acquire(PROVIDER), lambda: limiter.get_metrics()["waiting"][PROVIDER])


async def drain_threads_by_hand() -> float:
    by_hand = SemaphoresByHand()
    return drain_threads(lambda: by_hand, lambda: by_hand.waiting[PROVIDER])


def drain_threads(block: Callable[[], AbstractContextManager[object]], waiting: Callable[[], int]) -> float:
    """Seconds a hand-over. `block` makes a block to enter, `waiting` counts the callers that wait for it."""

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
        time.sleep(0.005)  # a caller is counted a moment before it waits
        began = time.perf_counter()
    for thread in threads:
        thread.join()
    return (time.perf_counter() - began) / WAITERS


def contended_tasks(new: Callable[[], Block], providers: list[str]) -> Way:
    async def entries() -> float:
        block = new()

        async def enter_often(provider: str) -> None:
            for _ in range(ENTRIES_EACH):
                async with block(provider):
                    await asyncio.sleep(0)

        return await _seconds_an_entry(enter_often, providers)

    return entries


def contended_bare_tasks(providers: list[str]) -> Way:
    async def entries() -> float:
        semaphores, total = TasksByHand().semaphores, asyncio.Semaphore(TOTAL)

        async def enter_often(provider: str) -> None:
            semaphore = semaphores[provider]
            for _ in range(ENTRIES_EACH):
                async with semaphore, total:
                    await asyncio.sleep(0)

        return await _seconds_an_entry(enter_often, providers)

    return entries


async def _seconds_an_entry(enter_often: Callable[[str], Awaitable[None]], providers: list[str]) -> float:
    tasks = WAITERS + (LIMIT if providers == [PROVIDER] else TOTAL)
    began = time.thread_time()
    await asyncio.gather(*(enter_often(providers[number % len(providers)]) for number in range(tasks)))
    return (time.thread_time() - began) / tasks / ENTRIES_EACH


def _limiter() -> qo.Limiter:
    return qo.Limiter(LIMITS, total=TOTAL)


def _limited_block() -> Block:
    return _limiter().acquire


def _block_by_hand() -> Block:
    by_hand = TasksByHand()
    return lambda provider: BlockByHand(by_hand, provider)


def _print(name: str, seconds: list[list[float]], *, bar: float) -> None:
    limiter, by_hand, *bare = seconds
    line = f"  {name}: {min(limiter) * 1e6:.2f} µs, semaphores with metrics {min(by_hand) * 1e6:.2f} µs, "
    line += f"{_ratio(limiter, by_hand)}, at most {bar}"
    if bare:
        line += f"; without metrics {min(bare[0]) * 1e6:.2f} µs, {_ratio(limiter, bare[0])}"
    print(line)


def _ratio(limiter: list[float], other: list[float]) -> str:
    low, middle, high = statistics.quantiles((ours / theirs for ours, theirs in zip(limiter, other, strict=True)), n=4)
    return f"ratio {middle:.2f} ({low:.2f} to {high:.2f})"
