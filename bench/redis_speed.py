"""The store on a Redis or Valkey server: flat claims, memory, what limits cost, and how busy the server is.

Everything runs against one server without persistence, started for this. Ratios are within one run.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import qo
from bench import idle_start, limiter_on_redis
from bench.flat_claims import claim_and_finish_us, fill, single_claims_ms
from bench.runtime_speed import start_ms_same_process
from bench.store_speed import BATCH, drain
from qo.store.redis import RedisStore
from qo.values import Limit, Source, Submission
from tests.servers.redis import Kind, Server  # the tests have the code that starts a server

SCRIPTS = ("cmdstat_fcall",)


async def info(store: RedisStore, section: str) -> dict[str, str]:
    lines = (await store.client.command("INFO", section)).decode().splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


async def script_seconds(store: RedisStore) -> float:
    """How long the server has spent in scripts since it started."""
    stats = await info(store, "commandstats")
    fields = [dict(part.split("=") for part in stats[name].split(",")) for name in SCRIPTS if name in stats]
    return sum(int(each["usec"]) for each in fields) / 1_000_000


class Busy:
    """How much of the time inside of the block the server spent in scripts."""

    def __init__(self, store: RedisStore) -> None:
        self._store = store
        self.seconds = self.in_scripts = 0.0

    async def __aenter__(self) -> Busy:
        self._scripts_before = await script_seconds(self._store)
        self._began = time.perf_counter()
        return self

    async def __aexit__(self, *_: Any) -> None:
        self.seconds = time.perf_counter() - self._began
        self.in_scripts = await script_seconds(self._store) - self._scripts_before

    def described(self, jobs: int) -> str:
        return (
            f"{jobs / self.seconds:6.0f} jobs/s; the server alone could do {jobs / self.in_scripts:6.0f} jobs/s, "
            f"so this is {self.in_scripts / self.seconds:.0%} of it"
        )


async def submit_all(store: RedisStore, jobs: int, groups: tuple[str, ...]) -> None:
    for first in range(0, jobs, BATCH):
        await store.submit([Submission(id=f"job-{first + n}", task="work", groups=groups) for n in range(BATCH)])


async def report_throughput(url: str, jobs: int) -> None:
    print(f"\nRedis store, one client in batches of {BATCH}, {jobs} jobs")
    drained = {}
    for name, groups in {"no limit": (), "three limits": ("a", "b", "c")}.items():
        store = await RedisStore.open(url, namespace=f"throughput-{len(groups)}")
        await store.set_limits([Limit(group=group, slots=10_000, source=Source.OPERATOR) for group in groups])
        async with Busy(store) as submitting:
            await submit_all(store, jobs, groups)
        async with Busy(store) as draining:
            await drain(store, jobs)
        drained[name] = submitting.in_scripts + draining.in_scripts
        print(f"  {name:12} submit {submitting.described(jobs)}")
        print(f"  {'':12} drain  {draining.described(jobs)}")
        await store.close()
    print(f"  three limits cost the server {drained['three limits'] / drained['no limit']:.2f} times none (at most 2)")


async def report_worker(url: str, jobs: int) -> None:
    print(f"\none program on Redis: a list of {jobs} jobs submitted, then drained by one worker, no-op async handler")
    store = await RedisStore.open(url, namespace="worker")
    async with await qo.connect(url, namespace="worker", settings={}) as queue:
        worker = qo.Worker(queue, "bench")

        @worker.task
        async def noop() -> None: ...

        async with Busy(store) as submitting:
            await queue.submit_many([qo.New("noop")] * jobs)
        async with Busy(store) as draining:
            await worker.run_until_idle()
        assert (await queue.analytics()).ended == {"succeeded": jobs}
    await store.close()
    print(f"  submit {submitting.described(jobs)}")
    print(f"  drain  {draining.described(jobs)}")
    same = await start_ms_same_process(url, 100)
    print(f"  idle worker, job submitted from the same process: starts after {same:.2f} ms at the median")
    await idle_start.report(url)


async def report_flat(url: str, *, many: int, parked: int, batches: int = 60) -> None:
    few_store = await RedisStore.open(url, namespace="few")
    await fill(few_store, waiting=100, parked=10)
    many_store = await RedisStore.open(url, namespace="many")
    before = int((await info(many_store, "memory"))["used_memory"])
    started = time.perf_counter()
    await fill(many_store, waiting=many, parked=parked)
    fill_seconds = time.perf_counter() - started
    memory = (int((await info(many_store, "memory"))["used_memory"]) - before) / many
    few_us, many_us = [], []
    for round_ in range(3):  # taking turns, so that a slow moment of the machine hits both
        few_us.append(await claim_and_finish_us(few_store, batches=batches // 3, name=f"few{round_}"))
        many_us.append(await claim_and_finish_us(many_store, batches=batches // 3, name=f"many{round_}"))
    print(f"\nclaim and finish on Redis with many waiting (submitted at {many / fill_seconds:.0f} jobs/s)")
    print(f"  {100:>9} waiting {min(few_us):6.0f} µs a job")
    print(f"  {many:>9} waiting {min(many_us):6.0f} µs a job, {parked} of them parked in full groups")
    print(f"  ratio {min(many_us) / min(few_us):.2f} (at most 1.3)")
    print(f"  {memory:.0f} bytes a waiting job (at most 1024)")
    for name, times in (
        ("claim", await single_claims_ms(many_store)),
        ("submit", await _times_ms(lambda n: many_store.submit([Submission(id=f"one-{n}", task="work")]))),
        ("position", await _times_ms(lambda n: many_store.positions([f"job-{many - 1 - n}"]))),
        ("move", await _times_ms(lambda n: many_store.move(f"job-{many - 1 - n}", before=f"job-{many - 100}"))),
    ):
        print(f"  a single {name:8}: median {statistics.median(times):.2f} ms, worst {max(times):.2f} ms")
    await few_store.close()
    await many_store.close()


async def _times_ms(step: Any, count: int = 50) -> list[float]:
    times = []
    for number in range(count):
        started = time.perf_counter()
        await step(number)
        times.append((time.perf_counter() - started) * 1000)
    return times


async def report(*, kind: Kind = "valkey", jobs: int = 10_000, many: int = 1_000_000, parked: int = 100_000) -> None:
    with Server(kind) as server:
        await report_throughput(server.url, jobs)
        await report_worker(server.url, jobs)
        await limiter_on_redis.report(server.url, rounds=max(1, jobs // 500), hand_overs=jobs // 50)
        await report_flat(server.url, many=many, parked=parked)
