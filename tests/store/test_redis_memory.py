"""A server whose memory is full: it takes no more jobs, and what is there goes on and ends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from invariants import broken_invariants
from redis import Redis
from redis_calls import KINDS
from redis_snapshot import snapshot
from servers import Kind, Server

import qo
from qo.errors import StoreUnavailable
from qo.job import State
from qo.store.redis.store import RedisStore
from qo.store.values import Accepted, Outcome, Portion, Renewal, Submission

MEMORY = "maxmemory 8mb"
PAYLOAD = b'"%s"' % (b"x" * 50_000)
LEASE_MS = 60_000
OVERFULL_BYTES = 500_000
"""more than what Lua may let go of at any moment, which would make room; far less than what is forgotten later"""
ENDED = 40
JOBS_AT_MOST = 1000
"""far more than fit"""


@asynccontextmanager
async def full_store(kind: Kind) -> AsyncIterator[tuple[RedisStore, list[str], str]]:
    """A store, the jobs that it took until it was full, and what the refusal said."""
    with Server(kind, config=[MEMORY, "maxmemory-policy noeviction"]) as server:
        store = await RedisStore.open(server.url)
        try:
            ids, refusal = await fill(store)
            with Redis(port=server.port) as operator:
                operator.config_set("maxmemory", operator.info("memory")["used_memory"] - OVERFULL_BYTES)
            yield store, ids, refusal
        finally:
            await store.close()


async def fill(store: RedisStore) -> tuple[list[str], str]:
    ids: list[str] = []
    for number in range(JOBS_AT_MOST):
        try:
            (answer,) = await store.submit([submission(f"job-{number}")])
        except StoreUnavailable as refusal:
            return ids, str(refusal)
        assert isinstance(answer, Accepted)
        ids.append(answer.job.id)
    raise AssertionError("it was never full")


def submission(job_id: str) -> Submission:
    return Submission(id=job_id, task="build", user="ada", groups=("ports",), payload=PAYLOAD)


async def claim(store: RedisStore, *, places: int, claim_id: str) -> Any:
    return await store.claim(worker="worker-1", tasks=["build"], places=places, lease_ms=LEASE_MS, claim_id=claim_id)


async def forget_all_that_ended(store: RedisStore) -> list[str]:
    forgotten: list[str] = []
    portion = Portion(ids=(), more=True)
    while portion.more:
        portion = await store.forget(keep_ms=0, keep_jobs=0, keep_events=0, keep_audit=0)
        forgotten += portion.ids
    return forgotten


@pytest.mark.parametrize("kind", KINDS)
async def test_a_full_server_refuses_a_submit_in_one_sentence_and_nothing_is_half_done(kind: Kind) -> None:
    async with full_store(kind) as (store, ids, refusal):
        before = await snapshot(store)
        with pytest.raises(StoreUnavailable):
            await store.submit([submission("one more"), submission("and another")])

        assert refusal == (
            f"Redis at {store.client.address} is out of memory, nothing was changed; "
            "raise its maxmemory or let jobs end and be forgotten."
        )
        assert await snapshot(store) == before
        assert await store.waiting_count() == len(ids) > ENDED
        with pytest.raises(qo.JobNotFound):
            await store.job("one more")


@pytest.mark.parametrize("kind", KINDS)
async def test_on_a_full_server_jobs_start_are_kept_end_and_are_forgotten_and_then_it_takes_more(kind: Kind) -> None:
    async with full_store(kind) as (store, ids, _):
        first, second = (await claim(store, places=2, claim_id="a claim")).leases
        renewals = [Renewal(holder=each.job.id, token=each.token, lease_ms=LEASE_MS) for each in (first, second)]
        renewed = (await store.renew(renewals)).held
        done, failed = await store.finish(
            [
                Outcome(job_id=first.job.id, token=first.token, state=State.SUCCEEDED, result=PAYLOAD),
                Outcome(
                    job_id=second.job.id,
                    token=second.token,
                    state=State.FAILED,
                    error=qo.JobError(message="It broke."),
                ),
            ]
        )
        (cancelled,) = await store.cancel(job_id=ids[2], by="ops")
        with pytest.raises(StoreUnavailable, match="out of memory"):
            await store.submit([submission("too early")])
        assert broken_invariants(await snapshot(store)) == []

        # Enough of them: results, and scripts that the server had not been sent before, have taken memory meanwhile.
        for job_id in ids[3:ENDED]:
            await store.cancel(job_id=job_id, by="ops")
        forgotten = await forget_all_that_ended(store)
        (again,) = await store.submit([submission("at last")])

        assert [lease.job.id for lease in (first, second)] == ids[:2]
        assert [held.lost for held in renewed] == [False, False]
        assert [done.state, failed.state, cancelled.state] == [State.SUCCEEDED, State.FAILED, State.CANCELLED]
        assert sorted(forgotten) == sorted(ids[:ENDED])
        assert isinstance(again, Accepted)
        assert await store.waiting_count() == len(ids) - ENDED + 1
        assert broken_invariants(await snapshot(store)) == []


async def test_a_worker_drains_a_full_server() -> None:
    async with full_store("valkey") as (store, ids, _):
        queue = qo.Queue(store, qo.settings.load_settings({}, environ={}))
        worker = qo.Worker(queue, "worker-1", concurrency=5)
        worker.task("build")(lambda: "done")

        await worker.run_until_idle()

        jobs = await queue.jobs(limit=JOBS_AT_MOST)
        assert {job.id: (job.state, job.attempts) for job in jobs} == dict.fromkeys(ids, (qo.State.SUCCEEDED, 1))
        assert await store.leases() == ()
