"""Semaphores of users and projects: the same slots as jobs, taken by name, with leases of an hour."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from clocked import ClockedStore
from running import running, soon, state_is, until
from stores import StoreUnderTest

import qo
from qo.errors import StoreUnavailable
from qo.job import moment
from qo.runtime.queue import Queue
from qo.runtime.semaphore import (
    MAX_HOLDER_CHARACTERS,
    TIER_CONCURRENT_PROJECT,
    TIER_CONCURRENT_USER,
    Semaphore,
    project_semaphore,
    user_semaphore,
)
from qo.settings import load_settings
from qo.store.values import Bounds, Lease, Renewal, Source

NOW = 1_900_000_000_000
SECOND = 1000
LEASE = 3600 * SECOND
JOBS_LEASE = 300 * SECOND
LOOK_EVERY = 100 * SECOND
"""often enough for the store not to think that it was away"""
SETTINGS: dict[str, Any] = {
    "concurrency": {"default_lease_duration_secs": JOBS_LEASE / SECOND},
    "tiers": {"solo": {"per_user": 1, "per_project": 1}},
}
CALLS = ("set_limits", "acquire", "newest_event", "renew")
"""what an acquire asks of the store, itself and through the reader of events"""
Beside = Callable[..., Awaitable[None]]


@pytest.fixture
def overrides() -> dict[str, Any]:
    return SETTINGS


def queue_on(store: Any, **sections: Any) -> Queue:
    """Another queue on a store, as another process would have one."""
    return Queue(store, load_settings({**SETTINGS, **sections}, environ={}))


@pytest.fixture
def clock(queue: qo.Queue) -> ClockedStore:
    return ClockedStore(queue.store, now=NOW)


@pytest.fixture
def clocked(clock: ClockedStore) -> qo.Queue:
    return queue_on(clock)


@pytest.fixture
async def two_queues(tmp_path: Path) -> AsyncIterator[tuple[qo.Queue, qo.Queue]]:
    """On one file, with connections and threads of their own."""
    settings = {**SETTINGS, "limiter": {"waiter_alive_secs": 0.3}}
    url = f"sqlite:///{tmp_path}/qo.db"
    async with (
        await qo.connect(url, settings=settings) as one,
        await qo.connect(url, settings=settings) as other,
    ):
        yield one, other


class Staged:
    """A store that does something of the test's own before or after a call of a name."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.before: dict[str, Beside] = {}
        self.after: dict[str, Beside] = {}
        self.calls: Counter[str] = Counter()
        self.answers: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if not inspect.iscoroutinefunction(method):
            return method

        async def call(*args: Any, **kwargs: Any) -> Any:
            self.calls[name] += 1
            if name in self.before:
                await self.before[name](*args)
            answer = await method(*args, **kwargs)
            if name in self.after:
                await self.after[name](*args)
            self.answers[name] += 1
            return answer

        return call


@pytest.fixture
def staged(queue: qo.Queue) -> Staged:
    return Staged(queue.store)


async def pass_time(clock: ClockedStore, *, to: int) -> None:
    """Workers look every now and then, so that leases end when their time is over."""
    for at in [*range(clock.now, to, LOOK_EVERY), to]:
        clock.now = at
        await clock.catch_up(lease_ms=JOBS_LEASE)


async def waiting(semaphore: Semaphore, amount: int) -> None:
    async def so_many_wait() -> bool:
        return (await semaphore._store.group(semaphore.group)).waiting == amount

    await until(so_many_wait)


def asked_at(staged: Staged, clock: ClockedStore) -> set[tuple[str, int]]:
    """Who has asked and was answered, by the time at which it asked: filled as it happens."""
    began: dict[str, int] = {}
    asked: set[tuple[str, int]] = set()

    async def begin(tickets: Any) -> None:
        began[tickets[0].holder] = clock.now

    async def end(tickets: Any) -> None:
        holder = tickets[0].holder
        asked.add((holder.rpartition(":")[2], began[holder]))

    staged.before["acquire"], staged.after["acquire"] = begin, end
    return asked


async def listening(staged: Staged) -> None:
    """An acquire has asked once, and once more after it began to listen, so that now it waits to be told."""

    async def has_asked_twice() -> bool:
        return staged.answers["acquire"] == 2

    await until(has_asked_twice)


async def is_untouched(semaphore: Semaphore) -> bool:
    """Nobody holds a slot, and nobody stands in line."""
    status = await semaphore._store.group(semaphore.group)
    return (status.active, status.waiting) == (0, 0)


async def expiry_of(semaphore: Semaphore, holder: str) -> Any:
    slots = (await semaphore._store.group(semaphore.group)).slots
    return next((slot.expires_at for slot in slots if slot.holder.endswith(f":{holder}")), None)


async def start_job(store: Any, queue: qo.Queue, **options: Any) -> Lease:
    job = await queue.submit("build", **options)
    claimed = await store.claim(worker="w", tasks=["build"], places=1, lease_ms=JOBS_LEASE, claim_id=job.id)
    (lease,) = claimed.leases
    assert isinstance(lease, Lease)
    return lease


# --- slots and limits -----------------------------------------------------------------------------------------


def test_the_tables_give_the_numbers_of_the_built_in_tiers() -> None:
    assert dict(TIER_CONCURRENT_USER) == {"bootstrapper": 2, "partner": 3, "cto_scale": 10}
    assert dict(TIER_CONCURRENT_PROJECT) == {"bootstrapper": 2, "partner": 3, "cto_scale": 5}


