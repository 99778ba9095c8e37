"""A server whose memory is full: it takes no more jobs, and what is there goes on and ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from redis import Redis

import qo
from qo.errors import StoreUnavailable
from qo.job import Progress, State
from qo.store.redis.store import RedisStore
from qo.values import (
    Accepted,
    Advance,
    Keep,
    Limit,
    Outcome,
    Registration,
    Renewal,
    Source,
    Standing,
    Submission,
    TaskOptions,
    Ticket,
    Unlimited,
    UpkeepDone,
    UpkeepRules,
)
from tests.conformance.invariants import broken_invariants
from tests.conformance.suite.harness import at
from tests.servers.redis import Kind, Server
from tests.store.redis.redis_calls import KINDS
from tests.store.redis.snapshot import snapshot

MEMORY = "maxmemory 8mb"
PAYLOAD = b'"%s"' % (b"x" * 50_000)
LEASE_MS = 60_000
OVERFULL_BYTES = 500_000
"""more than what Lua may let go of at any moment, which would make room; far less than what is forgotten later"""
ENDED = 40
JOBS_AT_MOST = 1000
"""far more than fit"""


@asynccontextmanager
async def full_store(
    kind: Kind, before: Callable[[RedisStore], Awaitable[Any]] | None = None
) -> AsyncIterator[tuple[RedisStore, list[str], str]]:
    """A store, the jobs that it took until it was full, and what the refusal said.

    `before` is called while it is empty.
    """
    with Server(kind, config=[MEMORY, "maxmemory-policy noeviction"]) as server:
        store = await RedisStore.open(server.url)
        try:
            if before is not None:
                await before(store)
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


async def claim(store: RedisStore, *, capacity: int, claim_id: str) -> Any:
    return await store.claim(
        worker="worker-1", tasks=["build"], capacity=capacity, lease_ms=LEASE_MS, claim_id=claim_id
    )


async def forget_all_that_ended(store: RedisStore) -> list[str]:
    forgotten: list[str] = []
    done = UpkeepDone(more=True)
    while done.more:
        done = await store.upkeep(UpkeepRules(keep=Keep(ms=0, jobs=0, events=0, audit=0)))
        forgotten += done.forgotten
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
        assert (await store.line(limit=0)).queued == len(ids) > ENDED
        with pytest.raises(qo.JobNotFound):
            await store.job("one more")


@pytest.mark.parametrize("kind", KINDS)
async def test_on_a_full_server_jobs_start_are_kept_end_and_are_forgotten_and_then_it_takes_more(kind: Kind) -> None:
    async with full_store(kind) as (store, ids, _):
        first, second = (await claim(store, capacity=2, claim_id="a claim")).leases
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
        assert (await store.line(limit=0)).queued == len(ids) - ENDED + 1
        assert broken_invariants(await snapshot(store)) == []


@pytest.mark.parametrize("kind", KINDS)
async def test_on_a_full_server_slots_are_given_back_and_go_to_those_that_wait(kind: Kind) -> None:
    async def take_and_wait(store: RedisStore) -> None:
        await store.set_limits([Limit(group="gpu", slots=1, source=Source.OPERATOR)])
        tickets = [Ticket(holder=one, groups=("gpu",), lease_ms=LEASE_MS, wait_ms=LEASE_MS) for one in ("a", "b")]
        await store.acquire(tickets)

    async with full_store(kind, before=take_and_wait) as (store, _, _):
        released = await store.release([("a", None)])

        assert released == [True]
        assert [slot.holder for slot in (await store.groups(["gpu"]))[0].slots] == ["b"]
        assert broken_invariants(await snapshot(store)) == []


@pytest.mark.parametrize("kind", KINDS)
async def test_on_a_full_server_leases_of_the_dead_end(kind: Kind) -> None:
    async with full_store(kind) as (store, ids, _):
        (lease,) = (await claim(store, capacity=1, claim_id="of a worker that dies")).leases
        for now in range(lease.expires_at_ms - LEASE_MS, lease.expires_at_ms + 2 * LEASE_MS, LEASE_MS // 4):
            await at(store, now).catch_up()

        assert lease.job_id == ids[0]
        assert await store.leases() == ()
        assert (await store.job(ids[0])).state is State.QUEUED
        assert broken_invariants(await snapshot(store)) == []


@pytest.mark.parametrize("kind", KINDS)
async def test_on_a_full_server_people_and_workers_can_still_change_what_is_there(kind: Kind) -> None:
    async with full_store(kind) as (store, ids, _):
        leases = (await claim(store, capacity=3, claim_id="a claim")).leases
        running, asking, failing = [{"job_id": lease.job_id, "token": lease.token} for lease in leases]
        error = qo.JobError(message="It broke.")

        await store.advance([Advance(**running, progress=Progress(1.0), checkpoint=b"half")])
        await store.finish(
            [Outcome(**asking, state=State.CONFIRMING), Outcome(**failing, state=State.FAILED, error=error)]
        )
        reminders = (await store.upkeep(UpkeepRules(reminder_ages_ms=(0,)))).reminders
        confirmed = await store.confirm(asking["job_id"])
        retried = await store.retry(failing["job_id"])
        (moved_up,) = await store.set_priority(10, job_id=ids[4])
        await store.move(ids[5], before=ids[4])
        await store.set_limits([Limit(group="ports", slots=1, source=Source.OPERATOR)])
        await store.set_paused("build", True)
        await store.set_paused("build", False)
        await store.set_limits([Unlimited(group="ports")])
        await store.set_tier("ada", Standing(tier="partner", boost=1))
        await store.register(Registration(name="worker-1", tasks=(TaskOptions(name="build"),), capacity=1))
        await store.upkeep(UpkeepRules(aging_period_ms=1))
        await store.upkeep(UpkeepRules(unconfirmed_after_ms=1, unconfirmed_error=error))
        await store.revoke("ports", 0, force=True)

        assert [reminder.job_id for reminder in reminders] == [asking["job_id"]]
        assert [confirmed.state, retried.state, moved_up.priority] == [State.QUEUED, State.QUEUED, 10]
        assert broken_invariants(await snapshot(store)) == []
        with pytest.raises(StoreUnavailable, match="out of memory"):
            await store.submit([submission("still too early")])


async def test_a_worker_drains_a_full_server() -> None:
    async with full_store("valkey") as (store, ids, _):
        queue = qo.Queue(store, qo.settings.load_settings({}, environ={}))
        worker = qo.Worker(queue, "worker-1", concurrency=5)
        worker.task("build")(lambda: "done")

        await worker.run_until_idle()

        jobs = await queue.jobs(limit=JOBS_AT_MOST)
        assert {job.id: (job.state, job.attempts) for job in jobs} == dict.fromkeys(ids, (qo.State.SUCCEEDED, 1))
        assert await store.leases() == ()
