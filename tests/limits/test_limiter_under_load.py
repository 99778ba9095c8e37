"""64 threads and 64 tasks of two event loops on three groups, with whatever may go wrong for a caller."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import TypedDict

import pytest

import qo
from tests.limits.limiter_history import RecordedSlots, check_history

LIMITS = {"a": 3, "b": 5, "c": 2}
SETS = [["a"], ["b"], ["c"], ["a", "b"], ["b", "c"], ["c", "a"], ["a", "b", "c"]]
THREADS = 64
TASKS_PER_LOOP = 32


class Wish(TypedDict):
    groups: list[str]
    timeout: float | None


class Spoiled(Exception):
    """What some blocks end with."""


class Witness:
    """Who is inside, as seen by those inside."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside: set[tuple[str, int]] = set()
        self._counts: Counter[str] = Counter()
        self.entries = 0
        self.most: Counter[str] = Counter()
        self.wrong: list[str] = []

    def enter(self, slots: Mapping[str, int]) -> None:
        with self._lock:
            self.entries += 1
            for group, number in slots.items():
                self._counts[group] += 1
                self.most[group] = max(self.most[group], self._counts[group])
                if self._counts[group] > LIMITS[group] or number >= LIMITS[group] or (group, number) in self._inside:
                    self.wrong.append(f"slot {number} of {group}, {self._counts[group]} inside")
                self._inside.add((group, number))

    def leave(self, slots: Mapping[str, int]) -> None:
        with self._lock:
            self._counts.subtract(slots.keys())
            self._inside.difference_update(slots.items())


class Load:
    def __init__(self, seconds: float) -> None:
        self.limiter = qo.Limiter(groups=LIMITS)
        self.witness = Witness()
        self.ends_at = time.monotonic() + seconds
        self.cancelled = 0

    def run_thread(self, seed: int) -> None:
        chance = random.Random(seed)
        while time.monotonic() < self.ends_at:
            with suppress(qo.Timeout, Spoiled), self.limiter.acquire(**self._wish(chance)) as lease:
                self.witness.enter(lease.slots)
                try:
                    if chance.random() < 0.3:
                        time.sleep(chance.random() / 1000)
                    if chance.random() < 0.1:
                        raise Spoiled
                finally:
                    self.witness.leave(lease.slots)

    async def run_tasks(self, seed: int) -> None:
        await asyncio.gather(*(self._cancel_now_and_then(seed + number) for number in range(TASKS_PER_LOOP)))

    async def _cancel_now_and_then(self, seed: int) -> None:
        chance = random.Random(seed)
        while time.monotonic() < self.ends_at:
            task = asyncio.create_task(self._run_task(chance))
            for _ in range(chance.randrange(20)):
                await asyncio.sleep(0)
            if chance.random() < 0.5:
                await asyncio.sleep(chance.random() / 500)
                self.cancelled += task.cancel()
            with suppress(asyncio.CancelledError, qo.Timeout, Spoiled):
                await task

    async def _run_task(self, chance: random.Random) -> None:
        for _ in range(chance.randrange(1, 10)):
            async with self.limiter.acquire(**self._wish(chance)) as lease:
                self.witness.enter(lease.slots)
                try:
                    await asyncio.sleep(chance.choice([0, 0, chance.random() / 1000]))
                    if chance.random() < 0.1:
                        raise Spoiled
                finally:
                    self.witness.leave(lease.slots)

    def _wish(self, chance: random.Random) -> Wish:
        return {"groups": chance.choice(SETS), "timeout": chance.choice([None, None, 1, 0.002, 0.0005, 0])}


@pytest.mark.parametrize("turn_after", [8, 1])
@pytest.mark.parametrize("seconds", [3, pytest.param(10, marks=pytest.mark.nightly)])
def test_64_threads_and_64_tasks_never_exceed_a_limit_nor_pass_one_who_could_go(
    seconds: int, turn_after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    slots = RecordedSlots(turn_after=turn_after)
    monkeypatch.setattr("qo.limits.limiter.SlotsInProcess", lambda: slots)
    load = Load(seconds)
    threads = [threading.Thread(target=load.run_thread, args=(seed,), daemon=True) for seed in range(THREADS)]
    for seed in (1000, 2000):
        threads.append(threading.Thread(target=lambda seed=seed: asyncio.run(load.run_tasks(seed)), daemon=True))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds + 30)

    assert not any(thread.is_alive() for thread in threads), "somebody waits for ever"
    assert load.witness.wrong == []
    assert load.witness.most == LIMITS, "no limit was reached, so none was tested"
    events = check_history(slots.history, LIMITS)
    figures = slots.figures()
    assert [(each.in_flight, each.waiting) for each in figures.groups] == [(0, 0)] * 3
    assert events["entered"] == events["left"] >= load.witness.entries > 1000
    assert events["waits"] == figures.waits_ended == sum(each.blocked for each in figures.groups) > 1000
    assert events["gave up"] > 100
    assert turn_after > 1 or events["turns"] > 100
    assert load.cancelled > 100
