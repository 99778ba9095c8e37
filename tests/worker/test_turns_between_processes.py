"""Jobs of one to four of twenty busy groups, on two worker processes of which one is killed now and then: all start."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from typing import Any

import pytest

import qo
from tests.worker.processes_on_a_store import (
    SETTINGS,
    check_nothing_is_held,
    events_of,
    queue_fixture,  # noqa: F401 - asked for by name
    url_fixture,  # noqa: F401 - asked for by name
)
from tests.worker.worker_process import Options, started, until

GROUPS = [f"g{number}" for number in range(20)]
IN_LINE = 60
"""How many jobs wait at least while new ones arrive."""
KILL_EVERY_SECONDS = 2.5
MOST_PASSES = 400
"""How many later jobs may take a slot of a job's groups before it starts. Several runs gave 28 to 109: while a
killed worker's leases last, jobs that wait for its slots have all the turns there are. Without turns, 10 seconds gave
219 to 289, and a longer run gives more. The behaviour suite shows exactly that a turn keeps its slots."""


async def test_every_job_of_busy_groups_starts(queue: qo.Queue, url: str) -> None:
    passes = await passes_of_jobs_on_two_processes(queue, url, seconds=10)

    print(f"at most {max(passes)} later jobs passed one, {len(passes)} jobs")  # noqa: T201 - with -rP
    assert max(passes) <= MOST_PASSES


@pytest.mark.nightly
@pytest.mark.timeout(600)
async def test_every_job_of_busy_groups_starts_for_a_minute(queue: qo.Queue, url: str) -> None:
    passes = await passes_of_jobs_on_two_processes(queue, url, seconds=60)

    print(f"at most {max(passes)} later jobs passed one, {len(passes)} jobs")  # noqa: T201 - with -rP
    assert max(passes) <= MOST_PASSES


async def passes_of_jobs_on_two_processes(
    queue: qo.Queue, url: str, *, seconds: float, turn_after: int = 8
) -> list[int]:
    """By job, how many that were submitted after it started before it in a group that both need."""
    for group in GROUPS:
        await queue.set_limit(group, 1)
    settings: dict[str, Any] = {**SETTINGS, "queue": {"turn_after": turn_after}}
    options = Options(url=url, settings=settings, names=("stays",), concurrency=20)
    arriving = Arriving(queue, random.Random(1))
    async with started(options):
        killing = asyncio.create_task(kill_now_and_then(Options(url=url, settings=settings, names=("dies",))))
        try:
            await arriving.for_seconds(seconds)
        finally:
            killing.cancel()
            await asyncio.gather(killing, return_exceptions=True)

        async def all_have_ended() -> bool:
            return await number_ended(queue) == len(arriving.groups_of)

        await until(all_have_ended)
        await check_nothing_is_held(queue)
    started_in_order = [event.subject for event in await events_of(queue, [qo.State.STARTING])]
    return list(passes(arriving.groups_of, started_in_order).values())


class Arriving:
    """New jobs as long as few wait. Jobs of more groups are urgent, and so stand before those that keep them busy."""

    def __init__(self, queue: qo.Queue, rng: random.Random) -> None:
        self._queue, self._rng = queue, rng
        self.groups_of: dict[str, list[str]] = {}
        """In the order of submission."""

    async def for_seconds(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + seconds
        while loop.time() < ends_at:
            waiting = (await self._queue.store.line(limit=0)).queued
            if waiting < IN_LINE:
                await self._queue.submit_many([self._new() for _ in range(IN_LINE)])
            await asyncio.sleep(0.02)

    def _new(self) -> qo.New:
        job_id = f"job-{len(self.groups_of)}"
        self.groups_of[job_id] = self._rng.sample(GROUPS, self._rng.choice([1, 1, 1, 2, 2, 3, 4]))
        data = {"seconds": self._rng.uniform(0.005, 0.03)}
        return qo.New("short", data, id=job_id, groups=tuple(self.groups_of[job_id]), max_attempts=50)


async def kill_now_and_then(options: Options) -> None:
    while True:
        async with started(options):
            await asyncio.sleep(KILL_EVERY_SECONDS)


async def number_ended(queue: qo.Queue) -> int:
    return sum(point.count for point in await queue.store.series(prefix="ended:succeeded"))


def passes(groups_of: dict[str, list[str]], started_in_order: list[str]) -> Counter[str]:
    submitted = {job_id: number for number, job_id in enumerate(groups_of)}
    first_starts = list(dict.fromkeys(started_in_order))
    assert set(first_starts) == set(groups_of)
    started_at = {job_id: number for number, job_id in enumerate(first_starts)}
    members: dict[str, list[str]] = defaultdict(list)
    for job_id, groups in groups_of.items():
        for group in groups:
            members[group].append(job_id)
    counted: Counter[str] = Counter(dict.fromkeys(groups_of, 0))
    for job_id, groups in groups_of.items():
        rivals = {rival for group in groups for rival in members[group]}
        counted[job_id] = sum(
            submitted[rival] > submitted[job_id] and started_at[rival] < started_at[job_id] for rival in rivals
        )
    return counted
