"""Idle workers on Redis are woken for suspects that they may take, and sleep through those that they may not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from qo.job import State
from qo.store.redis import RedisStore
from qo.values import Claimed, Offer, Outcome, Registration, Submission, Suspicion, TaskOptions
from tests.servers.redis import shared_server
from tests.store.redis.redis_calls import KINDS, eventually, new_namespace
from tests.store.redis.snapshot import snapshot

LONG_SECONDS = 30.0
LEASE_MS = 60_000


@pytest.fixture(params=KINDS)
async def store(request: pytest.FixtureRequest) -> AsyncIterator[RedisStore]:
    opened = await RedisStore.open(shared_server(request.param).url, namespace=new_namespace())
    yield opened
    await snapshot(opened)
    await opened.close()


@pytest.fixture
async def idle(store: RedisStore) -> AsyncIterator[Idle]:
    waiting = Idle(store)
    yield waiting
    await waiting.end()


class Idle:
    """Workers that wait for work, each in its own call."""

    def __init__(self, store: RedisStore) -> None:
        self._store = store
        self.calls: dict[str, asyncio.Task[Claimed]] = {}

    async def wait(self, worker: str, **options: Any) -> None:
        """Returns when the server has put it down as idle."""
        call = self._store.wait_for_work(worker=worker, tasks=["work"], timeout_seconds=LONG_SECONDS, **options)
        self.calls[worker] = asyncio.create_task(call)
        await eventually(lambda: self._store.client.command("HEXISTS", self._key("idle_workers"), worker))

    async def is_woken(self, worker: str) -> Claimed:
        async with asyncio.timeout(LONG_SECONDS):
            return await self.calls[worker]

    async def sleeps(self, worker: str) -> bool:
        """Whether it is still put down: a step that wakes a worker takes it out."""
        found: int = await self._store.client.command("HEXISTS", self._key("idle_workers"), worker)
        return bool(found)

    async def end(self) -> None:
        for call in self.calls.values():
            call.cancel()
        await asyncio.gather(*self.calls.values(), return_exceptions=True)

    def _key(self, name: str) -> str:
        return f"{self._store.client.prefix}{name}"


def claim_of(worker: str) -> dict[str, Any]:
    return {"worker": worker, "capacity": 9, "claim_id": f"of-{worker}"}


async def submit_and_lose(store: RedisStore, *job_ids: str, max_attempts: int = 3) -> None:
    await store.submit([Submission(id=job_id, task="work", max_attempts=max_attempts) for job_id in job_ids])
    taken = await store.claim(**claim_of("gone"), tasks=["work"], lease_ms=1)
    assert len(taken.leases) == len(job_ids)

    async def have_run_out() -> bool:
        await store.catch_up()
        return not await store.leases()

    await eventually(have_run_out)
    await store.catch_up()  # finds nothing due any more, so that a worker that waits need not look


async def busy(store: RedisStore, worker: str) -> str:
    """A registered worker that runs a job of another task. Returns the token of its lease."""
    tasks = (TaskOptions(name="work"), TaskOptions(name="long"))
    await store.register(Registration(name=worker, tasks=tasks, capacity=5))
    await store.submit([Submission(id=f"long-{worker}", task="long")])
    (lease,) = (await store.claim(**claim_of(worker), tasks=["long"], lease_ms=LEASE_MS)).leases
    return lease.token


async def test_a_suspect_wakes_a_worker_that_may_take_one(store: RedisStore, idle: Idle) -> None:
    await submit_and_lose(store, "a", "b")
    await store.set_paused("work", True)
    await idle.wait("none", suspects=0)
    await idle.wait("one", suspects=1)

    await store.set_paused("work", False)

    assert (await idle.is_woken("one")).more
    assert await idle.sleeps("none")


async def test_another_job_wakes_a_worker_that_may_take_no_suspect(store: RedisStore, idle: Idle) -> None:
    await submit_and_lose(store, "a")
    await idle.wait("none", suspects=0)

    await store.submit([Submission(id="x", task="work")])

    assert (await idle.is_woken("none")).more


async def test_an_offer_gets_a_last_suspect_alone(store: RedisStore, idle: Idle) -> None:
    await submit_and_lose(store, "last", max_attempts=2)
    await store.set_paused("work", True)
    await idle.wait("w", suspects=1, offer=Offer(lease_ms=LEASE_MS, claim_id="offered"))
    await store.submit([Submission(id="x", task="work")])

    await store.set_paused("work", False)

    (lease,) = (await idle.is_woken("w")).leases
    assert (lease.job_id, lease.suspicion) == ("last", Suspicion.LAST)
    assert (await store.claim(**claim_of("w"), tasks=["work"], lease_ms=LEASE_MS)).leases == ()


async def test_a_worker_that_becomes_empty_sleeps_while_another_is_woken(store: RedisStore, idle: Idle) -> None:
    await submit_and_lose(store, "last", max_attempts=2)
    await busy(store, "busy")
    await idle.wait("busy")
    await idle.wait("other", suspects=0)

    await store.submit([Submission(id="x", task="work")])

    assert (await idle.is_woken("other")).more
    assert await idle.sleeps("busy")


async def test_a_worker_is_woken_when_it_need_not_become_empty_any_more(store: RedisStore, idle: Idle) -> None:
    await submit_and_lose(store, "last", max_attempts=2)
    await busy(store, "busy")
    await store.submit([Submission(id="x", task="work")])
    await idle.wait("busy")

    await store.cancel(job_id="last")

    assert (await idle.is_woken("busy")).more


async def test_a_worker_is_woken_when_another_one_has_fewer_jobs(store: RedisStore, idle: Idle) -> None:
    await submit_and_lose(store, "last", max_attempts=2)
    await busy(store, "a")
    token = await busy(store, "b")
    await store.submit([Submission(id="x", task="work")])
    await idle.wait("a")

    await store.finish([Outcome(job_id="long-b", token=token, state=State.SUCCEEDED)])

    assert (await idle.is_woken("a")).more


async def test_a_worker_that_had_to_become_empty_in_its_sleep_is_woken_too(store: RedisStore, idle: Idle) -> None:
    await submit_and_lose(store, "last", max_attempts=2)
    await store.set_paused("work", True)
    await busy(store, "busy")
    await idle.wait("busy")
    await store.set_paused("work", False)
    await store.submit([Submission(id="x", task="work")])
    assert await idle.sleeps("busy")

    await store.cancel(job_id="last")

    assert not await idle.sleeps("busy")
