"""Many at once: nobody gets what somebody else has, and no limit is exceeded at any instant."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from qo.job import State
from qo.store.contract import Store
from qo.values import Renewal
from tests.conformance.invariants import broken_invariants, over_capacity
from tests.conformance.suite.harness import (
    LEASE,
    NOW,
    ClaimArguments,
    accepted,
    acquire,
    at,
    claim,
    fresh_id,
    group_status,
    ids,
    limit,
    line,
    numbered,
    submission,
    submit_all,
    succeed,
    try_submit,
)

pytestmark = pytest.mark.small_bounds


async def test_of_many_workers_that_claim_at_once_no_two_get_the_same_job(store: Store) -> None:
    jobs = numbered("j", 60)
    await submit_all(store, jobs)

    answers = await asyncio.gather(*(claim(store, capacity=3, worker=f"w{number}") for number in range(30)))

    taken = [job_id for leases in answers for job_id in ids(leases)]
    assert sorted(taken) == jobs
    assert all(len(leases) <= 3 for leases in answers)


async def test_capacity_many_claims_at_once_never_take_more_than_the_limit(store: Store) -> None:
    await limit(store, "gpu", 7)
    await submit_all(store, numbered("j", 50), groups=("gpu",))

    answers = await asyncio.gather(*(claim(store, capacity=4, worker=f"w{number}") for number in range(20)))

    leases = [lease for one in answers for lease in one]
    assert sorted(lease.slots["gpu"] for lease in leases) == list(range(7))
    assert (await group_status(store, "gpu")).active == 7
    assert sorted(ids(leases)) == numbered("j", 7)


async def test_workers_that_claim_and_finish_at_once_run_every_job_once_and_in_bounds(store: Store) -> None:
    await limit(store, "gpu", 3)
    await limit(store, "global", 5)
    jobs = numbered("j", 40)
    await at(store, NOW).submit(
        [submission(job_id, groups=("gpu",) if number % 2 else ()) for number, job_id in enumerate(jobs)]
    )
    running: Counter[str] = Counter()
    most: Counter[str] = Counter()
    done: list[str] = []

    async def work(worker: str) -> None:
        while len(done) < len(jobs):
            leases = await claim(store, capacity=2, worker=worker)
            for lease in leases:
                for group in lease.slots:
                    running[group] += 1
                    most[group] = max(most[group], running[group])
            await asyncio.sleep(0)  # the others go on meanwhile
            for lease in leases:
                for group in lease.slots:
                    running[group] -= 1
                done.append(lease.job.id)
            await succeed(store, *leases)

    await asyncio.gather(*(work(f"w{number}") for number in range(6)))

    assert sorted(done) == jobs
    assert (most["gpu"] <= 3, most["global"] <= 5) == (True, True)
    assert {job.state for job in (await store.jobs(limit=100)).jobs} == {State.SUCCEEDED}


async def test_the_same_id_submitted_many_times_at_once_is_one_job(store: Store) -> None:
    answers = await asyncio.gather(*(try_submit(store, "same", user=f"u{number}") for number in range(40)))

    assert sum(not accepted(answer).known for answer in answers) == 1
    assert len({accepted(answer).job.user for answer in answers}) == 1
    assert await line(store) == ["same"]


async def test_the_same_claim_sent_twice_at_once_is_one_claim(store: Store) -> None:
    await submit_all(store, "abcdef")
    claim_id = fresh_id("c")
    asked: ClaimArguments = {"worker": "w1", "tasks": ["work"], "capacity": 2, "lease_ms": LEASE, "claim_id": claim_id}

    first, second = await asyncio.gather(at(store, NOW).claim(**asked), at(store, NOW).claim(**asked))

    assert first.leases == second.leases
    assert (await store.line(limit=0)).queued == 4


async def test_the_same_finish_sent_twice_at_once_ends_one_lease(store: Store) -> None:
    await submit_all(store, "ab")
    leases = await claim(store, capacity=2)

    answers = await asyncio.gather(*(succeed(store, *leases) for _ in range(5)))

    assert all(one.state is State.SUCCEEDED and not one.lost for answer in answers for one in answer)
    kinds = [event.kind for event in (await store.events(0)).events]
    assert kinds.count("succeeded") == 2


async def test_reading_goes_on_while_others_write(store: Store) -> None:
    await submit_all(store, numbered("j", 30))

    counts: list[int] = []

    async def read() -> None:
        for _ in range(10):
            counts.append((await store.line(limit=0)).queued)

    await asyncio.gather(read(), *(claim(store, capacity=5) for _ in range(6)))

    assert counts == sorted(counts, reverse=True)
    assert (await store.line(limit=0)).queued == 0


@pytest.mark.parametrize("seed", range(4))
async def test_capacity_open_and_one_owner_hold_after_every_step_of_a_busy_hour(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]], seed: int
) -> None:
    """Every step is followed by a look at the whole state."""
    choose = random.Random(seed)
    held, grants = [], []
    before = await snapshot()
    for number in range(90):
        now = NOW + number * 1000
        groups = tuple(choose.sample(["gpu", "api", "ports"], choose.randint(1, 2)))
        match choose.randrange(10):
            case 0 | 1 | 2:
                await at(store, now).submit([submission(f"j{number}", groups=groups, user=choose.choice(["u1", "u2"]))])
            case 3 | 4:
                held += await claim(store, capacity=choose.randint(1, 3), now=now)
            case 5 if held:
                await succeed(store, held.pop(choose.randrange(len(held))), now=now)
            case 6:
                grants.append(await acquire(store, f"h{number}", *groups, now=now))
            case 7 if grants:
                grant = grants.pop(choose.randrange(len(grants)))
                await at(store, now).release([(grant.holder, None)])
            case 8:
                await limit(store, choose.choice(["gpu", "api", "user:u1", "global"]), choose.randint(0, 3), now=now)
            case _:
                await at(store, now).renew(
                    [Renewal(holder=lease.job.id, token=lease.token, lease_ms=LEASE) for lease in held]
                )
        after = await snapshot()
        assert over_capacity(before, after) == []
        assert broken_invariants(after) == []
        before = after
