"""How soon a job starts on an idle worker in another process, beside a bare list with redis-py."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time

import redis.asyncio

from bench.runtime_speed import other_process

WORKERS = 9
JOBS = 100
PAUSE_SECONDS = 0.02

POPPING = """
import asyncio, sys, time
import redis.asyncio

async def main():
    async with redis.asyncio.Redis.from_url(sys.argv[1]) as server:
        print("ready", flush=True)
        while True:
            await server.blpop("list")
            print(time.time(), flush=True)

asyncio.run(main())
"""


async def list_ms(url: str) -> float:
    """Median ms from a push to a list to its pop by another process. Unlike a job, the element is lost if that process
    is killed."""
    popping = subprocess.Popen(  # noqa: ASYNC220 - nothing else is to run meanwhile
        [sys.executable, "-c", POPPING, url], stdout=subprocess.PIPE, text=True
    )
    assert popping.stdout is not None
    pushed = []
    try:
        popping.stdout.readline()
        async with redis.asyncio.Redis.from_url(url) as server:
            for _ in range(JOBS):
                await asyncio.sleep(PAUSE_SECONDS)
                pushed.append(time.time())
                await server.rpush("list", "noop")
        waits = [float(popping.stdout.readline()) - each for each in pushed]
    finally:
        popping.kill()
        popping.wait()
    return statistics.median(waits) * 1000


async def report(url: str) -> None:
    # The layout of its memory makes one process faster than another, so there are several, in turns.
    starts, pops = [], []
    for _ in range(WORKERS):
        starts.append((await other_process(url, JOBS, pause_seconds=PAUSE_SECONDS))[0])
        pops.append(await list_ms(url))
    start, pop = statistics.median(starts), statistics.median(pops)
    print(
        f"  idle worker, job submitted from another process:  starts after {start:.2f} ms at the median (within 1.2), "
        f"{min(starts):.2f} to {max(starts):.2f} in {WORKERS} workers one after the other"
    )
    print(
        f"  a bare list by redis-py, pushed to and popped by another process: {pop:.2f} ms, {min(pops):.2f} to "
        f"{max(pops):.2f}; the start of a job takes {start / pop:.2f} times as long"
    )
