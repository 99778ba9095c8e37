"""Leases of semaphores: an hour long, renewed by a heartbeat, and cleaned up when they have run out."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import qo
from qo.job import moment
from qo.limits.semaphore import user_semaphore
from qo.queue.queue import Queue
from qo.settings import load_settings
from qo.values import Bounds, Renewal
from tests.limits.semaphore_fixtures import clock_fixture, clocked_fixture, overrides_fixture  # noqa: F401 - asked for by name
from tests.limits.semaphore_staging import (
    JOBS_LEASE,
    LEASE,
    NOW,
    SECOND,
    SETTINGS,
    Staged,
    asked_at,
    expiry_of,
    queue_on,
    start_job,
    waiting,
)
from tests.stores import StoreUnderTest
from tests.worker.clocked import ClockedStore
from tests.worker.running import soon, until

LOOK_EVERY = 100 * SECOND
"""often enough for the store not to think that it was away"""


async def pass_time(clock: ClockedStore, *, to: int) -> None:
    """Workers look every now and then, so that leases end when their time is over."""
    for at in [*range(clock.now, to, LOOK_EVERY), to]:
        clock.now = at
        await clock.catch_up()


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


async def test_a_stale_holder_of_a_store_that_nobody_looked_at_is_gone_at_the_second_look(
    clocked: qo.Queue, clock: ClockedStore
) -> None:
    """The store cannot tell this from having been away itself, when nobody could renew."""
    semaphore = user_semaphore(clocked, "ada", "solo")
    await semaphore.acquire("dead")
    clock.now = NOW + 2 * LEASE
    at_first = (await semaphore.cleanup(), await semaphore.acquire("h"))
    clock.now += 2 * LEASE

    assert (at_first, await semaphore.cleanup(), await semaphore.acquire("h")) == ((0, False), 1, True)


async def test_a_semaphore_s_slot_is_free_as_soon_as_its_lease_is_over(clocked: qo.Queue, clock: ClockedStore) -> None:
    """A lease of one second, asked for again two seconds later: no job's lease has to be waited for."""
    concurrency = {"semaphore_lease_duration_secs": 1}
    short = Queue(clock, load_settings({"concurrency": concurrency}, environ={}))
    semaphore = user_semaphore(short, "ada", "bootstrapper")
    await semaphore.acquire("other")
    await semaphore.acquire("first")
    clock.now += 2000

    assert await semaphore.acquire("second")


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
    await clock.catch_up()
    (held,) = (await clock.renew([Renewal(holder=lease.job.id, token=lease.token, lease_ms=JOBS_LEASE)])).held

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
    meanwhile: list[bool | str] = []

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
