"""50 operators whose machines stand still: the others notice nothing, and after a minute nothing of the 50 is left."""

from __future__ import annotations

import asyncio
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

import qo
from tests.by_hand import JobByHand, start
from tests.processes import Process, command_of
from tests.service.load.counted_server import Counts
from tests.service.load.server_process import ServerProcess
from tests.service.load.test_thousand_watchers import SLOWEST_SECONDS, Driver, submitted, watched
from tests.service.stream.client import StreamClient, connected
from tests.worker.processes_on_a_store import (
    queue_fixture,  # noqa: F401 - asked for by name
    url_fixture,  # noqa: F401 - asked for by name
)

STOPPED = 50
WATCHERS = 200
GONE_AFTER_SECONDS = 60
TALKING = 20
TEXT = "x" * 8000
"""So many jobs with such a text make far more than 5 kB a second of frames."""


async def counts_of(server: ServerProcess) -> Counts:
    server.process.say("count")
    line = await server.process.line_with("counts ")
    return msgspec.json.decode(line.removeprefix("counts "), type=Counts)


async def talk(jobs: Sequence[JobByHand]) -> None:
    while True:
        for job in jobs:
            await job.has_said(TEXT)
        await asyncio.sleep(0.25)


async def read_all(client: StreamClient) -> None:
    async for frame in client.arriving:
        assert frame.event in ("frame", None), f"a client that reads got {frame.event}"


@pytest.mark.nightly
async def test_stopped_operators_cost_the_others_nothing_and_leave_nothing(
    queue: qo.Queue, url: str, tmp_path: Path
) -> None:
    driver = Driver(queue)
    command = (sys.executable, "-m", "tests.service.load.counted_server")
    talking = [await _started(queue) for _ in range(TALKING)]
    async with ServerProcess(url, folder=tmp_path, command=command) as server, connected(server, "/api/stream") as page:
        await page.next()
        async with watched(server, await submitted(queue, 1)):
            await driver.run(1)  # from here on the server has all that it keeps for watchers: connections to its store
        before = await counts_of(server)
        with Process(command_of("tests.service.load.stopped_operators", str(server.port), str(STOPPED))) as stopped:
            await stopped.line_with("open")
            assert (await counts_of(server)).connections == before.connections + STOPPED
            stopped.freeze()
            saying = asyncio.create_task(talk(talking))
            reading = asyncio.create_task(read_all(page))
            began = asyncio.get_running_loop().time()
            async with watched(server, await submitted(queue, WATCHERS)) as watchers:
                await driver.run(WATCHERS)
            p99 = statistics.quantiles(await driver.delays(watchers), n=100)[98]
            await asyncio.sleep(began + GONE_AFTER_SECONDS - asyncio.get_running_loop().time())
            after = await counts_of(server)
            assert not reading.done()
            reading.cancel()
            saying.cancel()
            await asyncio.wait([reading, saying])

    assert p99 < SLOWEST_SECONDS
    assert after.connections == before.connections
    assert after.inboxes == before.inboxes
    assert after.tasks <= before.tasks
    assert after.sockets <= before.sockets
    assert after.unsent_bytes < len(TEXT) * TALKING * 2  # a frame that goes out to the page that reads


async def _started(queue: qo.Queue) -> JobByHand:
    await queue.submit("talk")
    return await start(queue, "talk")
