"""What the history costs: `python -m bench.history_speed`.

A submit and a finish with the outbox on against without, in the server's processor time; and how many records a second
the recorder writes, also by the processor time of each part.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import statistics
import time
from collections.abc import Awaitable, Callable

from qo.job import State
from qo.store.redis.store import RedisStore
from qo.values import Outcome, Submission
from tests.history.staging import Staged, fresh_database, fresh_store, switch_on
from tests.servers.redis import shared_server

BATCH = 50
LEASE_MS = 600_000


async def report(*, rounds: int = 40, jobs: int = 500, records: int = 20_000) -> None:
    for batch in (1, BATCH):
        print(f"submit in batches of {batch}, outbox on: {await _ratio(_submit, batch, rounds, jobs)}")
    print(f"finish in batches of {BATCH}, outbox on: {await _ratio(_finish, BATCH, rounds, jobs)}")
    await _report_recorder(records)


async def _ratio(work: Callable[[bool, int, int], Awaitable[float]], batch: int, rounds: int, jobs: int) -> str:
    """In pairs, so that both of a pair have the same neighbours, and each of them is the first in turn."""
    pairs = []
    for number in range(rounds):
        cost = {on: await work(on, batch, jobs) for on in ((False, True) if number % 2 else (True, False))}
        pairs.append((cost[True] / cost[False], cost))
    ratios = sorted(ratio for ratio, _ in pairs)
    off = statistics.median(cost[False] for _, cost in pairs)
    return (
        f"{statistics.median(ratios):.2f} times by the median of {rounds} pairs, {ratios[0]:.2f} to {ratios[-1]:.2f} "
        f"({off:.0f} µs a job without)"
    )


def _server_time_us() -> float:
    """The processor time of the server's main thread, which neighbours do not lengthen by their turns."""
    with open(f"/proc/{shared_server('valkey').pid}/schedstat") as file:
        return int(file.read().split()[0]) / 1000


def _submissions(first: int, count: int) -> list[Submission]:
    return [
        Submission(id=f"job-{number}", task="work", payload=b'{"n":1}', user=f"u{number % 7}")
        for number in range(first, first + count)
    ]


async def _submit(on: bool, batch: int, jobs: int) -> float:
    async with fresh_store() as store:
        if on:
            await switch_on(store)
        await store.submit(_submissions(-1, 1))
        before = _server_time_us()
        for first in range(0, jobs, batch):
            await store.submit(_submissions(first, batch))
        return (_server_time_us() - before) / jobs


async def _finish(on: bool, batch: int, jobs: int) -> float:
    async with fresh_store() as store:
        if on:
            await switch_on(store)
        outcomes = await _started(store, jobs)
        before = _server_time_us()
        for first in range(0, jobs, batch):
            await store.finish(outcomes[first : first + batch])
        return (_server_time_us() - before) / jobs


async def _started(store: RedisStore, jobs: int) -> list[Outcome]:
    for first in range(0, jobs, 250):
        await store.submit(_submissions(first, 250))
    outcomes: list[Outcome] = []
    while len(outcomes) < jobs:
        claimed = await store.claim(
            worker="w", tasks=["work"], capacity=BATCH, lease_ms=LEASE_MS, claim_id=secrets.token_hex(8)
        )
        outcomes += [
            Outcome(job_id=lease.job_id, token=lease.token, state=State.SUCCEEDED, result=b"1")
            for lease in claimed.leases
        ]
    return outcomes


def _processor_seconds(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _report_recorder(records: int) -> None:
    async with fresh_store() as store, fresh_database() as url:
        await switch_on(store)
        staged = Staged(store, url)
        await staged.recorder.open()
        (row,) = await staged.rows("SELECT pid FROM pg_stat_activity WHERE datname = current_database() LIMIT 1")
        for first in range(0, records, 250):
            await store.submit(_submissions(first, 250))
        await _report_portions(staged, "jobs accepted", row["pid"])
        outcomes = await _started(store, records)
        for first in range(0, records, BATCH):
            await store.finish(outcomes[first : first + BATCH])
        await _report_portions(staged, "jobs ended, each with its attempt", row["pid"])
        await staged.recorder.close()


async def _report_portions(staged: Staged, what: str, server_pid: int) -> None:
    began, own, servers = time.perf_counter(), time.process_time(), _processor_seconds(server_pid)
    count = 0
    while done := await staged.recorder.step():
        count += done
    seconds, own = time.perf_counter() - began, time.process_time() - own
    servers = _processor_seconds(server_pid) - servers
    print(
        f"recorder, {what}: {count / seconds:.0f} a second; by processor time {count / own:.0f} of its own and "
        f"{count / servers:.0f} of PostgreSQL, which work at the same time"
    )


if __name__ == "__main__":
    asyncio.run(report())
