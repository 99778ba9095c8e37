"""Where slots are scarce and kept for turns, an idle worker sleeps only while a claim would find nothing for it."""

from __future__ import annotations

from collections.abc import Coroutine
from contextlib import closing
from typing import Any, TypeVar

import pytest

from qo.store.redis.store import RedisStore
from qo.values import Bounds
from tests.conformance.machine.side_by_side import SideBySide
from tests.conformance.machine.test_contention import TASKS, Contention, numbers, turns_in
from tests.store.redis.redis_calls import KINDS
from tests.stores import STORES

SLEEPER = "w3"
"""One of those that register, so that it may have to become empty for a last suspect."""
FOR_EVER_MS = 10**10
CLAIMS_AT_MOST = 50
T = TypeVar("T")


class WithSleeper(Contention):
    """Before each step a worker is put down as idle, after it has claimed all that there was."""

    lifetimes_ms = (FOR_EVER_MS,)  # nothing tells a sleeper of a time at which a slot is no longer kept

    def __init__(self, both: SideBySide, number: int) -> None:
        super().__init__(both, number)
        self.tasks = self.some(TASKS, 1, 2, 3)
        assert isinstance(both.store, RedisStore)
        self.store = both.store

    def do(self, operation: str, *args: Any, **kwargs: Any) -> None:
        self.fall_asleep()
        super().do(operation, *args, **kwargs)
        if self.on_the_loop(self.is_idle()):
            found = self.both.model.search_whole_line(self.tasks, 1, self.both.model.taker(SLEEPER, None, self.now))
            assert found == [], f"nobody woke the sleeper for {found}\n{self.both.history()}"

    def fall_asleep(self) -> None:
        if (row := self.both.model.state.workers.get(SLEEPER)) is not None:
            super().do("renew", [], worker=SLEEPER, instance=row.instance)
        for _ in range(CLAIMS_AT_MOST):
            if not self.on_the_loop(self.wait_for_work()):
                return
            super().do(
                "claim",
                worker=SLEEPER,
                tasks=self.tasks,
                capacity=5,
                lease_ms=FOR_EVER_MS,
                claim_id=f"s{next(self.names)}",
            )
        raise AssertionError(f"There is always something to look at\n{self.both.history()}")

    async def wait_for_work(self) -> bool:
        wanted = {"worker": SLEEPER, "tasks": self.tasks, "idle_ms": FOR_EVER_MS, "offer": None}
        self.store.clock = lambda: self.now
        reply = await self.store._run("wait_for_work", wanted)  # noqa: SLF001 - the method itself would go on waiting
        return bool(reply.answer["claimable"])

    async def is_idle(self) -> bool:
        return bool(await self.store.client.command("HEXISTS", f"{self.store.client.prefix}idle_workers", SLEEPER))

    def on_the_loop(self, call: Coroutine[Any, Any, T]) -> T:
        return self.both.runner.get_loop().run_until_complete(call)


@pytest.mark.parametrize("kind", KINDS)
def test_a_worker_sleeps_only_while_it_would_find_nothing(kind: str) -> None:
    (real,) = [store for store in STORES if store.name == kind]
    turns = 0
    for number in numbers():
        with closing(SideBySide(real, Bounds())) as both:
            history = WithSleeper(both, number)
            history.run()
            turns += turns_in(history)
    assert turns > 0, "no job and no caller had a turn"
