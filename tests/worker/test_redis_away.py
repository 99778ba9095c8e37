"""A server that is away for longer than a lease: live workers keep their jobs, and the log has one line about it."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import qo
from qo.errors import StoreUnavailable
from qo.event import LEASE_LOST
from qo.queue.queue import Queue
from qo.settings import load_settings
from qo.store.redis.store import RedisStore
from tests.processes import Process
from tests.servers.redis import Server
from tests.worker.processes_on_a_store import check_each_succeeded_once, check_nothing_is_held, events_of
from tests.worker.running import running, soon
from tests.worker.worker_process import Options, diary_of, started, until

WORKERS = 3
CAPACITY = 2

# --- worker processes -----------------------------------------------------------------------------------------


async def stands_still(server: Server, seconds: float) -> None:
    """It takes in what it is sent and answers nothing."""
    os.kill(server.pid, signal.SIGSTOP)
    await asyncio.sleep(seconds)
    os.kill(server.pid, signal.SIGCONT)


async def is_started_anew(server: Server, seconds: float) -> None:
    await asyncio.to_thread(server.stop)
    await asyncio.sleep(seconds)
    await asyncio.to_thread(server.start)


@pytest.mark.parametrize(
    ("is_away", "lease_seconds", "told"),
    [(stands_still, 2.0, []), (is_started_anew, 3.0, ["cannot be used", "is back"])],
)
async def test_live_workers_keep_their_jobs_when_the_server_was_away_for_longer_than_a_lease(
    tmp_path: Path, is_away: Callable[[Server, float], Awaitable[None]], lease_seconds: float, told: list[str]
) -> None:
    diary, go_on = tmp_path / "diary", tmp_path / "go on"
    settings = {"concurrency": {"default_lease_duration_secs": lease_seconds}}
    with Server("valkey", aof="always") as server:
        options = Options(url=server.url, settings=settings, concurrency=CAPACITY, diary=str(diary))
        async with await qo.connect(server.url, settings=settings) as queue, AsyncExitStack() as processes:
            # One job more than the capacity: a worker that loses a lease would see its job taken by another.
            jobs = [await queue.submit("short", {"until": str(go_on)}) for _ in range(WORKERS * CAPACITY + 1)]
            workers = [
                await processes.enter_async_context(started(msgspec.structs.replace(options, names=(f"worker-{n}",))))
                for n in range(WORKERS)
            ]
            await until(lambda: number_of_calls(diary, WORKERS * CAPACITY))
            held = {lease.token for lease in await queue.store.leases()}

            await is_away(server, 1.2 * lease_seconds)
            # A worker that had not renewed half a lease after the first look would have lost its lease by then.
            await asyncio.sleep(0.8 * lease_seconds)
            still_held = {lease.token for lease in await queue.store.leases()}
            go_on.touch()
            for job in jobs:
                await queue.wait(job.id, timeout=60)
            logs = [await log_of(worker) for worker in workers]

            assert still_held == held
            assert len(held) == WORKERS * CAPACITY
            assert await events_of(queue, [LEASE_LOST]) == []
            assert sorted(job_id for job_id, _, _ in diary_of(diary)) == sorted(job.id for job in jobs)
            await check_each_succeeded_once(queue, len(jobs))
            await check_nothing_is_held(queue)
    for log in logs:
        assert [text for line in log for text in ("cannot be used", "is back") if text in line] == told
        assert len(log) == len(told)


async def log_of(worker: Process) -> list[str]:
    """Stop it. Returns the lines that it logged before."""
    worker.signal(signal.SIGTERM)
    await worker.ended()
    lines = worker.output().splitlines()
    return lines[: next(number for number, line in enumerate(lines) if line.startswith("SIGTERM"))]


async def number_of_calls(diary: Path, number: int) -> bool:
    return len(diary_of(diary)) >= number


# --- the log of a long outage ---------------------------------------------------------------------------------


async def test_an_outage_that_outlasts_every_timeout_is_logged_once_by_each_part_that_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Longer than the client tries a call, so that workers and heartbeats see calls fail, again and again."""
    begun, release = asyncio.Event(), asyncio.Event()
    with Server("valkey", aof="always") as server:
        store = await RedisStore.open(server.url, patience_seconds=0.2)
        failed = count_failures(store, "renew", "finish", "signals", "catch_up")
        lease = {"concurrency": {"default_lease_duration_secs": 6}}
        async with Queue(store, load_settings(lease, environ={})) as queue:
            worker = qo.Worker(queue, "worker-1", concurrency=2)

            @worker.task
            async def works() -> str:
                begun.set()
                await release.wait()
                return "done"

            job = await queue.submit("works")
            async with running(worker):
                await soon(begun.wait())
                server.kill()
                release.set()
                await soon(until(lambda: have_failed_often(failed)))
                await asyncio.to_thread(server.start)
                async with await qo.connect(server.url) as patient:
                    ended = await patient.wait(job.id, timeout=30)

    assert (ended.result, ended.attempts) == ("done", 1)
    # That it began, which parts fail, that it is over.
    told = [record.getMessage() for record in caplog.records if record.name in ("qo.store", "qo.worker")]
    assert Counter(re.sub(r" \(.*| after .*|, trying.*", "", text) for text in told) == {
        f"Redis at 127.0.0.1:{server.port} cannot be used": 1,
        "the store cannot be reached": 1,
        "leases cannot be renewed for now": 1,
        "cancellations cannot be heard for now": 1,
        "upkeep could not be done": 1,
        f"Redis at 127.0.0.1:{server.port} is back": 1,
    }


def count_failures(store: Any, *names: str) -> Counter[str]:
    """How often each of these operations was not possible, from now on."""
    failures: Counter[str] = Counter()

    @contextmanager
    def counted(name: str) -> Iterator[None]:
        try:
            yield
        except StoreUnavailable:
            failures[name] += 1
            raise

    def counting(name: str, operation: Any) -> Any:
        async def call(*args: Any, **options: Any) -> Any:
            with counted(name):
                return await operation(*args, **options)

        async def generate(*args: Any, **options: Any) -> Any:
            with counted(name):
                async for each in operation(*args, **options):
                    yield each

        return generate if inspect.isasyncgenfunction(operation) else call

    for name in names:
        setattr(store, name, counting(name, getattr(store, name)))
    return failures


async def have_failed_often(failed: Counter[str]) -> bool:
    return min(failed[name] for name in ("renew", "finish", "signals", "catch_up")) >= 3
