"""Semaphores share their slots with jobs, and with semaphores of other queues on the same store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import qo
from qo.job import moment
from qo.limits.semaphore import Semaphore, project_semaphore, user_semaphore
from tests.limits.semaphore_fixtures import (  # noqa: F401 - asked for by name
    clock_fixture,
    clocked_fixture,
    overrides_fixture,
    staged_fixture,
)
from tests.limits.semaphore_staging import (
    JOBS_LEASE,
    NOW,
    SECOND,
    SETTINGS,
    Staged,
    is_untouched,
    listening,
    start_job,
    two_on_one_slot,
    waiting,
)
from tests.worker.clocked import ClockedStore
from tests.worker.running import running, soon, state_is


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
    one, other = two_on_one_slot(staged, queue)
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
