"""What the runtime adds to the store: jobs a second, how soon a job starts, what an idle worker costs.

Runtime and store alone take turns in rounds of one run; the best round of each counts, as in `store_speed`.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import qo
from bench.store_speed import drain
from qo.store.sqlite import SQLiteStore
from qo.values import Submission

BATCH = 500

IDLE_WORKER = """
import time
began = time.perf_counter()
import asyncio, resource, sys
from pathlib import Path
import qo

def resident_mb():
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        # Elsewhere the maximum so far, which includes a big parent's; in bytes on a Mac, else in KiB.
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most / 2**20 if sys.platform == "darwin" else most / 1024
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024

async def main():
    queue = await qo.connect(sys.argv[1])
    worker = qo.Worker(queue, "bench")
    claim = queue.store.claim

    async def first_claim(**options):
        claimed = await claim(**options)
        queue.store.claim = claim
        print(time.perf_counter() - began, resident_mb(), flush=True)
        return claimed

    queue.store.claim = first_claim

    @worker.task
    async def noop(data):
        print(time.time(), flush=True)

    await worker.run()

asyncio.run(main())
"""


@contextmanager
def sqlite_file() -> Iterator[str]:
    """The url of a file that is deleted afterwards."""
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as folder:
        yield f"sqlite:///{folder}/qo.db"


async def runtime_jobs_per_second(url: str, jobs: int) -> float:
    async with await qo.connect(url, settings={}) as queue:
        worker = qo.Worker(queue, "bench")

        @worker.task
        async def noop() -> None: ...

        for _ in range(0, jobs, BATCH):
            await queue.submit_many([qo.New("noop")] * BATCH)
        started = time.perf_counter()
        await worker.run_until_idle()
        seconds = time.perf_counter() - started
        assert (await queue.analytics()).ended == {"succeeded": jobs}
    return jobs / seconds


async def store_jobs_per_second(jobs: int) -> float:
    """Jobs a second of one client of the store alone, which waits for each claim and finish of fifty."""
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as folder:
        store = await SQLiteStore.open(f"{folder}/qo.db")
        for first in range(0, jobs, BATCH):
            await store.submit([Submission(id=f"job-{first + n}", task="work") for n in range(BATCH)])
        claim_seconds, finish_seconds = await drain(store, jobs)
        await store.close()
    return jobs / (claim_seconds + finish_seconds)


async def start_ms_same_process(url: str, jobs: int) -> float:
    """From the call of submit to the first line of the handler, the worker being idle; the median."""
    async with await qo.connect(url, settings={}) as queue:
        worker = qo.Worker(queue, "bench")
        started: asyncio.Queue[float] = asyncio.Queue()

        @worker.task
        async def noop() -> None:
            started.put_nowait(time.perf_counter())

        run = asyncio.create_task(worker.run())
        waits = []
        for _ in range(jobs):
            await asyncio.sleep(0.02)  # until it is idle again
            submitted = time.perf_counter()
            await queue.submit("noop")
            waits.append(await started.get() - submitted)
        worker.stop()
        await run
    return statistics.median(waits) * 1000


async def other_process(url: str, jobs: int, *, pause_seconds: float = 0.05) -> tuple[float, float, float]:
    """(median ms from submit to start, seconds from import to first claim, MB of the idle worker) of a process.

    This process does nothing meanwhile but submit: what it did while a job starts would keep a processor from it.
    """
    async with await qo.connect(url, settings={}) as queue:
        worker = subprocess.Popen(  # noqa: ASYNC220 - nothing else is to run meanwhile
            [sys.executable, "-c", IDLE_WORKER, url], stdout=subprocess.PIPE, text=True
        )
        assert worker.stdout is not None
        try:
            start_seconds, memory = map(float, worker.stdout.readline().split())
            submitted = []
            for _ in range(jobs):
                await asyncio.sleep(pause_seconds)  # until it is idle again
                submitted.append(time.time())
                await queue.submit("noop")
            waits = [float(worker.stdout.readline()) - each for each in submitted]
        finally:
            worker.terminate()
            worker.wait(timeout=40)
    return statistics.median(waits) * 1000, start_seconds, memory


async def report(*, jobs: int = 10_000, rounds: int = 3) -> None:
    runtime = store = 0.0
    for _ in range(rounds):
        store = max(store, await store_jobs_per_second(jobs))
        with sqlite_file() as url:
            runtime = max(runtime, await runtime_jobs_per_second(url, jobs))
    print(f"\none worker process, no-op async handler, {jobs} jobs waiting, best of {rounds} rounds")
    print(f"  {runtime:6.0f} jobs/s, the store alone {store:6.0f} jobs/s: {runtime / store:.0%} of it (at least 60 %)")
    with sqlite_file() as url:
        same = await start_ms_same_process(url, 50)
    print(f"  idle worker, job submitted from the same process: starts after {same:.1f} ms at the median (within 3)")
    with sqlite_file() as url:
        other, start_seconds, memory = await other_process(url, 50)
    print(f"  idle worker, job submitted from another process:  starts after {other:.1f} ms at the median (within 20)")
    print(f"  worker start, import to first claim: {start_seconds:.2f} s (under 0.4)")
    print(f"  memory of the idle worker: {memory:.0f} MB (under 60)")