@pytest.mark.parametrize("tier", TIER_CONCURRENT_USER)
async def test_as_many_hold_a_slot_as_the_tier_gives_a_user_or_project(queue: qo.Queue, tier: str) -> None:
    user, project = user_semaphore(queue, "ada", tier), project_semaphore(queue, "site", tier)

    of_user = [await user.acquire(f"h{number}") for number in range(12)]
    of_project = [await project.acquire(f"h{number}") for number in range(12)]

    assert of_user == [True] * TIER_CONCURRENT_USER[tier] + [False] * (12 - TIER_CONCURRENT_USER[tier])
    assert of_project == [True] * TIER_CONCURRENT_PROJECT[tier] + [False] * (12 - TIER_CONCURRENT_PROJECT[tier])
    assert await user.count() == TIER_CONCURRENT_USER[tier]
    assert await project.count() == TIER_CONCURRENT_PROJECT[tier]


async def test_a_hundred_at_once_never_get_more_than_the_limit(queue: qo.Queue) -> None:
    semaphore = user_semaphore(queue, "ada", "partner")

    got = await asyncio.gather(*(semaphore.acquire(f"h{number}") for number in range(100)))

    assert (sum(got), await semaphore.count()) == (3, 3)


@pytest.mark.parametrize("make", [user_semaphore, project_semaphore])
async def test_an_unknown_tier_is_refused_by_name(queue: qo.Queue, make: Any) -> None:
    with pytest.raises(qo.UnknownTier, match="tier is 'gold'; use one of bootstrapper, cto_scale, partner, solo"):
        make(queue, "ada", "gold")


async def test_the_same_holder_again_is_told_true_and_gets_no_second_slot(queue: qo.Queue) -> None:
    semaphore = user_semaphore(queue, "ada", "partner")

    got = [await semaphore.acquire("h"), await semaphore.acquire("h"), await semaphore.acquire("h", timeout=1)]

    assert (got, await semaphore.count()) == ([True, True, True], 1)


async def test_a_release_frees_the_slot_once_and_is_harmless_twice(queue: qo.Queue) -> None:
    semaphore = user_semaphore(queue, "ada", "solo")
    await semaphore.acquire("h")

    assert [await semaphore.release("h"), await semaphore.release("h")] == [True, False]
    assert await semaphore.acquire("other")
    assert not await semaphore.release("h")
    assert await semaphore.count() == 1


async def test_a_release_never_touches_another_holder_or_the_same_name_elsewhere(queue: qo.Queue) -> None:
    user, other = user_semaphore(queue, "ada", "partner"), user_semaphore(queue, "bob", "partner")
    project = project_semaphore(queue, "ada", "partner")
    for semaphore in (user, other, project):
        assert await semaphore.acquire("h")
    await user.acquire("h2")

    assert await user.release("h")

    assert [await each.count() for each in (user, other, project)] == [1, 1, 1]
    assert not await user.release("nobody")


async def test_a_release_leaves_the_place_in_line_of_one_that_waits(queue: qo.Queue) -> None:
    semaphore = user_semaphore(queue, "ada", "solo")
    await semaphore.acquire("first")
    waiter = asyncio.create_task(semaphore.acquire("h", timeout=20))
    await waiting(semaphore, 1)

    assert not await semaphore.release("h")
    await waiting(semaphore, 1)
    await semaphore.release("first")
    assert await soon(waiter)


async def test_a_release_that_comes_too_late_leaves_the_place_in_line_in_which_its_holder_stands_by_then(
    queue: qo.Queue, staged: Staged
) -> None:
    semaphore, other = user_semaphore(queue_on(staged), "ada", "solo"), user_semaphore(queue, "ada", "solo")
    await other.acquire("h")
    waiters = []

    async def lose_it_and_wait(*_: Any) -> None:
        await queue.release_slot("user:ada", 0, by="ops", force=True)
        await other.acquire("second")
        waiters.append(asyncio.create_task(other.acquire("h", timeout=60)))
        await waiting(other, 1)

    staged.before["release"] = lose_it_and_wait

    assert not await semaphore.release("h")
    await waiting(other, 1)
    await other.release("second")
    assert await soon(waiters[0])


async def test_the_limit_comes_from_the_tier_when_the_semaphore_is_first_used(queue: qo.Queue) -> None:
    semaphore = user_semaphore(queue, "ada", "partner")
    before = (await queue.limit("user:ada")).limit
    await semaphore.count()
    after_count = (await queue.limit("user:ada")).limit
    await semaphore.acquire("h")
    status = await queue.limit("user:ada")

    assert (before, after_count, status.limit, status.source) == (None, None, 3, Source.TIER)


async def test_a_stronger_limit_is_kept_and_the_tiers_is_a_warning(
    queue: qo.Queue, caplog: pytest.LogCaptureFixture
) -> None:
    await queue.set_limit("user:ada", 1, by="ops")
    semaphore = user_semaphore(queue, "ada", "partner")

    assert [await semaphore.acquire("a"), await semaphore.acquire("b")] == [True, False]
    assert "the limit 3 of group user:ada wanted by a tier is not used: the operator set 1" in caplog.text


async def test_a_tier_changed_by_set_tier_counts_for_a_semaphore_in_use(queue: qo.Queue) -> None:
    semaphore = user_semaphore(queue, "ada", "bootstrapper")
    before = [await semaphore.acquire(f"h{number}") for number in range(3)]

    await queue.set_tier("ada", "partner")
    raised = [await semaphore.acquire(f"h{number}") for number in range(4)]
    await queue.set_tier("ada", "solo")
    lowered = await semaphore.acquire("late")
    for number in range(3):
        await semaphore.release(f"h{number}")
    below = [await semaphore.acquire("late"), await semaphore.acquire("later")]

    assert before == [True, True, False]
    assert raised == [True, True, True, False]
    assert (lowered, below) == (False, [True, False])
    assert (await queue.limit("user:ada")).limit == 1


async def test_one_that_waits_gets_in_when_set_tier_raises_the_limit(queue: qo.Queue) -> None:
    semaphore = user_semaphore(queue, "ada", "solo")
    await semaphore.acquire("a")
    waiter = asyncio.create_task(semaphore.acquire("b", timeout=20))
    await waiting(semaphore, 1)

    await queue.set_tier("ada", "bootstrapper")

    assert await soon(waiter)
    assert await semaphore.count() == 2


