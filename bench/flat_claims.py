"""A claim costs the same however many jobs are in line, and changing a limit moves no job."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from bench.store_speed import BATCH, drain
from qo.store.contract import Store
from qo.store.sqlite import SQLiteStore
from qo.values import Limit, Source, Submission, Unlimited

FILL_BATCH = 1000
PARKED_GROUPS = 10


async def fill(store: Store, *, waiting: int, parked: int) -> None:
    """Submit so many jobs; the first `parked` of them are blocked in full groups, ahead of all others."""
    groups = [f"full-{number}" for number in range(PARKED_GROUPS)]
    await store.set_limits([Limit(group=group, slots=0, source=Source.OPERATOR) for group in groups])
    for first in range(0, waiting, FILL_BATCH):
        count = min(FILL_BATCH, waiting - first)
        await store.submit(
            [
                Submission(
                    id=f"job-{first + n}",
                    task="work",
                    groups=(groups[n % PARKED_GROUPS],) if first + n < parked else (),
                )
                for n in range(count)
            ]
        )


async def claim_and_finish_us(store: Store, *, batches: int, name: str) -> float:
    """The median batch, in microseconds a job. As many jobs are submitted as claimed, so the line keeps its length."""
    each = []
    for batch in range(batches):
        await store.submit([Submission(id=f"{name}-{batch}-{n}", task="work") for n in range(BATCH)])
        claim_seconds, finish_seconds = await drain(store, BATCH, name=f"{name}-{batch}")
        each.append((claim_seconds + finish_seconds) / BATCH * 1_000_000)
    return statistics.median(each)


async def report(*, many: int = 1_000_000, parked: int = 100_000, batches: int = 60) -> None:
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as folder:
        few_store = await SQLiteStore.open(f"{folder}/few.db")
        many_store = await SQLiteStore.open(f"{folder}/many.db")
        await fill(few_store, waiting=100, parked=10)
        started = time.perf_counter()
        await fill(many_store, waiting=many, parked=parked)
        fill_seconds = time.perf_counter() - started
        few_us, many_us = [], []
        for round_ in range(3):  # taking turns, so that a slow moment of the machine hits both
            few_us.append(await claim_and_finish_us(few_store, batches=batches // 3, name=f"few{round_}"))
            many_us.append(await claim_and_finish_us(many_store, batches=batches // 3, name=f"many{round_}"))
        print(f"\nclaim and finish with many waiting (submitted at {many / fill_seconds:.0f} jobs/s)")
        print(f"  {100:>9} waiting {min(few_us):6.0f} µs a job")
        print(f"  {many:>9} waiting {min(many_us):6.0f} µs a job, {parked} of them parked in full groups")
        print(f"  ratio {min(many_us) / min(few_us):.2f} (at most 1.5)")
        singles = await single_claims_ms(many_store)
        print(f"  a single claim: median {statistics.median(singles):.2f} ms, worst {max(singles):.2f} ms (under 5)")
        await few_store.close()
        await many_store.close()


async def single_claims_ms(store: Store, *, claims: int = 50) -> list[float]:
    singles = []
    for n in range(claims):
        claim_seconds, _ = await drain(store, 1, batch=1, name=f"single{n}")
        singles.append(claim_seconds * 1000)
    return singles


async def report_relimiting(*, parked: int = 100_000) -> None:
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as folder:
        store = await SQLiteStore.open(f"{folder}/qo.db")
        await store.set_limits([Limit(group="hot", slots=0, source=Source.OPERATOR)])
        for first in range(0, parked, FILL_BATCH):
            await store.submit(
                [Submission(id=f"job-{first + n}", task="work", groups=("hot",)) for n in range(FILL_BATCH)]
            )
        changes = {}
        for name, change in (
            ("raise the limit", lambda: store.set_limits([Limit(group="hot", slots=10, source=Source.OPERATOR)])),
            ("lower it to 0", lambda: store.set_limits([Limit(group="hot", slots=0, source=Source.OPERATOR)])),
            ("remove it", lambda: store.set_limits([Unlimited(group="hot")])),
        ):
            started = time.perf_counter()
            await change()
            changes[name] = (time.perf_counter() - started) * 1000
        claimed = await store.claim(worker="w", tasks=["work"], capacity=200, lease_ms=300_000, claim_id="c")
        in_order = [lease.job.id for lease in claimed.leases] == [f"job-{n}" for n in range(200)]
        print(f"\na group with {parked} jobs parked (each under 10 ms)")
        for name, milliseconds in changes.items():
            print(f"  {name:16} {milliseconds:6.2f} ms")
        print(f"  the next 200 claims were {'exactly in order' if in_order else 'OUT OF ORDER'}")
        await store.close()


async def report_positions(*, waiting: int = 10_000) -> None:
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as folder:
        store = await SQLiteStore.open(f"{folder}/qo.db")
        await fill(store, waiting=waiting, parked=0)
        times = []
        for n in range(0, waiting, waiting // 100):
            started = time.perf_counter()
            assert (await store.positions([f"job-{n}"]))[f"job-{n}"].position == n + 1
            times.append((time.perf_counter() - started) * 1000)
        median, worst = statistics.median(times), max(times)
        print(f"\nposition of one job among {waiting}: median {median:.2f} ms, worst {worst:.2f} ms (under 10)")
        await store.close()
