"""How soon an idle worker starts a job after the event that lets it start, with all polls set to an hour.

Without a notification a start would take an hour here, so each figure is that of a wake-up. The events come
through connections of their own, as from another process; in memory there is only one.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import qo
from bench.runtime_speed import sqlite_file
from qo.ids import new_id
from qo.job import State
from qo.store.redis import store as redis_store
from qo.values import Lease, Outcome
from qo.worker import exchange, upkeep
from tests.servers.redis import Server  # the tests know how to start one

HOUR_SECONDS = 3600.0
DUE_SECONDS = 0.33
SETTLE_SECONDS = 0.03
"""How long to wait until the worker is idle again."""
SETTINGS = {"concurrency": {"default_lease_duration_secs": HOUR_SECONDS}}

Event = Callable[[], Awaitable[object]]


class Bench:
    """One idle worker, and the events that let it start a job. An event is arranged, then timed."""

    def __init__(self, queue: qo.Queue, other: qo.Queue) -> None:
        self._other = other
        self._started: asyncio.Queue[tuple[str, float]] = asyncio.Queue()
        self.worker = qo.Worker(queue, "bench")

        @self.worker.task("work")
        async def work(data: Any, ctx: qo.Context) -> None:
            self._started.put_nowait((ctx.job.id, time.perf_counter()))

    async def seconds(self, arrange: Callable[[], Awaitable[Event]], *, less: float = 0.0) -> float:
        """From the call that makes the event, or from `less` later, to the first line of the handler."""
        event = await arrange()
        await asyncio.sleep(SETTLE_SECONDS)
        began = time.perf_counter()
        await event()
        async with asyncio.timeout(30):
            _, started = await self._started.get()
        return started - began - less

    async def submitted(self) -> Event:
        return lambda: self._other.submit("work")

    async def due(self) -> Event:
        return lambda: self._other.submit("work", delay=DUE_SECONDS)

    async def group_freed(self) -> Event:
        _, lease = await self._in_a_full_group()
        return lambda: self._finish(lease, State.SUCCEEDED)

    async def limit_raised(self) -> Event:
        group, _ = await self._in_a_full_group()
        return lambda: self._other.set_limit(group, 2)

    async def resumed(self) -> Event:
        await self._other.pause("work")
        await self._other.submit("work")
        return lambda: self._other.resume("work")

    async def phase_released(self) -> Event:
        parent = new_id()
        await self._other.submit("elsewhere", parent=parent, phase=1)
        await self._other.submit("work", parent=parent, phase=2)
        lease = await self._claim()
        return lambda: self._finish(lease, State.SUCCEEDED)

    async def lease_over(self) -> Event:
        """The lease of a dead worker ends, and its slot goes to the job that waits."""
        group = await self._new_group()
        await self._other.submit("elsewhere", groups=[group], max_attempts=1)

        async def event() -> None:
            await self._claim(lease_ms=round(DUE_SECONDS * 1000))
            await self._other.submit("work", groups=[group])

        return event

    async def _in_a_full_group(self) -> tuple[str, Lease]:
        """A job waits in the group for a slot that another holder has."""
        group = await self._new_group()
        await self._other.submit("elsewhere", groups=[group])
        lease = await self._claim()
        await self._other.submit("work", groups=[group])
        return group, lease

    async def _new_group(self) -> str:
        """Another group each time, because the last job may not have given its slot back yet."""
        group = f"group-{new_id()}"
        await self._other.set_limit(group, 1)
        return group

    async def _claim(self, *, lease_ms: int = 600_000) -> Lease:
        claimed = await self._other.store.claim(
            worker="elsewhere", tasks=["elsewhere"], capacity=1, lease_ms=lease_ms, claim_id=new_id()
        )
        return claimed.leases[0]

    async def _finish(self, lease: Lease, state: State) -> None:
        await self._other.store.finish([Outcome(job_id=lease.job_id, token=lease.token, state=state)])


@asynccontextmanager
async def polling_hourly() -> AsyncIterator[None]:
    slow = [
        (exchange, "WAIT_SECONDS"),
        (upkeep, "CATCH_UP_EVERY_SECONDS"),
        (upkeep, "EVERY_SECONDS"),
        (redis_store, "NET_SECONDS"),
    ]
    before = [getattr(module, name) for module, name in slow]
    for module, name in slow:
        setattr(module, name, HOUR_SECONDS)
    try:
        yield
    finally:
        for (module, name), value in zip(slow, before, strict=True):
            setattr(module, name, value)


async def report_on(kind: str, url: str, rounds: int) -> None:
    async with await qo.connect(url, settings=SETTINGS) as queue, await qo.connect(url, settings=SETTINGS) as connected:
        bench = Bench(queue, queue if kind == "memory" else connected)
        run = asyncio.create_task(bench.worker.run())
        figures = []
        for arrange, less in (
            (bench.submitted, 0.0),
            (bench.group_freed, 0.0),
            (bench.limit_raised, 0.0),
            (bench.resumed, 0.0),
            (bench.phase_released, 0.0),
            (bench.due, DUE_SECONDS),
            (bench.lease_over, DUE_SECONDS),
        ):
            waits = [1000 * await bench.seconds(arrange, less=less) for _ in range(rounds)]
            name = arrange.__name__.replace("_", " ")
            figures.append(f"{name} {statistics.median(waits):.1f} (worst {max(waits):.1f})")
        bench.worker.stop()
        await run
    print(f"  {kind:<7} {', '.join(figures)}")


async def report(rounds: int = 30) -> None:
    print(f"\nan idle worker starts a job after the event that lets it, polls set to an hour: median ms of {rounds}")
    async with polling_hourly():
        await report_on("memory", "memory://", rounds)
        with sqlite_file() as url:
            await report_on("SQLite", url, rounds)
        for kind in ("valkey", "redis"):
            with Server(kind) as server:
                await report_on(kind.capitalize(), server.url, rounds)


if __name__ == "__main__":
    asyncio.run(report())
