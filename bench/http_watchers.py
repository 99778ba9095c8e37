"""What watchers cost the callers of the API beside them: a server with many watchers, each following a job of its own.

    python -m bench.http_watchers [--quick] [--watchers N]

Jobs go through four stages at 200 a second, first while nobody watches, then while each job is watched, in rounds of
one run. The ratios are those of the 99th percentiles of a call of the API, the medians of the rounds': of the time that
it takes, and of the processor time that the server's event loop spends until the answer comes. The latter is what the
watchers cost even where other programs keep the machine busy.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import httpx

import qo
from tests.processes import Process, command_of
from tests.service.load.server_process import ServerProcess
from tests.service.load.test_thousand_watchers import Driver, submitted, watched

AT_MOST = 2.0
PAUSE_SECONDS = 0.005
WARM_AFTER = 20


class Slowest(NamedTuple):
    """99th percentiles of a call: how long it takes, and what the event loop works meanwhile."""

    seconds: float
    loop_seconds: float


def loop_seconds(pid: int) -> float:
    """The processor time of the server's first thread, which is that of its event loop."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


def probe(url: str, job_id: str, pid: int) -> None:
    """Call the API every few milliseconds until a line comes, then print the percentiles. A process of its own."""
    is_over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), is_over.set()), daemon=True).start()
    found: list[Slowest] = []
    with httpx.Client(base_url=url, timeout=30, verify=False) as client:
        for number in range(sys.maxsize):
            if number == WARM_AFTER:
                print("ready", flush=True)
            if is_over.wait(PAUSE_SECONDS):
                break
            began, worked = time.perf_counter(), loop_seconds(pid)
            client.get(f"/api/jobs/{job_id}").raise_for_status()
            if number >= WARM_AFTER:
                found.append(Slowest(time.perf_counter() - began, loop_seconds(pid) - worked))
    print("p99", *(statistics.quantiles(each, n=100)[98] for each in zip(*found, strict=True)), flush=True)


@asynccontextmanager
async def probing(server: ServerProcess, job_id: str, found: list[Slowest]) -> AsyncIterator[None]:
    with Process(command_of("bench.http_watchers", "probe", server.url, job_id, str(server.process.pid))) as probing:
        await probing.line_with("ready")
        yield
        probing.say("enough")
        _, seconds, worked = (await probing.line_with("p99")).split()
        found.append(Slowest(float(seconds), float(worked)))


async def one_round(queue: qo.Queue, server: ServerProcess, probed: str, count: int) -> Slowest:
    """How many times as slow a call is beside the watchers."""
    driver = Driver(queue)
    without: list[Slowest] = []
    beside: list[Slowest] = []
    await submitted(queue, count)
    async with probing(server, probed, without):
        await driver.run(count)
    async with watched(server, await submitted(queue, count)) as watchers, probing(server, probed, beside):
        await driver.run(count)
    delay = statistics.quantiles(await driver.delays(watchers), n=100)[98]
    ratio = Slowest(beside[0].seconds / without[0].seconds, beside[0].loop_seconds / without[0].loop_seconds)
    for what, one, other, times in zip(("a call", "the loop's work"), without[0], beside[0], ratio, strict=True):
        print(f"  p99 of {what}: {one * 1000:.1f} ms without, {other * 1000:.1f} ms with watchers, ratio {times:.2f}")
    print(f"  p99 of the delay of an event: {delay * 1000:.0f} ms")
    return ratio


async def report(*, watchers: int = 1000, rounds: int = 3) -> None:
    with tempfile.TemporaryDirectory(prefix="qo-watchers-") as folder:
        url = f"sqlite:///{folder}/qo.db"
        server = ServerProcess(url, folder=Path(folder))
        async with await qo.connect(url, settings={}) as queue, server:
            probed = await queue.submit("never")
            print(f"\n{watchers} watchers, each of a job of its own, on an SQLite file, {rounds} rounds")
            found = [await one_round(queue, server, probed.id, watchers) for _ in range(rounds)]
        seconds, worked = (statistics.median(each) for each in zip(*found, strict=True))
        print(f"  ratios {seconds:.2f} of a call and {worked:.2f} of the loop's work (at most {AT_MOST})")


def main(arguments: list[str]) -> None:
    if arguments and arguments[0] == "probe":
        url, job_id, pid = arguments[1:]
        probe(url, job_id, int(pid))
        return
    watchers = int(arguments[arguments.index("--watchers") + 1]) if "--watchers" in arguments else 1000
    if "--quick" in arguments:
        asyncio.run(report(watchers=min(watchers, 200), rounds=1))
    else:
        asyncio.run(report(watchers=watchers))


if __name__ == "__main__":
    main(sys.argv[1:])
