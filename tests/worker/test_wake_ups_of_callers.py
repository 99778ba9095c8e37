"""No wake-up of a running handler or of a waiting caller is lost: with every poll set to an hour, each is woken."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import qo
from qo.queue.queue import Queue
from tests.conformance.suite.harness import finish, succeed
from tests.worker.hourly_polls import (  # noqa: F401 - asked for by name
    HEARD_SECONDS,
    held_elsewhere,
    hourly_fixture,
    no_clock_fixture,
    other_fixture,
    queue_fixture,
    store_under_test_fixture,
)
from tests.worker.running import running, state_is, until
from tests.worker.slow_polls import Hearing

# --- running handlers -----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_clock")
@pytest.mark.parametrize("what", ["cancel", "revoke"])
async def test_a_running_handler_hears_that_it_is_to_stop(queue: Queue, other: Queue, what: str) -> None:
    worker, interrupted, hearing = qo.Worker(queue, "busy"), asyncio.Event(), Hearing(queue.store)

    @worker.task("work")
    async def work() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            interrupted.set()

    await other.set_limit("gpu", 1)
    await other.submit("work", id="job", groups=["gpu"])
    async with running(worker), asyncio.timeout(HEARD_SECONDS):
        await state_is(other, "job", qo.State.RUNNING)
        await hearing.begun()
        if what == "cancel":
            await other.cancel("job")
        else:
            await other.pause("work")
            await other.store.revoke("gpu", 0, force=True)

        await interrupted.wait()


@pytest.mark.usefixtures("no_clock")
async def test_a_caller_that_waits_for_a_job_hears_that_it_has_ended(queue: Queue, other: Queue) -> None:
    lease = await held_elsewhere(other)
    waiting = asyncio.create_task(queue.wait("holder"))
    await asyncio.sleep(0.1)

    await succeed(other.store, lease, now=None)

    async with asyncio.timeout(HEARD_SECONDS):
        assert (await waiting).state is qo.State.SUCCEEDED


# --- callers of a limiter -------------------------------------------------------------------------------------


GROUP = "provider:ollama"


@pytest.mark.usefixtures("no_clock")
@pytest.mark.parametrize("in_thread", [False, True], ids=["task", "thread"])
@pytest.mark.parametrize("freed_by", ["caller", "job", "cancel", "raise", "remove", "resume", "revoke"])
async def test_a_caller_that_waits_hears_of_its_slot(
    queue: Queue, other: Queue, freed_by: str, in_thread: bool
) -> None:
    hearing = Hearing(queue.store)
    limiter, elsewhere = qo.Limiter({"ollama": 1}, queue=queue), qo.Limiter({"ollama": 1}, queue=other)
    try:
        free = await slot_taken(other, elsewhere, freed_by)
        entered = asyncio.create_task(asyncio.to_thread(enter_in_thread, limiter) if in_thread else enter(limiter))

        async def does_wait() -> bool:
            return (await other.limit(GROUP)).waiting == 1

        await until(does_wait)
        await hearing.begun()
        await free()

        async with asyncio.timeout(HEARD_SECONDS):
            await entered
    finally:
        await asyncio.to_thread(limiter.close)
        await asyncio.to_thread(elsewhere.close)


async def slot_taken(other: Queue, elsewhere: qo.Limiter, freed_by: str) -> Callable[[], Awaitable[object]]:
    """Take the only slot, or pause the group; answers what makes it free again."""
    if freed_by == "resume":
        await other.pause(GROUP)
        return lambda: other.resume(GROUP)
    if freed_by == "caller":
        block = elsewhere.acquire("ollama")
        await block.__aenter__()
        return lambda: block.__aexit__(None, None, None)
    await other.set_limit(GROUP, 1)
    lease = await held_elsewhere(other, groups=[GROUP])
    match freed_by:
        case "job":
            return lambda: succeed(other.store, lease, now=None)
        case "cancel":
            return lambda: finish(other.store, lease, qo.State.FAILED, error=qo.JobError(message="no"), now=None)
        case "raise":
            return lambda: other.set_limit(GROUP, 2)
        case "remove":
            return lambda: other.remove_limit(GROUP)
    return lambda: other.store.revoke(GROUP, 0, force=True)


async def enter(limiter: qo.Limiter) -> None:
    async with limiter.acquire("ollama"):
        pass


def enter_in_thread(limiter: qo.Limiter) -> None:
    with limiter.acquire("ollama"):
        pass


@pytest.mark.usefixtures("no_clock")
async def test_a_holder_that_waits_for_a_semaphore_hears_of_its_slot(queue: Queue, other: Queue) -> None:
    here, there = qo.user_semaphore(queue, "ada", "partner"), qo.user_semaphore(other, "ada", "partner")
    slots = 0
    while await there.acquire(f"holder-{slots}"):
        slots += 1
    waiting = asyncio.create_task(here.acquire("waiting", timeout=3600))

    async def does_wait() -> bool:
        return (await other.limit("user:ada")).waiting == 1

    await until(does_wait)
    await asyncio.sleep(0.1)  # so that it listens; what it missed before that, it asks for
    await there.release("holder-0")

    async with asyncio.timeout(HEARD_SECONDS):
        assert await waiting
