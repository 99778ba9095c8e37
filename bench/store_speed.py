"""What the embedded store does in a second, and what limits cost.

Batches of fifty, `synchronous=FULL`. One client that waits for each answer shows what a step costs; several at
once, as the workers and submitters of a process are, share their commits. Contenders alternate in rounds, and the
best round of each counts: on a shared machine the slow rounds measure the neighbours.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from qo.job import State
from qo.store.contract import Store
from qo.store.sqlite import SQLiteStore
from qo.values import Limit, Outcome, Source, Submission

BATCH = 50
CLIENTS = 4
LEASE_MS = 300_000


@dataclass
class Figures:
    submit_us: float
    claim_us: float
    finish_us: float

    @property
    def all_us(self) -> float:
        return self.submit_us + self.claim_us + self.finish_us

    @property
    def jobs_per_second(self) -> float:
        return 1_000_000 / self.all_us


async def measure(groups: tuple[str, ...], jobs: int) -> Figures:
    """Microseconds a job for submit, claim and finish, each job in these limited groups."""
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as folder:
        store = await SQLiteStore.open(f"{folder}/qo.db")
        await store.set_limits([Limit(group=group, slots=1000, source=Source.OPERATOR) for group in groups])
        started = time.perf_counter()
        for first in range(0, jobs, BATCH):
            await store.submit([Submission(id=f"job-{first + n}", task="work", groups=groups) for n in range(BATCH)])
        submitted = time.perf_counter()
        claim_seconds, finish_seconds = await drain(store, jobs)
        await store.close()
    scale = 1_000_000 / jobs
    return Figures((submitted - started) * scale, claim_seconds * scale, finish_seconds * scale)


async def drain(store: Store, jobs: int, *, batch: int = BATCH, name: str = "drain") -> tuple[float, float]:
    """Claim and finish so many jobs; the seconds spent on each."""
    claim_seconds = finish_seconds = 0.0
    for first in range(0, jobs, batch):
        started = time.perf_counter()
        claimed = await store.claim(
            worker="bench", tasks=["work"], capacity=batch, lease_ms=LEASE_MS, claim_id=f"{name}-{first}"
        )
        claim_ended = time.perf_counter()
        await store.finish(
            [Outcome(job_id=lease.job.id, token=lease.token, state=State.SUCCEEDED) for lease in claimed.leases]
        )
        claim_seconds += claim_ended - started
        finish_seconds += time.perf_counter() - claim_ended
        assert len(claimed.leases) == batch, "the line ran dry"
    return claim_seconds, finish_seconds


async def measure_together(groups: tuple[str, ...], jobs: int) -> float:
    """Jobs a second through submit, claim and finish by several submitters and workers at once."""
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as folder:
        store = await SQLiteStore.open(f"{folder}/qo.db")
        await store.set_limits([Limit(group=group, slots=10_000, source=Source.OPERATOR) for group in groups])
        share = jobs // CLIENTS

        async def submit(client: int) -> None:
            for first in range(0, share, BATCH):
                await store.submit(
                    [Submission(id=f"{client}-{first + n}", task="work", groups=groups) for n in range(BATCH)]
                )

        async def work(client: int) -> None:
            finished: list[Outcome] = []
            for first in range(0, share, BATCH):
                claimed = []
                while not claimed:
                    claim = store.claim(
                        worker=f"worker-{client}",
                        tasks=["work"],
                        capacity=BATCH,
                        lease_ms=LEASE_MS,
                        claim_id=f"{client}-{first}",
                    )
                    _, answer = await asyncio.gather(store.finish(finished), claim)
                    finished, claimed = [], list(answer.leases)
                    if not claimed:
                        await store.wait_for_work(worker=f"worker-{client}", tasks=["work"], timeout_seconds=10)
                assert len(claimed) == BATCH, "batches are submitted whole and so they are claimed whole"
                finished = [Outcome(job_id=lease.job.id, token=lease.token, state=State.SUCCEEDED) for lease in claimed]
            await store.finish(finished)

        started = time.perf_counter()
        await asyncio.gather(*(submit(n) for n in range(CLIENTS)), *(work(n) for n in range(CLIENTS)))
        seconds = time.perf_counter() - started
        assert (await store.series(prefix="ended:succeeded"))[0].count > 0
        await store.close()
    return jobs / seconds


async def report(*, jobs: int = 5000, rounds: int = 3) -> None:
    contenders: dict[str, tuple[str, ...]] = {
        "no limited group": (),
        "1 limited group": ("a",),
        "3 limited groups": ("a", "b", "c"),
    }
    best: dict[str, Figures] = {}
    together: dict[str, float] = {}
    for _ in range(rounds):
        for name, groups in contenders.items():
            together[name] = max(together.get(name, 0), await measure_together(groups, CLIENTS * jobs // 4))
            figures = await measure(groups, jobs)
            if name not in best or figures.all_us < best[name].all_us:
                best[name] = figures
    print(f"\nsubmit, claim, finish in batches of {BATCH}, synchronous=FULL, best of {rounds} rounds")
    for name, figures in best.items():
        print(
            f"  {name:18} {figures.submit_us:6.0f} {figures.claim_us:6.0f} {figures.finish_us:6.0f} µs a job"
            f" = {figures.jobs_per_second:6.0f} jobs/s by one client,"
            f" {together[name]:6.0f} jobs/s by {CLIENTS} submitters and {CLIENTS} workers at once"
        )
    none, three = best["no limited group"], best["3 limited groups"]
    print(f"  three limits cost {three.all_us / none.all_us:.2f} times none (at most 2)")


def disk_sync_ms(writes: int = 200) -> float:
    """The cost of one small synchronous write on this disk, to judge the figures by."""
    with tempfile.NamedTemporaryFile(dir=Path.cwd(), prefix=".bench-") as file:
        started = time.perf_counter()
        for _ in range(writes):
            file.write(b"x" * 4096)
            file.flush()
            os.fdatasync(file.fileno())
        return (time.perf_counter() - started) / writes * 1000


def cpu_ms(rounds: int = 20) -> tuple[float, float]:
    """Best and median of a fixed piece of plain Python: on a shared machine the same work can take twice as long."""

    def work() -> float:
        started = time.perf_counter()
        total = 0
        for number in range(200_000):
            total += number * number
        return (time.perf_counter() - started) * 1000

    times = sorted(work() for _ in range(rounds))
    return times[0], times[rounds // 2]
