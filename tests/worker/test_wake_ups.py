"""No wake-up of a worker is lost: with every poll set to an hour, an idle one is woken within seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import qo
from qo.queue.queue import Queue
from qo.store.sqlite import SQLiteStore
from tests.conformance.suite.harness import claim, finish, hand_back, succeed
from tests.processes import Process, program
from tests.stores import STORES
from tests.worker.hourly_polls import (  # noqa: F401 - asked for by name
    HEARD_SECONDS,
    held_elsewhere,
    hourly_fixture,
    no_clock_fixture,
    other_fixture,
    queue_fixture,
    store_under_test_fixture,
)
from tests.worker.running import running
from tests.worker.slow_polls import idle, url_of

SOON_SECONDS = 0.3

SUBMITTING = """
import sys
import qo.sync
with qo.sync.connect(sys.argv[1], namespace=sys.argv[2]) as queue:
    queue.submit("work", id="job")
"""


class Started:
    """A worker with one task, and the jobs that it has started."""

    def __init__(self, queue: Queue) -> None:
        self.worker = qo.Worker(queue, "idle", concurrency=4)
        self._started: dict[str, asyncio.Event] = {}

        @self.worker.task("work")
        async def work(data: Any, ctx: qo.Context) -> None:
            self._event(ctx.job.id).set()
            if data == "try again" and ctx.job.attempts == 1:
                self._event(ctx.job.id).clear()
                raise qo.Retry(after=SOON_SECONDS)

    async def job(self, job_id: str) -> None:
        async with asyncio.timeout(HEARD_SECONDS):
            await self._event(job_id).wait()

    def _event(self, job_id: str) -> asyncio.Event:
        return self._started.setdefault(job_id, asyncio.Event())


@pytest.fixture
async def started(queue: Queue) -> Started:
    return Started(queue)


# --- something happens ----------------------------------------------------------------------------------------


async def in_a_full_group(other: Queue) -> Callable[[], Awaitable[object]]:
    await other.set_limit("gpu", 1)
    lease = await held_elsewhere(other, groups=["gpu"])
    await other.submit("work", id="job", groups=["gpu"])
    return lambda: succeed(other.store, lease, now=None)


async def submitted(other: Queue) -> Callable[[], Awaitable[object]]:
    return lambda: other.submit("work", id="job")


async def group_freed(other: Queue) -> Callable[[], Awaitable[object]]:
    return await in_a_full_group(other)


async def gate_freed(other: Queue) -> Callable[[], Awaitable[object]]:
    await other.set_limit("global", 1)
    lease = await held_elsewhere(other)
    await other.submit("work", id="job")
    return lambda: succeed(other.store, lease, now=None)


async def holder_cancelled(other: Queue) -> Callable[[], Awaitable[object]]:
    await in_a_full_group(other)
    (lease,) = await other.store.leases()

    async def cancel() -> None:
        await other.cancel("holder")
        await finish(other.store, lease, qo.State.CANCELLED, now=None)

    return cancel


async def holder_handed_back(other: Queue) -> Callable[[], Awaitable[object]]:
    await other.submit("work", id="job")
    (lease,) = await claim(other.store, worker="another", now=None)
    return lambda: hand_back(other.store, lease, now=None)


async def slot_released_by_force(other: Queue) -> Callable[[], Awaitable[object]]:
    await in_a_full_group(other)
    return lambda: other.store.revoke("gpu", 0, force=True)


async def limit_raised(other: Queue) -> Callable[[], Awaitable[object]]:
    await in_a_full_group(other)
    return lambda: other.set_limit("gpu", 2)


async def limit_removed(other: Queue) -> Callable[[], Awaitable[object]]:
    await in_a_full_group(other)
    return lambda: other.remove_limit("gpu")


async def gate_raised(other: Queue) -> Callable[[], Awaitable[object]]:
    await other.set_limit("work", 0)
    await other.submit("work", id="job")
    return lambda: other.set_limit("work", 1)


def resumed(group: str) -> Callable[[Queue], Awaitable[Callable[[], Awaitable[object]]]]:
    async def arrange(other: Queue) -> Callable[[], Awaitable[object]]:
        await other.pause(group)
        await other.submit("work", id="job", groups=["gpu"])
        return lambda: other.resume(group)

    arrange.__name__ = f"{group.partition(':')[0]}_resumed"
    return arrange


async def confirmed(other: Queue) -> Callable[[], Awaitable[object]]:
    await other.submit("work", id="job")
    (lease,) = await claim(other.store, worker="another", now=None)
    await finish(other.store, lease, qo.State.CONFIRMING, message="Go on?", now=None)
    return lambda: other.confirm("job")


async def phase_released(other: Queue) -> Callable[[], Awaitable[object]]:
    await other.submit("elsewhere", id="holder", parent="parent", phase=1)
    await other.submit("work", id="job", parent="parent", phase=2)
    (lease,) = await claim(other.store, tasks=["elsewhere"], worker="another", now=None)
    return lambda: succeed(other.store, lease, now=None)


async def retried_by_hand(other: Queue) -> Callable[[], Awaitable[object]]:
    await other.submit("work", id="job")
    await other.cancel("job")
    await other.submit("work", id="failed", max_attempts=1)
    (lease,) = await claim(other.store, worker="another", now=None)
    await finish(other.store, lease, qo.State.FAILED, error=qo.JobError(message="It broke."), now=None)
    return lambda: other.retry("failed")


async def priority_changed(other: Queue) -> Callable[[], Awaitable[object]]:
    await other.pause("priority:50")
    await other.submit("work", id="job")
    return lambda: other.set_priority("job", 20)


HAPPENINGS = [
    submitted,
    group_freed,
    gate_freed,
    holder_cancelled,
    holder_handed_back,
    slot_released_by_force,
    limit_raised,
    limit_removed,
    gate_raised,
    resumed("gpu"),
    resumed("work"),
    resumed("global"),
    resumed("priority:50"),
    confirmed,
    phase_released,
    retried_by_hand,
    priority_changed,
]


@pytest.mark.usefixtures("no_clock")
@pytest.mark.parametrize("arrange", HAPPENINGS, ids=lambda arrange: arrange.__name__)
async def test_an_idle_worker_hears_of_what_lets_a_job_start(
    queue: Queue, other: Queue, started: Started, arrange: Callable[[Queue], Awaitable[Callable[[], Awaitable[object]]]]
) -> None:
    happens = await arrange(other)
    async with running(started.worker):
        await idle(queue)
        await happens()

        await started.job("failed" if arrange is retried_by_hand else "job")


@pytest.mark.usefixtures("no_clock")
@pytest.mark.parametrize(
    "store_under_test", [store for store in STORES if store.name != "sqlite-memory"], ids=lambda store: store.name
)
async def test_an_idle_worker_hears_of_a_job_that_another_process_submits(queue: Queue, started: Started) -> None:
    store = queue.store
    if isinstance(store, SQLiteStore):
        url, namespace = f"sqlite:///{store.path}", "default"
    else:
        url, namespace = url_of(store)
    async with running(started.worker):
        await idle(queue)
        with Process(program(SUBMITTING, url, namespace)) as process:
            assert await process.ended() == 0

        await started.job("job")


# --- time passes ----------------------------------------------------------------------------------------------


async def test_an_idle_worker_hears_of_a_job_that_was_submitted_with_a_delay_and_is_due(
    queue: Queue, other: Queue, started: Started
) -> None:
    async with running(started.worker):
        await idle(queue)
        await other.submit("work", id="job", delay=SOON_SECONDS)

        await started.job("job")


async def test_a_worker_hears_of_a_delayed_job_that_was_there_before_it(
    queue: Queue, other: Queue, started: Started
) -> None:
    await other.submit("work", id="job", delay=SOON_SECONDS)
    async with running(started.worker):
        await started.job("job")


async def test_an_idle_worker_fails_a_job_that_has_not_started_in_time(
    queue: Queue, other: Queue, started: Started
) -> None:
    await queue.pause("gpu")
    async with running(started.worker):
        await idle(queue)
        await other.submit("work", id="job", groups=["gpu"], start_by=SOON_SECONDS)

        assert (await other.wait("job", timeout=HEARD_SECONDS)).state is qo.State.FAILED


async def test_an_idle_worker_hears_of_a_due_job_that_comes_before_one_it_knows_of(
    queue: Queue, other: Queue, started: Started
) -> None:
    await other.submit("work", id="later", delay=3600)
    async with running(started.worker):
        await idle(queue)
        await other.submit("work", id="job", delay=SOON_SECONDS)

        await started.job("job")


async def test_a_worker_hears_that_its_own_job_is_to_be_tried_again(
    queue: Queue, other: Queue, started: Started
) -> None:
    async with running(started.worker):
        await idle(queue)
        await other.submit("work", "try again", id="job")

        await started.job("job")


async def test_an_idle_worker_hears_that_the_job_of_another_is_to_be_tried_again(
    queue: Queue, other: Queue, started: Started
) -> None:
    tried = asyncio.Event()
    failing = qo.Worker(other, "failing", concurrency=1)

    @failing.task("work")
    async def work() -> None:
        tried.set()
        failing.stop()
        raise qo.Retry(after=SOON_SECONDS)

    await other.submit("work", id="job")
    async with running(failing):
        await asyncio.wait_for(tried.wait(), HEARD_SECONDS)
        async with running(started.worker):
            await started.job("job")


@pytest.mark.parametrize("idle_before", [True, False])
async def test_an_idle_worker_hears_that_the_lease_of_a_worker_that_died_is_over(
    queue: Queue, other: Queue, started: Started, idle_before: bool
) -> None:
    """No other worker is there: it is the idle one itself that looks, at the moment in which the lease ends."""

    async def hold_and_die() -> None:
        await other.set_limit("gpu", 1)
        await other.submit("elsewhere", id="holder", groups=["gpu"])
        lease_ms = round(SOON_SECONDS * 1000)
        assert await claim(other.store, tasks=["elsewhere"], worker="dying", lease_ms=lease_ms, now=None)
        await other.submit("work", id="job", groups=["gpu"])

    if not idle_before:
        await hold_and_die()
    async with running(started.worker):
        if idle_before:
            await idle(queue)
            await hold_and_die()

        await started.job("job")
