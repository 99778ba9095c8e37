"""Jobs that kill their process fail alone: the others that ran beside them succeed."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

import qo
from tests.worker.processes_on_a_store import url_fixture  # noqa: F401 - asked for by name
from tests.worker.worker_process import Options, started, until

SETTINGS: dict[str, Any] = {"concurrency": {"default_lease_duration_secs": 1}}
CAPACITY = 100
ATTEMPTS = 3
INNOCENT_SECONDS = 0.05
EXTRA_CRASHES = 4
LONGEST_RUN_SECONDS = 160


@pytest.fixture
async def queue(url: str) -> AsyncIterator[qo.Queue]:
    async with await qo.connect(url, settings=SETTINGS) as opened:
        yield opened


def options_for(url: str) -> Options:
    return Options(url=url, settings=SETTINGS, concurrency=CAPACITY)


async def all_have_ended(queue: qo.Queue, jobs: int) -> bool:
    ended = await queue.store.series(prefix="ended:")
    return sum(point.count for point in ended if not point.name.endswith("scheduled")) >= jobs


async def run_until_all_have_ended(queue: qo.Queue, url: str, jobs: int) -> int:
    """One worker process after another, each until it is killed by a job. Returns how many were."""
    crashes = 0
    while True:
        async with started(options_for(url)) as process:

            async def is_over(process: Any = process) -> bool:
                return not process.is_running or await all_have_ended(queue, jobs)

            await until(is_over)
            if process.is_running:
                return crashes
        crashes += 1


@pytest.mark.parametrize(
    ("poisonous", "innocent"),
    [
        (1, 9),
        pytest.param(1, 99, marks=pytest.mark.nightly),
        pytest.param(5, 95, marks=pytest.mark.nightly),
        pytest.param(5, 495, marks=pytest.mark.nightly),
    ],
)
async def test_exactly_the_jobs_that_kill_their_process_fail(
    queue: qo.Queue, url: str, poisonous: int, innocent: int
) -> None:
    deadly = {f"deadly-{number}" for number in range(poisonous)}
    jobs = [qo.New("deadly", {}, id=job_id, max_attempts=ATTEMPTS) for job_id in sorted(deadly)]
    jobs += [qo.New("short", {"seconds": INNOCENT_SECONDS}, max_attempts=ATTEMPTS) for _ in range(innocent)]
    random.Random(poisonous + innocent).shuffle(jobs)
    await queue.submit_many(jobs)

    async with asyncio.timeout(LONGEST_RUN_SECONDS):
        crashes = await run_until_all_have_ended(queue, url, len(jobs))

    failed = {job.id for job in await queue.jobs(status="failed", limit=len(jobs))}
    print(f"{crashes} crashes")  # noqa: T201 - with -rP
    assert failed == deadly
    assert len(await queue.jobs(status="succeeded", limit=len(jobs))) == innocent
    assert crashes <= ATTEMPTS * poisonous + EXTRA_CRASHES


@pytest.mark.parametrize("jobs", [20, pytest.param(100, marks=pytest.mark.nightly)])
async def test_the_jobs_of_a_worker_that_was_killed_by_hand_are_done_soon(queue: qo.Queue, url: str, jobs: int) -> None:
    await queue.submit_many([qo.New("short", {"seconds": 1}) for _ in range(jobs)])
    async with started(options_for(url)):
        await until(lambda: runs(queue, jobs))

    began = time.monotonic()
    async with started(options_for(url)):
        await until(lambda: all_have_ended(queue, jobs))
    seconds = time.monotonic() - began

    print(f"{seconds:.1f} s")  # noqa: T201 - with -rP
    assert seconds < 30
    assert len(await queue.jobs(status="succeeded", limit=jobs)) == jobs


async def runs(queue: qo.Queue, jobs: int) -> bool:
    return len(await queue.store.leases()) == jobs
