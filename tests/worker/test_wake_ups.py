"""No wake-up is lost: with every poll set to an hour, every waiter is woken within seconds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

import qo
from qo.queue.queue import Queue
from qo.settings import load_settings
from qo.store.sqlite import SQLiteStore
from qo.values import Bounds, Lease
from tests.conformance.suite.harness import claim, finish, hand_back, succeed
from tests.processes import Process, program
from tests.stores import STORES, StoreUnderTest
from tests.worker.running import running, state_is, until
from tests.worker.slow_polls import (
    SETTINGS,
    Hearing,
    another_queue,
    idle,
    look_at_the_clock_hourly,
    poll_hourly,
    url_of,
)

HEARD_SECONDS = 10
"""A net. A wake-up takes milliseconds, and a lost one an hour."""
SOON_SECONDS = 0.3


@pytest.fixture(autouse=True)
def hourly(monkeypatch: pytest.MonkeyPatch) -> None:
    poll_hourly(monkeypatch)


@pytest.fixture
def no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    look_at_the_clock_hourly(monkeypatch)


@pytest.fixture(params=STORES, ids=lambda store: store.name)
def store_under_test(request: pytest.FixtureRequest) -> StoreUnderTest:
    """Every store in the gate too: each has a way of its own to wake workers."""
    chosen: StoreUnderTest = request.param
    return chosen


@pytest.fixture
async def queue(store_under_test: StoreUnderTest) -> AsyncIterator[Queue]:
    store = await store_under_test.open(Bounds())
    opened = Queue(store, load_settings(SETTINGS, environ={}))
    yield opened
    await opened.close()
    await store_under_test.close(store)


@pytest.fixture
async def other(queue: Queue) -> AsyncIterator[Queue]:
    async with another_queue(queue) as opened:
        yield opened


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


async def held_elsewhere(other: Queue, **options: Any) -> Lease:
    """A job of another task that another worker runs."""
    await other.submit("elsewhere", id="holder", **options)
    (lease,) = await claim(other.store, tasks=["elsewhere"], worker="another", now=None)
    return lease


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
