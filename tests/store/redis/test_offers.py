"""A worker that waits may offer its capacity: the step that makes a job claimable then claims it for that worker."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec
import pytest

from qo.event import GRANTED
from qo.job import State
from qo.policy.checks import MAX_TIME_MS
from qo.store.redis import RedisStore
from qo.values import Advance, Bounds, Claimed, Keep, Offer, Outcome, Registration, Standing, TaskOptions, UpkeepRules
from tests.conformance.suite.harness import (
    LEASE,
    NOW,
    SECOND,
    acquire,
    limit,
    standing,
    start,
    submission,
    submit,
    submit_all,
    submit_list,
    succeed,
)
from tests.servers.redis import Kind, shared_server
from tests.store.redis.redis_calls import KINDS, eventually, new_namespace
from tests.store.redis.snapshot import snapshot

LONG_SECONDS = 30.0


@pytest.fixture(params=KINDS)
async def both(request: pytest.FixtureRequest) -> AsyncIterator[list[RedisStore]]:
    """One namespace, as two programs have it; at the end every key of it has to fit the others."""
    url, namespace = shared_server(request.param).url, new_namespace()
    opened = [await RedisStore.open(url, namespace=namespace) for _ in range(2)]
    yield opened
    await snapshot(opened[0])
    for each in opened:
        await each.close()


@pytest.fixture
def store(both: list[RedisStore]) -> RedisStore:
    return both[0]


@asynccontextmanager
async def offering(
    store: RedisStore, worker: str = "w1", *, offer: Offer | None = None, tasks: Sequence[str] = ("work",)
) -> AsyncIterator[asyncio.Task[Claimed]]:
    """Inside, the server has put it down as idle."""
    offer = offer or Offer(lease_ms=LEASE, claim_id=f"of-{worker}")
    wait = store.wait_for_work(worker=worker, tasks=tasks, timeout_seconds=LONG_SECONDS, offer=offer)
    waiting = asyncio.create_task(wait)
    await eventually(lambda: store.client.command("HEXISTS", f"{store.client.prefix}idle_workers", worker))
    try:
        yield waiting
    finally:
        waiting.cancel()
        await asyncio.wait([waiting])


def jobs_of(claimed: Claimed) -> list[str]:
    return [lease.job.id for lease in claimed.leases]


async def look(store: RedisStore, worker: str, claim_id: str) -> Claimed:
    offer = Offer(lease_ms=LEASE, claim_id=claim_id)
    return await store.wait_for_work(worker=worker, tasks=["work"], timeout_seconds=0, offer=offer)


# --- what an offer brings ---------------------------------------------------------------------------------------


async def test_an_offer_gets_the_job_as_a_claim_would(store: RedisStore) -> None:
    async with offering(store) as waiting:
        before = (await store.events(None)).cursor
        await submit(store, "a", payload=b'{"n":1}', now=None)
        (lease,) = (await waiting).leases

    assert (lease.job.id, lease.payload, lease.job.state, lease.job.attempts) == ("a", b'{"n":1}', State.STARTING, 1)
    assert (lease.job.worker, lease.job.token) == ("w1", lease.token)
    assert [event.kind for event in (await store.events(before)).events] == ["queued", "starting"]
    assert [held.token for held in await store.leases()] == [lease.token]
    assert await succeed(store, lease, now=None)


async def test_an_offer_brings_all_that_a_claim_would(store: RedisStore) -> None:
    content = bytes(range(256)) * 300
    options = TaskOptions(name="work", groups=("disk", "gpu"))
    await store.register(Registration(name="w1", tasks=(options,), capacity=1, lifetime_ms=LEASE))
    await limit(store, "gpu", 2)
    await limit(store, "user:ada", 1)
    await submit(store, "a", payload=content, user="ada", now=None)
    (first,) = (await claim_one(store, "c1")).leases
    await store.advance([Advance(job_id="a", token=first.token, checkpoint=content)])
    async with offering(store) as waiting:
        await store.revoke("user:ada", 0, force=True)
        (offered,) = (await waiting).leases
    (claimed,) = (await claim_one(store, "of-w1")).leases

    assert offered == claimed
    assert (offered.payload, offered.checkpoint, offered.job.attempts) == (content, content, 2)
    assert offered.slots == {"gpu": 0, "user:ada": 0}
    assert offered.job.groups == ("global", "work", "priority:50", "user:ada", "disk", "gpu")


async def claim_one(store: RedisStore, claim_id: str) -> Claimed:
    return await store.claim(worker="w1", tasks=["work"], capacity=1, lease_ms=LEASE, claim_id=claim_id)


@pytest.mark.parametrize("message", [b"of another version", b"\x98", b"\xff\x00"])
async def test_a_message_that_cannot_be_read_wakes_all_the_same(store: RedisStore, message: bytes) -> None:
    async with offering(store) as waiting:
        await store.client.command("SPUBLISH", f"{store.client.prefix}wake:w1", message)

        assert await waiting == Claimed(more=True)


async def test_without_an_offer_a_worker_is_only_woken(store: RedisStore) -> None:
    waiting = asyncio.create_task(store.wait_for_work(worker="w1", tasks=["work"], timeout_seconds=LONG_SECONDS))
    await eventually(lambda: store.client.command("HEXISTS", f"{store.client.prefix}idle_workers", "w1"))

    await submit(store, "a", now=None)

    assert await waiting == Claimed(more=True)
    assert (await store.job("a")).state is State.QUEUED


@pytest.mark.parametrize(("gated", "plain"), [("mail", "scan"), ("scan", "mail")])  # Lua's order of names is its own
async def test_a_worker_that_is_given_a_job_of_another_task_does_not_count_for_the_task_it_was_woken_for(
    store: RedisStore, gated: str, plain: str
) -> None:
    """One step opens the gate of a task and gives back a job of another; each of two workers gets one of the jobs."""
    tasks = [gated, plain]
    await limit(store, gated, 1, now=None)
    await store.submit([submission("holds", task="other", groups=(gated,)), submission("back", task=plain)])
    claimed = await store.claim(worker="w9", tasks=["other", plain], capacity=2, lease_ms=LEASE, claim_id="c")
    await submit(store, "behind the gate", task=gated, priority=10, now=None)
    async with offering(store, "w1", tasks=tasks) as one, offering(store, "w2", tasks=tasks) as other:
        held = {lease.job_id: lease for lease in claimed.leases}
        await store.finish(
            [
                Outcome(job_id="holds", token=held["holds"].token, state=State.SUCCEEDED),
                Outcome(job_id="back", token=held["back"].token, state=State.QUEUED),
            ]
        )
        given = [jobs_of(await asyncio.wait_for(waiting, 3)) for waiting in (one, other)]

    assert sorted(given) == [["back"], ["behind the gate"]]


@pytest.mark.parametrize("kind", KINDS)
async def test_where_a_bound_ends_the_search_for_an_offer_its_worker_is_woken_all_the_same(kind: Kind) -> None:
    bounds = Bounds(examine=1)
    store = await RedisStore.open(shared_server(kind).url, namespace=new_namespace(), bounds=bounds)
    for group in ("gpu", "api"):
        await limit(store, group, 0, now=None)
    await submit(store, "blocked twice", groups=("gpu", "api"), now=None)
    await submit(store, "blocked once", groups=("gpu",), now=None)
    async with offering(store):
        await limit(store, "gpu", 1, now=None)

        assert not await store.client.command("HEXISTS", f"{store.client.prefix}idle_workers", "w1")  # it was told
    assert jobs_of(await claim_one(store, "c1")) == ["blocked once"]
    await store.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_step_that_has_given_enough_bytes_only_wakes_the_others(kind: Kind) -> None:
    bounds = Bounds(claim_bytes=1500)
    store = await RedisStore.open(shared_server(kind).url, namespace=new_namespace(), bounds=bounds)
    content = b'"' + b"x" * 998 + b'"'
    async with offering(store, "w1") as first, offering(store, "w2") as second, offering(store, "w3") as third:
        await submit_all(store, ["a", "b", "c"], payload=content, now=None)

        assert [jobs_of(await first), jobs_of(await second)] == [["a"], ["b"]]
        assert await third == Claimed(more=True)
        assert (await store.job("c")).state is State.QUEUED
    await snapshot(store)
    await store.close()


async def test_each_offer_gets_one_job_and_the_rest_stay_in_line(store: RedisStore) -> None:
    async with offering(store, "w1") as first, offering(store, "w2") as second:
        await submit_all(store, ["a", "b", "c"], now=None)

        assert [jobs_of(await first), jobs_of(await second)] == [["a"], ["b"]]
        assert (await store.job("c")).state is State.QUEUED
        assert (await look(store, "w3", "another")).more


async def test_what_comes_first_in_line_is_what_an_offer_gets(store: RedisStore) -> None:
    await store.set_paused("work", True)
    await submit_all(store, ["late"], now=None)
    await submit(store, "urgent", priority=10, now=None)
    async with offering(store) as waiting:
        await store.set_paused("work", False)

        assert jobs_of(await waiting) == ["urgent"]


async def test_a_job_that_entered_the_line_again_in_the_step_that_claims_it_leaves_it_wholly(store: RedisStore) -> None:
    first = submission("a", user="anna", standing=Standing(tier="free"))
    second = submission("b", user="anna", standing=Standing(tier="pro"), run_at_ms=MAX_TIME_MS)
    async with offering(store) as waiting:
        await submit_list(store, [first, second], now=None)  # the tier that comes with b holds for a as well

        assert jobs_of(await waiting) == ["a"]
    assert (await store.line(limit=1)).jobs == ()


async def test_to_start_a_job_costs_the_same_however_many_tasks_its_worker_takes(store: RedisStore) -> None:
    many = ["work", *(f"other-{number}" for number in range(20))]
    costs = []
    for number, tasks in enumerate([["work"], ["work"], many]):  # the first time it costs more
        async with offering(store, f"w{number}", tasks=tasks) as waiting:
            before = await commands(store)
            await submit(store, f"job-{number}", now=None)
            costs.append(await commands(store) - before)
            assert jobs_of(await waiting) == [f"job-{number}"]

    assert costs[2] < costs[1] + len(many) / 2


async def commands(store: RedisStore) -> int:
    """How many the server has carried out, those of functions among them."""
    stats = (await store.client.command("INFO", "commandstats")).decode()
    return sum(map(int, re.findall(r"calls=(\d+)", stats)))


async def test_workers_that_were_woken_are_passed_by_until_they_wait_again(store: RedisStore) -> None:
    both_tasks = ["work", "other"]
    async with offering(store, "w1", tasks=both_tasks) as first, offering(store, "w2", tasks=both_tasks) as second:
        await submit(store, "a", now=None)
        await submit(store, "b", task="other", now=None)
        assert [jobs_of(await first), jobs_of(await second)] == [["a"], ["b"]]

        await submit(store, "c", task="other", now=None)
        assert (await store.job("c")).state is State.QUEUED


async def test_an_old_name_met_under_a_task_that_its_worker_no_longer_takes_does_not_wake_or_forget_it(
    store: RedisStore,
) -> None:
    await store.client.command("ZADD", f"{store.client.prefix}idle:old", 1, "w1")
    async with offering(store, "w1") as waiting:
        await submit(store, "for-nobody", task="old", now=None)
        assert not waiting.done()

        await submit(store, "a", now=None)
        assert jobs_of(await asyncio.wait_for(waiting, 3)) == ["a"]


async def test_a_worker_that_left_or_was_forgotten_leaves_nothing_of_its_idleness(store: RedisStore) -> None:
    for worker in ("left", "died"):
        registration = Registration(name=worker, tasks=(TaskOptions(name="work"),), capacity=1, lifetime_ms=1)
        await store.register(registration)
        async with offering(store, worker) as waiting:
            await submit(store, f"for-{worker}", now=None)
            await waiting

    await store.register(Registration(name="left", tasks=(), capacity=0, lifetime_ms=1))
    assert await idle_for_work(store) == [b"died"]
    await eventually(lambda: nothing_left(store))


async def test_no_job_is_claimed_for_the_offer_of_a_worker_whose_name_another_has_taken(store: RedisStore) -> None:
    """The new one listens before it has put itself down, and knows nothing of what was offered before it came."""
    dead = Registration(name="w1", instance="dead", tasks=(TaskOptions(name="work"),), capacity=1)
    await store.register(dead)
    async with offering(store, "w1"):
        pass
    await store.register(msgspec.structs.replace(dead, instance="new", replaces="dead"))

    async with store.waking.listen(f"{store.client.prefix}wake:w1"):
        await submit(store, "a", now=None)

    assert (await store.job("a")).state is State.QUEUED


async def test_who_leaves_under_a_name_that_another_has_taken_does_not_end_that_ones_idleness(
    store: RedisStore,
) -> None:
    left = Registration(name="w1", instance="left", tasks=(TaskOptions(name="work"),), capacity=1)
    await store.register(left)
    await store.register(msgspec.structs.replace(left, instance="new", replaces="left"))
    async with offering(store, "w1") as waiting:
        await store.register(msgspec.structs.replace(left, tasks=()))
        await submit(store, "a", now=None)

        assert jobs_of(await asyncio.wait_for(waiting, 3)) == ["a"]


async def nothing_left(store: RedisStore) -> bool:
    await store.upkeep(UpkeepRules(keep=Keep(ms=0, jobs=0, events=0, audit=0)))
    return not await idle_for_work(store)


async def idle_for_work(store: RedisStore) -> list[bytes]:
    names: list[bytes] = await store.client.command("ZRANGE", f"{store.client.prefix}idle:work", 0, -1)
    return names


async def test_no_limit_is_exceeded_by_offers(store: RedisStore) -> None:
    await limit(store, "gpu", 1, now=None)
    async with offering(store, "w1") as first, offering(store, "w2") as second:
        await submit_all(store, ["a", "b"], groups=("gpu",), now=None)
        (lease,) = (await first).leases
        assert lease.slots == {"gpu": 0}
        assert not second.done()
        assert (await store.groups(["gpu"]))[0].active == 1

        await succeed(store, lease, now=None)

        assert jobs_of(await second) == ["b"]
        assert (await store.groups(["gpu"]))[0].active == 1


async def test_a_caller_who_waits_before_the_job_gets_the_slot_and_not_the_offer(store: RedisStore) -> None:
    await limit(store, "gpu", 1, now=None)
    holder = await start(store, "holder", groups=("gpu",), now=None)
    assert (await acquire(store, "caller", "gpu", now=None)).waiting
    await submit(store, "a", groups=("gpu",), now=None)
    async with offering(store) as waiting:
        await succeed(store, holder, now=None)
        granted = [event.subject for event in (await store.events(0)).events if event.kind == GRANTED]
        assert (granted, (await store.job("a")).state) == (["caller"], State.QUEUED)

        await store.release([("caller", None)])

        assert jobs_of(await waiting) == ["a"]


# --- when the worker does not hear of it ------------------------------------------------------------------------


@pytest.mark.parametrize("asks_by", ["wait_for_work", "claim"])
async def test_a_worker_that_missed_the_message_is_answered_by_its_claim_id(store: RedisStore, asks_by: str) -> None:
    async with offering(store):
        pass  # it has stopped waiting, and the server does not know yet
    await submit_all(store, ["a", "b"], now=None)
    assert (await store.job("a")).state is State.STARTING

    if asks_by == "claim":
        found = await store.claim(worker="w1", tasks=["work"], capacity=5, lease_ms=LEASE, claim_id="of-w1")
    else:
        found = await look(store, "w1", "of-w1")

    assert jobs_of(found) == ["a"]
    assert (await store.job("a")).attempts == 1


async def test_nothing_is_claimed_for_a_worker_that_is_gone(both: list[RedisStore]) -> None:
    """Killed, it stays put down as idle for some seconds, but its connection is closed."""
    store, theirs = both
    async with offering(theirs):
        await theirs.close()
        await eventually(lambda: nobody_listens(store, "w1"))

        await submit(store, "a", now=None)

        assert (await store.job("a")).state is State.QUEUED


async def nobody_listens(store: RedisStore, worker: str) -> bool:
    _, listening = await store.client.command("PUBSUB", "SHARDNUMSUB", f"{store.client.prefix}wake:{worker}")
    return int(listening) == 0


async def test_a_message_for_an_older_offer_only_wakes(store: RedisStore) -> None:
    """Its job was answered by the claim id already, so whoever starts it now would start it twice."""
    channel = f"{store.client.prefix}wake:w1"
    async with store.waking.listen(channel) as listening:
        async with offering(store) as waiting:
            await submit(store, "a", now=None)
            assert jobs_of(await waiting) == ["a"]
        message = await listening.message(LONG_SECONDS)
        assert message

        async with offering(store, offer=Offer(lease_ms=LEASE, claim_id="a newer one")) as waiting:
            await store.client.command("SPUBLISH", channel, message)

            assert await waiting == Claimed(more=True)


async def test_no_offer_stands_after_its_time(store: RedisStore) -> None:
    offer = Offer(lease_ms=LEASE, claim_id="offered")
    assert await store.wait_for_work(worker="w1", tasks=["work"], timeout_seconds=0.02, offer=offer) == Claimed()

    await submit(store, "a", now=None)

    assert (await store.job("a")).state is State.QUEUED


async def test_a_later_claim_takes_the_offer_back(store: RedisStore) -> None:
    async with offering(store):
        pass
    assert not (await store.claim(worker="w1", tasks=["work"], capacity=1, lease_ms=LEASE, claim_id="of-w1")).leases

    await submit(store, "a", now=None)

    assert (await store.job("a")).state is State.QUEUED


# --- overdue jobs -------------------------------------------------------------------------------------------------


async def test_what_joins_because_an_offer_met_an_overdue_job_wakes_another_worker(store: RedisStore) -> None:
    await limit(store, "api", 1, now=NOW)
    held = await acquire(store, "caller", "api", now=NOW)
    late = submission(
        "late",
        groups=("api",),
        user="ada",
        standing=standing(daily_quota=1),
        start_within_ms=SECOND,
        overdue_message="-",
    )
    await submit_list(store, [late])
    await submit(store, "fresh", groups=("api",))
    await submit(store, "tomorrow", user="ada")
    async with offering(store, "w1") as one, offering(store, "w2") as other:
        store.clock = lambda: NOW + 2 * SECOND
        await store.release([("caller", held.token)])

        assert sorted(jobs_of(await one) + jobs_of(await other)) == ["fresh", "tomorrow"]
    assert (await store.job("late")).state is State.FAILED
