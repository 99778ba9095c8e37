"""A step that changes which slots turns keep wakes idle workers, and one that frees only kept slots wakes none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from qo.job import State
from qo.store.redis import RedisStore
from qo.store.redis import store as store_module
from qo.values import Claimed, Lease, Limit, Offer, Outcome, Registration, Source, Submission, TaskOptions, Unlimited
from tests.conformance.suite.harness import LEASE, fresh_id
from tests.servers.redis import shared_server
from tests.store.redis.redis_calls import KINDS, eventually, new_namespace
from tests.store.redis.snapshot import snapshot

HOUR_SECONDS = 3600.0
"""between two looks of an idle worker, and how long it is put down as idle: it hears by a message or not at all"""
EXPECTED_SECONDS = 20
TASKS = ("work", "other")


@pytest.fixture(params=KINDS)
async def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RedisStore]:
    """At the end every key has to fit the others."""
    monkeypatch.setattr(store_module, "NET_SECONDS", HOUR_SECONDS)
    opened = await RedisStore.open(shared_server(request.param).url, namespace=new_namespace())
    yield opened
    await snapshot(opened)
    await opened.close()


# --- a job whose turn it is -------------------------------------------------------------------------------------


async def register(store: RedisStore, *, turn_after: int) -> None:
    tasks = tuple(TaskOptions(name=task) for task in TASKS)
    await store.register(Registration(name="w", tasks=tasks, capacity=50, turn_after=turn_after))


async def limit(store: RedisStore, group: str, slots: int) -> None:
    await store.set_limits([Limit(group=group, slots=slots, source=Source.OPERATOR)])


async def submit(
    store: RedisStore, job_id: str, *groups: str, task: str = "work", priority: int = 50, user: str | None = None
) -> None:
    await store.submit([Submission(id=job_id, task=task, groups=groups, priority=priority, user=user)])


async def claim(store: RedisStore, tasks: Sequence[str] = TASKS, capacity: int = 1) -> tuple[Lease, ...]:
    claimed = await store.claim(worker="w", tasks=tasks, capacity=capacity, lease_ms=LEASE, claim_id=fresh_id("claim"))
    return claimed.leases


async def finish(store: RedisStore, lease: Lease) -> None:
    await store.finish([Outcome(job_id=lease.job_id, token=lease.token, state=State.SUCCEEDED)])


async def a_is_kept(store: RedisStore, *, user: str | None = None) -> Lease:
    """`first` waits for `b` and has the only slot of `a` kept for it, for which `next` waits. Returns the lease that
    holds `b`."""
    await limit(store, "a", 1)
    holder = await begin_turn(store, "a", user=user)
    await submit(store, "next", "a")
    assert await claim(store) == ()
    (status,) = await store.groups(["a"])
    assert (status.active, status.kept) == (0, "first")
    return holder


async def begin_turn(store: RedisStore, *groups: str, user: str | None = None) -> Lease:
    """It is the turn of `first`, a job of these groups and of `b`: when it joins it is ready, when it is looked at, `b`
    is full. Returns the lease that holds `b`."""
    await register(store, turn_after=1)
    await limit(store, "b", 2)
    await submit(store, "in-b", "b", task="other")
    (holder,) = await claim(store)
    await submit(store, "first", *groups, "b", priority=10, user=user)
    await limit(store, "b", 1)
    assert await claim(store) == ()
    await register(store, turn_after=8)
    return holder


@asynccontextmanager
async def idle(
    store: RedisStore, worker: str, *, tasks: Sequence[str] = ("work",), offers: bool = False
) -> AsyncIterator[asyncio.Task[Claimed]]:
    """Inside, the server has put it down as idle."""
    offer = Offer(lease_ms=LEASE, claim_id=fresh_id("offer")) if offers else None
    wait = store.wait_for_work(worker=worker, tasks=tasks, timeout_seconds=HOUR_SECONDS, offer=offer)
    waiting = asyncio.create_task(wait)
    await eventually(lambda: is_put_down(store, worker))
    try:
        yield waiting
    finally:
        waiting.cancel()
        await asyncio.wait([waiting])


async def is_put_down(store: RedisStore, worker: str) -> bool:
    return bool(await store.client.command("HEXISTS", f"{store.client.prefix}idle_workers", worker))


async def heard_nothing(store: RedisStore, waiting: asyncio.Task[Claimed]) -> bool:
    # Messages come in the order in which they were published, so one sent now comes behind any other.
    async with store.waking.listen("last") as last:
        await store.client.command("SPUBLISH", "last", "")
        assert await last.message(EXPECTED_SECONDS) is not None
    return not waiting.done()


async def started(waiting: asyncio.Task[Claimed]) -> list[str]:
    async with asyncio.timeout(EXPECTED_SECONDS):
        return [lease.job_id for lease in (await waiting).leases]


# --- a step after which less is kept ----------------------------------------------------------------------------


async def cancel(store: RedisStore) -> None:
    await store.cancel(job_id="first")


async def move(store: RedisStore) -> None:
    await store.move("first", after="next")


async def change_priority(store: RedisStore) -> None:
    await store.set_priority(60, job_id="first")


async def remove_limit(store: RedisStore) -> None:
    await store.set_limits([Unlimited(group="a")])


async def raise_limit(store: RedisStore) -> None:
    await limit(store, "a", 2)


async def pause_another_of_its_groups(store: RedisStore) -> None:
    await store.set_paused("b", paused=True)


async def switch_turns_off(store: RedisStore) -> None:
    await register(store, turn_after=0)


ENDINGS = [cancel, move, change_priority, remove_limit, raise_limit, pause_another_of_its_groups, switch_turns_off]


@pytest.mark.parametrize("offers", [False, True], ids=["woken", "offers"])
@pytest.mark.parametrize("end", ENDINGS, ids=lambda end: end.__name__)
async def test_a_worker_is_woken_when_a_slot_is_no_longer_kept(
    store: RedisStore, end: Callable[[RedisStore], Awaitable[None]], offers: bool
) -> None:
    await a_is_kept(store)
    async with idle(store, "sleeper", offers=offers) as waiting:
        assert await heard_nothing(store, waiting)
        await end(store)

        assert await started(waiting) == (["next"] if offers else [])
    if not offers:
        assert [lease.job_id for lease in await claim(store)] == ["next"]


@pytest.mark.parametrize("offers", [False, True], ids=["woken", "offers"])
async def test_a_worker_is_woken_when_the_gate_of_its_task_is_no_longer_kept(store: RedisStore, offers: bool) -> None:
    await begin_turn(store)
    await limit(store, "work", 1)
    await submit(store, "next")
    assert await claim(store) == (), "the only slot of the task is kept"
    async with idle(store, "sleeper", offers=offers) as waiting:
        await store.cancel(job_id="first")

        assert await started(waiting) == (["next"] if offers else [])


async def test_a_claim_for_one_idle_worker_opens_a_group_for_another(store: RedisStore) -> None:
    """`first` keeps a slot of `a` while its user has room. The start of another job of that user ends that."""
    await limit(store, "user:u", 1)
    await a_is_kept(store, user="u")
    async with idle(store, "one", offers=True) as one, idle(store, "two", offers=True) as two:
        await submit(store, "of-u", priority=5, user="u")

        assert sorted([*await started(one), *await started(two)]) == ["next", "of-u"]


# --- a step that frees only kept slots --------------------------------------------------------------------------


@pytest.mark.parametrize("offers", [False, True], ids=["woken", "offers"])
async def test_a_freed_slot_that_is_kept_wakes_nobody(store: RedisStore, offers: bool) -> None:
    await a_is_kept(store)
    await limit(store, "a", 2)
    (lease,) = await claim(store)
    await limit(store, "a", 1)
    await submit(store, "later", "a")
    async with idle(store, "sleeper", offers=offers) as waiting:
        await finish(store, lease)

        assert await heard_nothing(store, waiting)
        assert await is_put_down(store, "sleeper")
        (status,) = await store.groups(["a"])
        assert (status.active, status.kept) == (0, "first")


async def test_the_job_whose_turn_it_is_wakes_its_worker_when_its_last_group_has_room(store: RedisStore) -> None:
    holder = await a_is_kept(store)
    async with idle(store, "sleeper", offers=True) as waiting:
        await finish(store, holder)

        assert await started(waiting) == ["first"]


async def test_a_worker_that_could_only_take_kept_slots_finds_nothing_to_claim(store: RedisStore) -> None:
    await a_is_kept(store)

    found = await store.wait_for_work(worker="sleeper", tasks=["work"], timeout_seconds=0)

    assert found == Claimed()
