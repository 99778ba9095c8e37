"""A slot that was handed over is a lease of ten seconds until its first renewal: with default settings it is kept."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import qo
from qo.limits.on_store import thread as limiter_thread
from qo.queue.queue import Queue
from qo.settings import load_settings
from qo.store.contract import HANDED_OVER_LEASE_MS
from tests.limits.limiters_on_a_queue import enter_and_leave, waiting
from tests.worker.clocked import ClockedStore
from tests.worker.running import soon, until

NOW = 1_900_000_000_000
SECOND_MS = 1000
SOON_SECONDS = 20


class QuickPause:
    """For the limiter's thread: its pauses pass on the store's clock, second by second, once they may."""

    def __init__(self, a_second_passes: Callable[[float], Awaitable[None]]) -> None:
        self.may_pass = threading.Event()
        self._a_second_passes = a_second_passes

    async def __call__(self, seconds: float) -> None:
        await asyncio.to_thread(self.may_pass.wait, SOON_SECONDS)
        while seconds > 0:
            await self._a_second_passes(min(seconds, 1.0))
            seconds -= 1.0


@pytest.mark.parametrize("settings", [{}, {"limiter": {"waiter_alive_secs": 120}}], ids=["default", "patient"])
async def test_a_handed_over_slot_is_kept_for_as_long_as_its_block_runs(
    queue: qo.Queue, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    clock = ClockedStore(queue.store, now=NOW)

    async def pass_on_the_stores_clock(seconds: float) -> None:
        clock.now += round(seconds * SECOND_MS)
        await clock.catch_up()  # as every worker does each second: what has run out is taken away

    pause = QuickPause(pass_on_the_stores_clock)
    monkeypatch.setattr(limiter_thread, "pause", pause)
    clocked = Queue(clock, load_settings(settings, environ={}))
    limiter = qo.Limiter({"ollama": 1}, queue=clocked)
    entered, leave = asyncio.Event(), asyncio.Event()

    async def hold() -> bool:
        async with limiter.acquire("ollama") as lease:
            entered.set()
            await leave.wait()
            return lease.lost

    async def three_such_leases_are_over() -> bool:
        return clock.now > NOW + 3 * HANDED_OVER_LEASE_MS

    try:
        async with limiter.acquire("ollama"):
            holding = asyncio.create_task(hold())
            await waiting(clocked, "provider:ollama", 1)
        await soon(entered.wait())
        (handed_over,) = (await clocked.limit("provider:ollama")).slots
        assert handed_over.expires_at.timestamp() * 1000 == NOW + HANDED_OVER_LEASE_MS
        pause.may_pass.set()
        await until(three_such_leases_are_over)
        (held,) = (await clocked.limit("provider:ollama")).slots
        leave.set()

        assert (held.token, await soon(holding)) == (handed_over.token, False)
        assert await enter_and_leave(limiter, "ollama") == {"provider:ollama": 0}
    finally:
        pause.may_pass.set()
        await asyncio.to_thread(limiter.close)
