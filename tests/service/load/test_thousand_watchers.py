"""A thousand watchers, each of a job of its own, while 200 jobs a second go through their stages."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import qo
from tests.by_hand import JobByHand, start
from tests.processes import Process, command_of
from tests.service.load.server_process import ServerProcess
from tests.service.load.watching import Watcher, check_each_saw_everything_once, events_by_job
from tests.worker.processes_on_a_store import (
    queue_fixture,  # noqa: F401 - asked for by name
    url_fixture,  # noqa: F401 - asked for by name
)

STAGES = ("fetch", "build", "test", "ship")
JOBS_A_SECOND = 200
WATCHERS = 1000
OPENED_AT_ONCE = 50
SLOWEST_SECONDS = 0.5
MOST_BYTES = 150 * 2**20
MOST_TIMES_AS_SLOW = 2.0


class Driver:
    """Takes jobs through their stages, and knows when each step of the store began."""

    def __init__(self, queue: qo.Queue) -> None:
        self._queue = queue
        self.began: dict[str, list[float]] = {}
        """By job: the starts of the steps that made its stages and its end."""

    async def run(self, count: int) -> None:
        """So many jobs, at an even pace."""
        loop = asyncio.get_running_loop()
        first = loop.time()
        async with asyncio.TaskGroup() as jobs:
            for number in range(count):
                await asyncio.sleep(max(0.0, first + number / JOBS_A_SECOND - loop.time()))
                jobs.create_task(self._run_one(await start(self._queue)))

    async def _run_one(self, job: JobByHand) -> None:
        began = self.began[job.id] = []
        for stage in STAGES:
            began.append(time.monotonic())
            await job.is_at(stage)
        began.append(time.monotonic())
        await job.succeeds()

    async def delays(self, watchers: Sequence[Watcher]) -> list[float]:
        """From the start of a step until its event came to the watcher."""
        events = await events_by_job(self._queue)
        found: list[float] = []
        for watcher in watchers:
            came = dict(zip(watcher.seen, watcher.seen_at, strict=True))
            made = [each for each in events[watcher.job_id] if each.kind in ("stage", qo.State.SUCCEEDED)]
            assert len(made) == len(STAGES) + 1
            began = self.began[watcher.job_id]
            found += [came[event.id] - at for event, at in zip(made, began, strict=True)]
        return found


@asynccontextmanager
async def probing(server: ServerProcess, job_id: str, found: list[float]) -> AsyncIterator[None]:
    """Calls the API beside the block; then `found` has the 99th percentile of the times."""
    with Process(command_of("tests.service.load.probe", server.url, job_id)) as probe:
        await probe.line_with("ready")
        yield
        probe.say("enough")
        line = await probe.line_with("p99")
        found.append(float(line.split()[1]))


async def submitted(queue: qo.Queue, count: int) -> list[str]:
    return [job.id for job in await asyncio.gather(*(queue.submit("build") for _ in range(count)))]


@asynccontextmanager
async def watched(server: ServerProcess, job_ids: Sequence[str]) -> AsyncIterator[list[Watcher]]:
    """Watchers of these jobs, all connected. At the end of the block each job has to have ended."""
    is_listening = asyncio.Event()
    is_listening.set()
    watchers = [Watcher(server, job_id, is_listening=is_listening) for job_id in job_ids]
    async with asyncio.TaskGroup() as following:
        for first in range(0, len(watchers), OPENED_AT_ONCE):
            some = watchers[first : first + OPENED_AT_ONCE]
            for watcher in some:
                following.create_task(watcher.follow())
            await _until_open(some)
        yield watchers


async def _until_open(watchers: Sequence[Watcher]) -> None:
    while not all(watcher.opened for watcher in watchers):  # noqa: ASYNC110 - a server far away decides it
        await asyncio.sleep(0.01)


@pytest.mark.nightly
async def test_each_of_1000_watchers_sees_its_job_in_time_and_the_api_stays_fast(
    queue: qo.Queue, url: str, tmp_path: Path
) -> None:
    without: list[float] = []
    beside: list[float] = []
    driver = Driver(queue)
    async with ServerProcess(url, folder=tmp_path) as server:
        probed = await queue.submit("never")
        await submitted(queue, WATCHERS)
        async with probing(server, probed.id, without):
            await driver.run(WATCHERS)
        async with watched(server, await submitted(queue, WATCHERS)) as watchers, probing(server, probed.id, beside):
            await driver.run(WATCHERS)
        used = server.most_bytes_used()

    await check_each_saw_everything_once(queue, watchers)
    p99 = statistics.quantiles(await driver.delays(watchers), n=100)[98]
    print(  # noqa: T201 - with -rP
        f"p99 of the delay {p99 * 1000:.0f} ms, {used / 2**20:.0f} MiB, "
        f"p99 of the API {without[0] * 1000:.1f} ms without and {beside[0] * 1000:.1f} ms with watchers"
    )
    assert p99 < SLOWEST_SECONDS
    assert used < MOST_BYTES
    assert beside[0] <= MOST_TIMES_AS_SLOW * without[0]