async def test_nobody_gets_a_slot_while_the_group_is_paused(queue: qo.Queue) -> None:
    semaphore = user_semaphore(queue, "ada", "partner")
    await queue.pause("user:ada")
    paused = await semaphore.acquire("h")
    await queue.resume("user:ada")

    assert (paused, await semaphore.acquire("h")) == (False, True)


async def forget_everything(store: Any) -> None:
    await store.forget(keep_ms=0, keep_jobs=0, keep_events=1000)


async def test_a_limit_that_retention_has_removed_is_set_again(queue: qo.Queue) -> None:
    semaphore = user_semaphore(queue, "ada", "solo")
    await semaphore.acquire("h")
    await semaphore.release("h")
    await forget_everything(queue.store)
    forgotten = (await queue.limit("user:ada")).limit

    got = await asyncio.gather(*(semaphore.acquire(f"h{number}") for number in range(5)))

    assert forgotten is None
    assert (sum(got), await semaphore.count(), (await queue.limit("user:ada")).limit) == (1, 1, 1)


async def test_a_limit_that_retention_removes_at_the_last_moment_is_set_again(queue: qo.Queue, staged: Staged) -> None:
    semaphore = user_semaphore(queue_on(staged), "ada", "solo")
    removed = []

    async def forget(*_: Any) -> None:
        if not removed:
            await forget_everything(queue.store)
            removed.append((await queue.limit("user:ada")).limit)

    staged.before["acquire"] = forget

    assert [await semaphore.acquire("a"), await semaphore.acquire("b")] == [True, False]
    assert (removed, (await queue.limit("user:ada")).limit) == ([None], 1)


# --- beside jobs ----------------------------------------------------------------------------------------------


async def test_a_running_job_has_one_of_the_slots(queue: qo.Queue, worker: qo.Worker) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    @worker.task
    async def build() -> None:
        begun.set()
        await go_on.wait()

    semaphore, project = user_semaphore(queue, "ada", "solo"), project_semaphore(queue, "site", "solo")
    job = await queue.submit("build", user="ada", project="site", tier="solo")
    async with running(worker):
        await soon(begun.wait())
        meanwhile = [await semaphore.acquire("h"), await project.acquire("h")]
        counts = [await semaphore.count(), await project.count()]
        go_on.set()
        await queue.wait(job.id, timeout=10)

    assert (meanwhile, counts) == ([False, False], [1, 1])
    assert [await semaphore.acquire("h"), await project.acquire("h")] == [True, True]


async def test_a_job_does_not_start_while_holders_have_all_slots(queue: qo.Queue, worker: qo.Worker) -> None:
    worker.task("build")(lambda: None)
    semaphore = user_semaphore(queue, "ada", "solo")
    await semaphore.acquire("h")
    job = await queue.submit("build", user="ada", tier="solo")
    await soon(worker.run_until_idle())
    held_up = (await queue.get(job.id)).state
    await semaphore.release("h")
    await soon(worker.run_until_idle())

    assert (held_up, (await queue.get(job.id)).state) == (qo.State.QUEUED, qo.State.SUCCEEDED)


async def test_jobs_and_those_who_wait_take_turns_in_one_line(queue: qo.Queue, worker: qo.Worker) -> None:
    order: list[str] = []

    @worker.task
    async def build(data: str) -> None:
        order.append(data)

    semaphore = user_semaphore(queue, "ada", "solo")
    await semaphore.acquire("first")

    async def take_a_turn(holder: str) -> None:
        assert await semaphore.acquire(holder, timeout=20)
        order.append(holder)
        await semaphore.release(holder)

    async with running(worker):
        turns = []
        for number in range(0, 6, 2):
            await queue.submit("build", f"job {number}", user="ada", tier="solo")
            await waiting(semaphore, number + 1)
            turns.append(asyncio.create_task(take_a_turn(f"holder {number + 1}")))
            await waiting(semaphore, number + 2)
        await semaphore.release("first")
        await soon(asyncio.gather(*turns))

    assert order == ["job 0", "holder 1", "job 2", "holder 3", "job 4", "holder 5"]


async def test_a_job_that_has_the_id_of_a_holder_is_never_renewed_nor_released(
    clocked: qo.Queue, clock: ClockedStore
) -> None:
    semaphore = user_semaphore(clocked, "ada", "partner")
    lease = await start_job(clock, clocked, id="semaphore:user:ada:h", user="ada")
    clock.now += SECOND

    assert [await semaphore.heartbeat("h"), await semaphore.release("h")] == [False, False]
    (slot,) = (await clocked.limit("user:ada")).slots
    assert (slot.token, slot.expires_at) == (lease.token, moment(NOW + JOBS_LEASE))

    assert [await semaphore.acquire("h"), await semaphore.count()] == [True, 2]
    assert [await semaphore.release("h"), await semaphore.count()] == [True, 1]


# --- names ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("holder", "message"),
    [
        ("", "holder is empty; use 1 to 100 characters."),
        ("h" * 101, "which has 101 characters; use 1 to 100."),
        ("a\nb", "holder is 'a\\nb', which has a control character"),
        (7, "holder is 7; use text of 1 to 100 characters."),
    ],
)
async def test_a_bad_holder_is_refused_before_anything_is_changed(queue: qo.Queue, holder: Any, message: str) -> None:
    semaphore = user_semaphore(queue, "ada", "partner")
    for call in (semaphore.acquire, semaphore.release, semaphore.heartbeat):
        with pytest.raises(qo.InvalidValue) as refusal:
            await call(holder)
        assert message in str(refusal.value)

    assert await queue.limits() == []


