"""Two checkouts of qo against each other: processor time a job, in paired rounds.

    python -m bench.paired ../old/src        # this checkout against that one, ten rounds

Each row runs in a process of its own, old and new in turns, and uses the public API only. What counts is the processor
time of the program and, on Redis, of the server, so that a crowded machine changes little. A row is the median of the
rounds' ratios.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from redis import Redis

from tests.servers.redis import Server

ROUNDS = 10
JOBS = 3000

PROGRAM = """
import asyncio, sys, time
import qo

async def submit(queue, jobs):
    for _ in range(jobs // 10):
        await asyncio.gather(*(queue.submit("noop", {"n": 1}) for _ in range(10)))

async def submit_lists(queue, jobs):
    for _ in range(jobs // 500):
        await queue.submit_many([qo.New("noop", {"n": 1})] * 500)

async def submit_limited(queue, jobs):
    for group in ("a", "b", "c"):
        await queue.set_limit(group, 1000)
    for _ in range(jobs // 500):
        await queue.submit_many([qo.New("noop", {"n": 1}, groups=["a", "b", "c"])] * 500)

async def run(queue, jobs):
    worker = qo.Worker(queue, "bench")

    @worker.task
    async def noop(data): ...

    await worker.run_until_idle()
    assert (await queue.analytics()).ended == {"succeeded": jobs}

async def enter(queue, jobs):
    limiter = qo.Limiter({"api": 4}, total=8, queue=queue)

    async def caller():
        for _ in range(jobs // 40):
            async with limiter.acquire("api"):
                pass

    await asyncio.gather(*(caller() for _ in range(8)))
    limiter.close()

# Imported when they are first named. That costs a process, not a job, so it comes before what is measured.
qo.Worker, qo.Limiter

ROWS = {
    "submit": (None, submit),
    "submit a list": (None, submit_lists),
    "run": (submit_lists, run),
    "run with three limits": (submit_limited, run),
    "limiter on a store": (None, enter),
}

async def main(url, row, jobs):
    prepare, measured = ROWS[row]
    async with await qo.connect(url, settings={}) as queue:
        if prepare is not None:
            await prepare(queue, jobs)
        print("begins", flush=True)
        sys.stdin.readline()
        began = time.process_time()
        await measured(queue, jobs)
        print(time.process_time() - began, flush=True)

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""
ROWS = ("submit", "submit a list", "run", "run with three limits", "limiter on a store")


def processor_us(source: Path, url: str, row: str, server: Redis | None) -> float:
    """What a job costs the program and its server together, in microseconds."""
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, url, row, str(JOBS)],
        env=os.environ | {"PYTHONPATH": str(source)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert program.stdin is not None
    assert program.stdout is not None
    with program:
        assert program.stdout.readline() == "begins\n"
        before = _server_seconds(server)
        program.stdin.write("\n")
        program.stdin.flush()
        seconds = float(program.stdout.readline())
    return (seconds + _server_seconds(server) - before) / JOBS * 1e6


def _server_seconds(server: Redis | None) -> float:
    if server is None:
        return 0.0
    used = server.info("cpu")
    return float(used["used_cpu_user"]) + float(used["used_cpu_sys"])


def compare(old: Path, new: Path, *, rounds: int) -> None:
    with (
        Server("valkey") as valkey,
        Redis.from_url(valkey.url) as server,
        tempfile.TemporaryDirectory(prefix="qo-paired-") as folder,
    ):
        stores = {"memory": "memory://", "SQLite": f"sqlite:///{folder}/qo.db", "Valkey": valkey.url}
        print(f"{'processor time a job':32} {'old us':>8} {'new us':>8} {'new/old':>8}   ({rounds} rounds)")
        for store, url in stores.items():
            for row in ROWS:
                pairs = []
                for _ in range(rounds):
                    pair = []
                    for source in (old, new):
                        for file in Path(folder).iterdir():
                            file.unlink()
                        server.flushall()
                        pair.append(processor_us(source, url, row, server if store == "Valkey" else None))
                    pairs.append(pair)
                old_us, new_us = (statistics.median(each) for each in zip(*pairs, strict=True))
                ratio = statistics.median(after / before for before, after in pairs)
                print(f"{store + ', ' + row:32} {old_us:8.1f} {new_us:8.1f} {ratio:8.3f}", flush=True)


if __name__ == "__main__":
    compare(Path(sys.argv[1]), Path(__file__).parents[1] / "src", rounds=int((sys.argv[2:] or [str(ROUNDS)])[0]))