@pytest.mark.parametrize("owner", ["", "u" * 201, "a\x00b", None])
async def test_a_bad_owner_is_refused_by_its_field(queue: qo.Queue, owner: Any) -> None:
    with pytest.raises(qo.InvalidValue, match="user_id is"):
        user_semaphore(queue, owner, "partner")
    with pytest.raises(qo.InvalidValue, match="project_id is"):
        project_semaphore(queue, owner, "partner")


@pytest.mark.parametrize("timeout", [-1, math.nan, None, True, "1"])
async def test_a_bad_timeout_is_refused_before_anything_is_changed(queue: qo.Queue, timeout: Any) -> None:
    with pytest.raises(qo.InvalidValue, match=r"timeout is .*; use seconds of 0 or more"):
        await user_semaphore(queue, "ada", "partner").acquire("h", timeout=timeout)

    assert await queue.limits() == []


async def test_every_name_that_jobs_may_have_can_be_an_owner_with_the_longest_holder(queue: qo.Queue) -> None:
    long, longer, holder = "u" * 199 + "1", "u" * 199 + "2", "h" * MAX_HOLDER_CHARACTERS
    for make in (user_semaphore, project_semaphore):
        for owner in (long, longer, ":" * 200, "%" * 27, "ü" * 81):
            semaphore = make(queue, owner, "partner")
            got = [await semaphore.acquire(holder), await semaphore.heartbeat(holder), await semaphore.count()]
            assert got == [True, True, 1]


async def test_no_two_holders_clash_whatever_their_names(queue: qo.Queue) -> None:
    named = [("a:b", "c"), ("a", "b:c"), ("a%3Ab", "c"), ("a%253Ab", "c"), ("a", "c"), ("a", "b%3Ac")]
    for owner, holder in named:
        assert await user_semaphore(queue, owner, "partner").acquire(holder)

    counts = {owner: await user_semaphore(queue, owner, "partner").count() for owner, _ in named}
    assert counts == {"a:b": 1, "a": 3, "a%3Ab": 1, "a%253Ab": 1}


# --- leases ---------------------------------------------------------------------------------------------------


async def test_a_lease_lasts_an_hour_and_then_its_slot_is_another_holders(
    clocked: qo.Queue, clock: ClockedStore
) -> None:
    semaphore = user_semaphore(clocked, "ada", "solo")
    await semaphore.acquire("h")
    await pass_time(clock, to=NOW + LEASE - 1)
    before = (await semaphore.count(), await semaphore.acquire("other"))
    clock.now += 1
    after = await semaphore.acquire("other")

    assert (before, after) == ((1, False), True)
    assert await semaphore.count() == 1
    assert [await semaphore.heartbeat("h"), await semaphore.release("h")] == [False, False]


async def test_acquiring_again_does_not_renew(clocked: qo.Queue, clock: ClockedStore) -> None:
    semaphore = user_semaphore(clocked, "ada", "solo")
    await semaphore.acquire("h")
    await pass_time(clock, to=NOW + LEASE // 2)
    again = [await semaphore.acquire("h"), await semaphore.acquire("h", timeout=1)]

    assert again == [True, True]
    assert await expiry_of(semaphore, "h") == moment(NOW + LEASE)


async def test_a_heartbeat_lets_the_lease_last_for_an_hour_from_now(clocked: qo.Queue, clock: ClockedStore) -> None:
    semaphore = user_semaphore(clocked, "ada", "partner")
    await semaphore.acquire("alive")
    await semaphore.acquire("dead")
    await pass_time(clock, to=NOW + LEASE - 1)
    beat = await semaphore.heartbeat("alive")
    await pass_time(clock, to=NOW + LEASE)

    assert beat
    assert await expiry_of(semaphore, "alive") == moment(NOW + LEASE - 1 + LEASE)
    assert await semaphore.count() == 1
    assert [await semaphore.heartbeat("dead"), await semaphore.heartbeat("nobody")] == [False, False]


async def test_a_heartbeat_that_comes_too_late_is_told_even_if_nobody_looked(
    clocked: qo.Queue, clock: ClockedStore
) -> None:
    semaphore = user_semaphore(clocked, "ada", "partner")
    await semaphore.acquire("h")
    await pass_time(clock, to=NOW + LEASE - LOOK_EVERY)
    clock.now = NOW + LEASE

    assert not await semaphore.heartbeat("h")


async def test_a_revoked_slot_is_told_by_the_next_heartbeat(queue: qo.Queue) -> None:
    semaphore = user_semaphore(queue, "ada", "partner")
    await semaphore.acquire("h")
    alive = await semaphore.heartbeat("h")
    await queue.release_slot("user:ada", 0, by="ops", force=True)

    assert (alive, await semaphore.heartbeat("h"), await semaphore.count()) == (True, False, 0)


async def test_how_long_a_lease_lasts_is_a_setting(clock: ClockedStore) -> None:
    concurrency = {**SETTINGS["concurrency"], "semaphore_lease_duration_secs": 120}
    semaphore = user_semaphore(queue_on(clock, concurrency=concurrency), "ada", "solo")
    await semaphore.acquire("h")

    assert await expiry_of(semaphore, "h") == moment(NOW + 120 * SECOND)


async def test_a_slot_handed_over_to_one_that_waits_is_a_full_lease_at_once(
    clocked: qo.Queue, clock: ClockedStore
) -> None:
    semaphore = user_semaphore(clocked, "ada", "solo")
    await semaphore.acquire("first")
    waiter = asyncio.create_task(semaphore.acquire("h", timeout=20))
    await waiting(semaphore, 1)
    clock.now += SECOND
    await semaphore.release("first")
    await soon(waiter)

    assert await expiry_of(semaphore, "h") == moment(NOW + SECOND + LEASE)


async def test_one_that_waits_gets_a_stale_slot_though_no_worker_is_there_to_end_its_lease(
    clock: ClockedStore, queue: qo.Queue
) -> None:
    staged = Staged(clock)
    asked = asked_at(staged, clock)
    semaphore = user_semaphore(queue_on(staged, limiter={"waiter_alive_secs": 0.03}), "ada", "solo")
    await semaphore.acquire("dead")
    waiter = asyncio.create_task(semaphore.acquire("h", timeout=60))
    for clock.now in range(NOW, NOW + LEASE, LOOK_EVERY):

        async def has_asked() -> bool:
            return ("h", clock.now) in asked

        await until(has_asked)
    still_waits = not waiter.done()
    clock.now = NOW + LEASE

    assert await soon(waiter)
    assert still_waits
    assert await expiry_of(semaphore, "dead") is None
    assert await expiry_of(semaphore, "h") == moment(NOW + 2 * LEASE)


async def test_a_stale_holder_of_a_store_that_nobody_looked_at_gets_half_a_jobs_lease_more(
    clocked: qo.Queue, clock: ClockedStore
) -> None:
    """The store cannot tell this from having been away itself, when nobody could renew."""
    semaphore = user_semaphore(clocked, "ada", "solo")
    await semaphore.acquire("dead")
    clock.now = NOW + 2 * LEASE
    at_first = (await semaphore.cleanup(), await semaphore.acquire("h"))
    clock.now += JOBS_LEASE // 2

    assert (at_first, await semaphore.cleanup(), await semaphore.acquire("h")) == ((0, False), 1, True)


@pytest.mark.parametrize("call", ["acquire", "heartbeat", "cleanup"])
async def test_jobs_that_could_not_renew_while_the_store_was_away_lose_nothing_by_a_semaphore(
    clocked: qo.Queue, clock: ClockedStore, call: str
) -> None:
    """The store was away for longer than a job's lease, for much less than a semaphore's, which looks first."""
    semaphore = user_semaphore(clocked, "ada", "partner")
    await semaphore.acquire("h")
    lease = await start_job(clock, clocked, user="bob")
    clock.now += 3 * JOBS_LEASE

    await {
        "acquire": lambda: semaphore.acquire("h2"),
        "heartbeat": lambda: semaphore.heartbeat("h"),
        "cleanup": semaphore.cleanup,
    }[call]()
    await clock.catch_up(lease_ms=JOBS_LEASE)
    (held,) = await clock.renew([Renewal(holder=lease.job.id, token=lease.token, lease_ms=JOBS_LEASE)])

    assert not held.lost


# --- cleanup --------------------------------------------------------------------------------------------------


async def test_a_cleanup_tells_how_many_of_its_group_had_run_out(clocked: qo.Queue, clock: ClockedStore) -> None:
    semaphore, other = user_semaphore(clocked, "ada", "partner"), user_semaphore(clocked, "bob", "partner")
    for holder in ("a", "b"):
        await semaphore.acquire(holder)
    await other.acquire("a")
    await pass_time(clock, to=NOW + LEASE - LOOK_EVERY)
    await semaphore.acquire("young")
    nothing_yet = await semaphore.cleanup()
    clock.now = NOW + LEASE
    cleaned = [await semaphore.cleanup(), await semaphore.cleanup(), await other.cleanup()]

    assert (nothing_yet, cleaned) == (0, [2, 0, 0])
    assert (await semaphore.count(), await other.count()) == (1, 0)


async def test_a_cleanup_counts_a_job_whose_lease_had_run_out(clocked: qo.Queue, clock: ClockedStore) -> None:
    semaphore = user_semaphore(clocked, "ada", "partner")
    lease = await start_job(clock, clocked, user="ada", tier="partner")
    await semaphore.acquire("h")
    await pass_time(clock, to=NOW + JOBS_LEASE - LOOK_EVERY)
    clock.now = NOW + JOBS_LEASE

    assert (await semaphore.cleanup(), await semaphore.count()) == (1, 1)
    assert (await clocked.get(lease.job.id)).state is qo.State.QUEUED


async def test_a_cleanup_does_not_count_what_was_given_back_or_revoked_meanwhile(
    clocked: qo.Queue, clock: ClockedStore
) -> None:
    staged = Staged(clock)
    semaphore, plain = user_semaphore(queue_on(staged), "ada", "cto_scale"), user_semaphore(clocked, "ada", "cto_scale")
    for holder in ("revoked", "given back", "stale"):
        await plain.acquire(holder)
    await pass_time(clock, to=NOW + LEASE - LOOK_EVERY)
    clock.now = NOW + LEASE
    meanwhile = []

    async def give_back_and_revoke(*_: Any) -> None:
        if not meanwhile:
            meanwhile.append(await plain.release("given back"))
            meanwhile.append(await clocked.release_slot("user:ada", 0, by="ops", force=True))

    staged.before["catch_up"] = give_back_and_revoke

    assert (await semaphore.cleanup(), await semaphore.count()) == (1, 0)
    assert meanwhile == [True, "semaphore:user:ada:revoked"]


async def test_a_cleanup_goes_on_until_nothing_is_left(store_under_test: StoreUnderTest) -> None:
    store = await store_under_test.open(Bounds(portion=2))
    clock = ClockedStore(store, now=NOW)
    semaphore = user_semaphore(queue_on(clock), "ada", "cto_scale")
    for number in range(10):
        await semaphore.acquire(f"h{number}")
    await pass_time(clock, to=NOW + LEASE - LOOK_EVERY)
    clock.now = NOW + LEASE

    cleaned = await semaphore.cleanup()
    left = await semaphore.count()
    await store_under_test.close(store)

    assert (cleaned, left) == (10, 0)


# --- waiting --------------------------------------------------------------------------------------------------


async def test_one_that_waits_is_woken_by_the_store_and_asks_no_more_than_it_must(
    queue: qo.Queue, staged: Staged
) -> None:
    semaphore, other = user_semaphore(queue_on(staged), "ada", "solo"), user_semaphore(queue, "ada", "solo")
    await other.acquire("first")
    waiter = asyncio.create_task(semaphore.acquire("h", timeout=60))
    await listening(staged)
    for _ in range(5):  # a busy feed
        await queue.submit_many([qo.New("build")] * 20)
    began = asyncio.get_running_loop().time()
    asked_meanwhile = staged.calls["acquire"]
    await other.release("first")

    assert await soon(waiter)
    assert asyncio.get_running_loop().time() - began < 4  # it would have asked by itself after 5 seconds
    assert (asked_meanwhile, staged.calls["acquire"], staged.calls["renew"]) == (2, 3, 1)


async def test_one_that_waits_hears_of_a_slot_that_came_before_it_listened(queue: qo.Queue, staged: Staged) -> None:
    semaphore, other = user_semaphore(queue_on(staged), "ada", "solo"), user_semaphore(queue, "ada", "solo")
    await other.acquire("first")

    async def release(*_: Any) -> None:
        await other.release("first")

    staged.before["newest_event"] = release
    began = asyncio.get_running_loop().time()

    assert await soon(semaphore.acquire("h", timeout=60))
    assert asyncio.get_running_loop().time() - began < 4
    assert staged.calls["acquire"] == 2


async def test_one_that_was_handed_a_slot_and_lost_it_before_it_noticed_waits_on(
    queue: qo.Queue, staged: Staged
) -> None:
    semaphore, other = user_semaphore(queue_on(staged), "ada", "solo"), user_semaphore(queue, "ada", "solo")
    await other.acquire("first")
    waiter = asyncio.create_task(semaphore.acquire("h", timeout=60))
    lost = []

    async def take_it_away(*_: Any) -> None:
        if staged.calls["acquire"] == 3:
            lost.append(await queue.release_slot("user:ada", 0, by="ops", force=True))
            assert await other.acquire("second")

    staged.before["acquire"] = take_it_away

    async def has_asked_again() -> bool:
        return staged.answers["acquire"] >= 3

    await listening(staged)
    await other.release("first")
    await until(has_asked_again)
    for _ in range(50):
        assert await other.count() == 1
    asked = staged.calls["acquire"]
    await other.release("second")

    assert await soon(waiter)
    assert lost == ["semaphore:user:ada:h"]
    assert asked <= 4  # once more for the event that told it of its loss


async def test_when_the_time_is_up_it_is_told_and_nothing_is_left_in_line(queue: qo.Queue) -> None:
    semaphore = user_semaphore(queue, "ada", "solo")
    await semaphore.acquire("first")
    began = asyncio.get_running_loop().time()

    got = await semaphore.acquire("h", timeout=0.2)

    assert not got
    assert asyncio.get_running_loop().time() - began >= 0.2
    await semaphore.release("first")
    assert await is_untouched(semaphore)


async def test_without_a_timeout_the_answer_is_now_and_nothing_is_left_in_line(queue: qo.Queue, staged: Staged) -> None:
    semaphore = user_semaphore(queue_on(staged), "ada", "solo")
    await user_semaphore(queue, "ada", "solo").acquire("first")

    assert not await semaphore.acquire("h")
    assert staged.calls["acquire"] == 1
    assert (await queue.limit("user:ada")).waiting == 0


async def test_fifty_that_wait_get_the_slot_in_the_order_they_came(queue: qo.Queue) -> None:
    semaphore = user_semaphore(queue, "ada", "solo")
    await semaphore.acquire("first")
    order: list[int] = []

    async def take_a_turn(number: int) -> None:
        assert await semaphore.acquire(f"h{number}", timeout=60)
        order.append(number)
        assert await semaphore.count() == 1
        await semaphore.release(f"h{number}")

    turns = []
    for number in range(50):
        turns.append(asyncio.create_task(take_a_turn(number)))
        await waiting(semaphore, number + 1)
    await semaphore.release("first")
    await soon(asyncio.gather(*turns))

    assert order == list(range(50))
    assert await is_untouched(semaphore)
    assert queue.follower._watchers == {}


async def test_a_place_in_line_is_kept_as_long_as_its_holder_waits(clock: ClockedStore) -> None:
    """Time passes in steps shorter than a place lives without its holder, for ten times as long."""
    staged = Staged(clock)
    asked = asked_at(staged, clock)
    semaphore = user_semaphore(queue_on(staged, limiter={"waiter_alive_secs": 0.15}), "ada", "solo")
    await semaphore.acquire("first")
    turns = []
    for amount, holder in enumerate("ab", start=1):
        turns.append(asyncio.create_task(semaphore.acquire(holder, timeout=60)))
        await waiting(semaphore, amount)
    for _ in range(15):
        clock.now += 100

        async def both_asked() -> bool:
            return {("a", clock.now), ("b", clock.now)} <= asked

        await until(both_asked)
        await clock.catch_up(lease_ms=JOBS_LEASE)
        assert (await clock.group("user:ada")).waiting == 2
    await semaphore.release("first")

    assert await soon(turns[0])
    assert not turns[1].done()
    await semaphore.release("a")
    assert await soon(turns[1])


async def test_a_slot_that_comes_in_the_moment_the_time_is_up_is_kept(queue: qo.Queue, staged: Staged) -> None:
    semaphore, other = user_semaphore(queue_on(staged), "ada", "solo"), user_semaphore(queue, "ada", "solo")
    await other.acquire("first")
    handed_over = []

    async def release(tickets: Any) -> None:
        if tickets[0].wait_ms == 0:
            await other.release("first")
            handed_over.extend((await queue.limit("user:ada")).slots)

    staged.before["acquire"] = release

    assert await semaphore.acquire("h", timeout=0.05)
    (short,) = handed_over
    (slot,) = (await queue.limit("user:ada")).slots
    assert slot.token == short.token
    assert (slot.expires_at - short.expires_at).total_seconds() > 3500


async def test_a_slot_that_comes_just_after_the_time_was_up_stays_free(queue: qo.Queue, staged: Staged) -> None:
    semaphore, other = user_semaphore(queue_on(staged), "ada", "solo"), user_semaphore(queue, "ada", "solo")
    await other.acquire("first")
    released = []

    async def release(tickets: Any) -> None:
        if tickets[0].wait_ms == 0:
            released.append(await other.release("first"))

    staged.after["acquire"] = release

    assert not await semaphore.acquire("h", timeout=0.05)
    assert released == [True]
    assert await is_untouched(semaphore)


# --- cancelled, or cut off ------------------------------------------------------------------------------------


class CancelledAt:
    """An acquire that is cancelled at its n-th call: `before` it has reached the store, or `after`, when only the
    answer is on its way."""

    def __init__(self, queue: qo.Queue, user: str, *, at: int, when: str, timeout: float) -> None:
        self.staged = Staged(queue.store)
        self.happened = False
        self._left = at
        for name in CALLS:
            getattr(self.staged, when)[name] = self._cancel
        self.task = asyncio.create_task(user_semaphore(queue_on(self.staged), user, "solo").acquire("h", timeout))

    async def _cancel(self, *_: Any) -> None:
        self._left -= 1
        if self._left == 0:
            self.happened = self.task.cancel()


async def nothing(*_: Any) -> None:
    pass


async def cancel_at_every_call(
    queue: qo.Queue, when: str, *, timeout: float, begin: Beside = nothing, meanwhile: Beside = nothing, look: Beside
) -> int:
    """Acquire again and again, each time cancelled at the next one of its calls; how many those were.

    `begin` prepares a group, `meanwhile` goes on beside the acquire, `look` tells whether what it left is right.
    """
    for at in range(1, 100):
        semaphore = user_semaphore(queue, f"ada-{at}", "solo")
        await begin(semaphore)
        acquire = CancelledAt(queue, f"ada-{at}", at=at, when=when, timeout=timeout)
        await meanwhile(semaphore, acquire)
        await soon(asyncio.wait([acquire.task]))
        if not acquire.happened:
            assert await acquire.task
            return at - 1
        assert acquire.task.cancelled()
        await look(semaphore)
    raise AssertionError("acquire has no end")


@pytest.mark.parametrize("when", ["before", "after"])
async def test_cancelled_at_whatever_call_while_a_slot_is_free_it_leaves_nothing_behind(
    queue: qo.Queue, when: str
) -> None:
    async def look(semaphore: Semaphore) -> None:
        assert await is_untouched(semaphore)

    # set_limits, acquire, renew
    assert await cancel_at_every_call(queue, when, timeout=0, look=look) == 3


@pytest.mark.parametrize("when", ["before", "after"])
async def test_cancelled_at_whatever_call_while_it_waits_or_was_granted_it_leaves_nothing_behind(
    queue: qo.Queue, when: str
) -> None:
    async def begin(semaphore: Semaphore) -> None:
        await semaphore.acquire("first")

    async def release_when_it_listens(semaphore: Semaphore, acquire: CancelledAt) -> None:
        async def listens_or_is_over() -> bool:
            return acquire.task.done() or (
                acquire.staged.answers["acquire"] == 2 and acquire.staged.answers["newest_event"] == 2
            )

        await until(listens_or_is_over)
        await semaphore.release("first")

    async def look(semaphore: Semaphore) -> None:
        assert await is_untouched(semaphore)

    calls = await cancel_at_every_call(
        queue, when, timeout=60, begin=begin, meanwhile=release_when_it_listens, look=look
    )
    # set_limits, acquire, newest_event, the reader's newest_event, acquire; when it is told: acquire, renew
    assert calls == 7


@pytest.mark.parametrize("timeout", [0, 60])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_cancelled_at_whatever_call_it_leaves_alone_what_its_holder_had_before(
    queue: qo.Queue, when: str, timeout: float
) -> None:
    async def begin(semaphore: Semaphore) -> None:
        await semaphore.acquire("h")

    async def look(semaphore: Semaphore) -> None:
        assert await expiry_of(semaphore, "h") is not None

    # set_limits, acquire
    assert await cancel_at_every_call(queue, when, timeout=timeout, begin=begin, look=look) == 2


async def test_one_cancelled_in_line_makes_room_for_the_next(queue: qo.Queue) -> None:
    semaphore = user_semaphore(queue, "ada", "solo")
    await semaphore.acquire("first")
    waiters = []
    for amount, holder in enumerate("ab", start=1):
        waiters.append(asyncio.create_task(semaphore.acquire(holder, timeout=60)))
        await waiting(semaphore, amount)
    waiters[0].cancel()
    await asyncio.wait(waiters[:1])
    in_line = (await queue.limit("user:ada")).waiting
    await semaphore.release("first")

    assert await soon(waiters[1])
    assert (in_line, await semaphore.count()) == (1, 1)


async def test_cancelled_by_a_timeout_around_it_leaves_nothing_behind(queue: qo.Queue) -> None:
    semaphore = user_semaphore(queue, "ada", "solo")
    await semaphore.acquire("first")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await semaphore.acquire("h", timeout=60)
    await semaphore.release("first")

    assert await is_untouched(semaphore)


@pytest.mark.parametrize("call", ["acquire", "renew"])
async def test_cancelled_while_a_call_is_on_its_way_to_the_store_it_waits_for_that_and_leaves_nothing_behind(
    queue: qo.Queue, staged: Staged, call: str
) -> None:
    semaphore = user_semaphore(queue_on(staged), "ada", "solo")
    sent, arrives = asyncio.Event(), asyncio.Event()

    async def over_a_slow_network(*args: Any) -> Any:
        """What was sent arrives, even if nobody listens for the answer any more."""
        delattr(staged, call)

        async def travel() -> Any:
            await arrives.wait()
            return await getattr(queue.store, call)(*args)

        sent.set()
        return await asyncio.shield(asyncio.create_task(travel()))

    setattr(staged, call, over_a_slow_network)
    acquire = asyncio.create_task(semaphore.acquire("h"))
    await soon(sent.wait())
    acquire.cancel()
    for _ in range(20):  # time enough to undo, if it did not wait
        await semaphore.count()
    still_there = not acquire.done()
    arrives.set()
    await soon(asyncio.wait([acquire]))

    assert (still_there, acquire.cancelled()) == (True, True)
    assert await is_untouched(semaphore)


async def test_when_the_renewal_of_a_fresh_slot_fails_it_is_given_back(queue: qo.Queue, staged: Staged) -> None:
    semaphore = user_semaphore(queue_on(staged), "ada", "solo")

    async def fail(*_: Any) -> None:
        raise StoreUnavailable("The store is away.")

    staged.before["renew"] = fail

    with pytest.raises(StoreUnavailable):
        await semaphore.acquire("h")
    assert await is_untouched(semaphore)


async def test_a_slot_left_behind_by_one_that_was_cut_off_is_made_a_full_lease_when_it_comes_back(
    clocked: qo.Queue, clock: ClockedStore
) -> None:
    staged = Staged(clock)
    semaphore = user_semaphore(queue_on(staged), "ada", "solo")

    async def fail(*_: Any) -> None:
        staged.before["acquire"] = staged.before["renew"] = fail
        raise StoreUnavailable("The store is away.")

    staged.before["renew"] = fail
    with pytest.raises(StoreUnavailable, match="away"):
        await semaphore.acquire("h")
    left_until = await expiry_of(semaphore, "h")
    clock.now += SECOND

    back = user_semaphore(clocked, "ada", "solo")
    assert left_until == moment(NOW + JOBS_LEASE)
    assert await back.acquire("h")
    assert await expiry_of(back, "h") == moment(NOW + SECOND + LEASE)


# --- several processes ----------------------------------------------------------------------------------------


async def test_a_holder_is_the_same_in_two_queues_on_one_file(two_queues: tuple[qo.Queue, qo.Queue]) -> None:
    one, other = (user_semaphore(queue, "ada", "bootstrapper") for queue in two_queues)

    got = [await one.acquire("h"), await other.acquire("h"), await other.acquire("h2"), await one.acquire("h3")]

    assert (got, await one.count(), await other.count()) == ([True, True, True, False], 2, 2)
    assert await other.heartbeat("h")
    assert [await other.release("h"), await one.release("h")] == [True, False]
    assert not await one.heartbeat("h")


async def test_two_queues_on_one_file_never_have_more_holders_than_the_limit(
    two_queues: tuple[qo.Queue, qo.Queue],
) -> None:
    semaphores = [user_semaphore(queue, "ada", "partner") for queue in two_queues]
    present, most, turns = 0, 0, 0

    async def take_turns(semaphore: Semaphore, holder: str) -> None:
        nonlocal present, most, turns
        for _ in range(3):
            assert await semaphore.acquire(holder, timeout=60)
            present += 1
            most = max(most, present)
            turns += 1
            await asyncio.sleep(0.001)
            present -= 1
            assert await semaphore.release(holder)

    await soon(asyncio.gather(*(take_turns(semaphores[number % 2], f"h{number}") for number in range(20))))

    assert (most, turns) == (3, 60)
    assert await is_untouched(semaphores[0])


async def test_one_that_waits_in_another_queue_is_woken(two_queues: tuple[qo.Queue, qo.Queue]) -> None:
    one, other = (user_semaphore(queue, "ada", "solo") for queue in two_queues)
    await one.acquire("first")
    waiter = asyncio.create_task(other.acquire("h", timeout=60))
    await waiting(one, 1)
    await one.release("first")

    assert await soon(waiter)


async def test_when_one_of_two_that_wait_under_one_name_gives_up_the_other_gets_the_slot(
    two_queues: tuple[qo.Queue, qo.Queue],
) -> None:
    one, other = (user_semaphore(queue, "ada", "solo") for queue in two_queues)
    await one.acquire("first")
    goes, stays = (asyncio.create_task(each.acquire("h", timeout=60)) for each in (one, other))
    await waiting(one, 1)
    goes.cancel()
    await asyncio.wait([goes])
    await one.release("first")

    assert await soon(stays)
    assert await one.count() == 1


async def test_one_that_is_cancelled_takes_nothing_from_another_of_its_name_that_was_granted_the_slot(
    queue: qo.Queue, staged: Staged
) -> None:
    one, other = user_semaphore(queue_on(staged), "ada", "solo"), user_semaphore(queue, "ada", "solo")
    await other.acquire("first")
    cancelled = asyncio.create_task(one.acquire("h", timeout=60))
    granted = asyncio.create_task(other.acquire("h", timeout=60))
    await listening(staged)

    async def cancel_once_the_other_is_granted(*_: Any) -> None:
        await asyncio.wait([granted])
        cancelled.cancel()

    staged.before["acquire"] = cancel_once_the_other_is_granted
    await other.release("first")
    await soon(asyncio.wait([cancelled]))

    assert cancelled.cancelled()
    assert await granted
    assert await other.count() == 1


async def test_a_job_in_one_queue_and_a_holder_in_another_share_the_slots(
    two_queues: tuple[qo.Queue, qo.Queue],
) -> None:
    one, other = two_queues
    semaphore, worker = user_semaphore(one, "ada", "solo"), qo.Worker(other, "worker-1")
    worker.task("build")(lambda: None)
    await semaphore.acquire("h")
    async with running(worker):
        job = await other.submit("build", user="ada", tier="solo")
        await waiting(semaphore, 1)
        await semaphore.release("h")
        await state_is(other, job.id, qo.State.SUCCEEDED)

    assert await semaphore.acquire("h")
