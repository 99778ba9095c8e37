"""`qo.Clock`: what waits for a time comes due when a test moves the clock, in memory and on a file."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import qo
import qo.sync
from qo.job import State
from tests.worker.running import run_one, running, soon

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def clock() -> qo.Clock:
    return qo.Clock(NOON)


@pytest.fixture(params=["memory", "file"])
async def queue(request: pytest.FixtureRequest, tmp_path: Path, clock: qo.Clock) -> AsyncIterator[qo.Queue]:
    url: Any = "memory://" if request.param == "memory" else tmp_path / "qo.db"
    async with await qo.connect(url, clock=clock) as queue:
        yield queue


@pytest.fixture
def worker(queue: qo.Queue) -> qo.Worker:
    return qo.Worker(queue)


@pytest.fixture
def ran(worker: qo.Worker) -> list[str]:
    """What the task `note` was given, in the order of its runs."""
    ran: list[str] = []

    @worker.task
    async def note(data: str) -> None:
        ran.append(data)

    return ran


# --- the clock ------------------------------------------------------------------------------------------------


def test_it_stands_still_until_it_is_moved(clock: qo.Clock) -> None:
    assert (clock.now(), repr(clock)) == (NOON, "<qo.Clock 2026-03-01T12:00:00+00:00>")

    clock.advance(days=1, hours=2, minutes=3, seconds=4.5)

    assert clock.now() == NOON + timedelta(days=1, hours=2, minutes=3, seconds=4.5)


def test_it_is_moved_to_a_time_of_any_zone(clock: qo.Clock) -> None:
    clock.advance_to(datetime(2026, 3, 1, 15, tzinfo=timezone(timedelta(hours=1))))

    assert clock.now() == NOON + timedelta(hours=2)


def test_without_a_time_it_stands_at_the_present() -> None:
    assert abs(qo.Clock().now() - datetime.now(UTC)) < timedelta(minutes=5)


def test_it_never_goes_back(clock: qo.Clock) -> None:
    with pytest.raises(qo.InvalidValue, match="goes only forward"):
        clock.advance(hours=-1)
    with pytest.raises(qo.InvalidValue, match="goes only forward"):
        clock.advance_to(NOON - timedelta(seconds=1))
    assert clock.now() == NOON


def test_a_time_without_a_zone_is_refused(clock: qo.Clock) -> None:
    for wrong in (datetime(2026, 3, 1), "2026-03-01"):  # noqa: DTZ001 - that is what is refused
        with pytest.raises(qo.InvalidValue, match="give a datetime since 1970 with a time zone"):
            qo.Clock(wrong)  # type: ignore[arg-type]
        with pytest.raises(qo.InvalidValue, match="give a datetime since 1970 with a time zone"):
            clock.advance_to(wrong)  # type: ignore[arg-type]


async def test_what_is_no_clock_is_refused() -> None:
    with pytest.raises(qo.InvalidValue, match=r"give a qo\.Clock"):
        await qo.connect("memory://", clock=NOON)  # type: ignore[arg-type]


async def test_redis_goes_by_its_own_time(clock: qo.Clock) -> None:
    with pytest.raises(qo.SettingsError, match=r"memory:// and SQLite files; a Redis server goes by its own time"):
        await qo.connect("redis://127.0.0.1:1", clock=clock)


# --- what comes due -------------------------------------------------------------------------------------------


async def test_a_delayed_job_runs_when_its_time_has_come(
    queue: qo.Queue, worker: qo.Worker, ran: list[str], clock: qo.Clock
) -> None:
    job = await queue.submit("note", "in an hour", delay=3600)
    await queue.submit("note", "at three", run_at=NOON + timedelta(hours=3))
    await worker.run_until_idle()
    clock.advance(minutes=59)
    await worker.run_until_idle()
    assert (ran, (await queue.get(job.id)).state) == ([], State.SCHEDULED)

    clock.advance(minutes=1)
    assert (await queue.get(job.id)).state is State.QUEUED
    await worker.run_until_idle()
    assert (await queue.get(job.id)).started_at == NOON + timedelta(hours=1)
    clock.advance(hours=2)
    await worker.run_until_idle()

    assert ran == ["in an hour", "at three"]


async def test_a_failed_attempt_is_tried_again(queue: qo.Queue, worker: qo.Worker, clock: qo.Clock) -> None:
    @worker.task
    async def fetch(data: None, ctx: qo.Context) -> int:
        if ctx.attempt < 3:
            raise qo.Retry("Not there yet.", after=3600)
        return ctx.attempt

    job = await queue.submit("fetch")
    for _ in range(2):
        await worker.run_until_idle()
        assert (await queue.get(job.id)).state is State.SCHEDULED
        clock.advance(hours=1)
    await worker.run_until_idle()

    assert await queue.result(job) == 3


async def test_every_cron_tick_that_passes_is_one_job(
    queue: qo.Queue, worker: qo.Worker, ran: list[str], clock: qo.Clock
) -> None:
    worker.cron("0 3 * * *", "note", "nightly")
    await worker.run_until_idle()
    assert ran == []

    clock.advance_to(NOON.replace(day=2, hour=3))
    await worker.run_until_idle()
    await worker.run_until_idle()
    assert ran == ["nightly"]

    clock.advance(days=3)
    await worker.run_until_idle()
    assert ran == ["nightly"] * 4
    assert [job.id for job in await queue.jobs(task="note")] == [
        f"cron:note@2026-03-0{day}T03:00Z" for day in (2, 3, 4, 5)
    ]


async def test_a_job_that_has_not_started_in_time_has_failed_without_any_worker(
    queue: qo.Queue, clock: qo.Clock
) -> None:
    job = await queue.submit("note", start_by=30)
    clock.advance(seconds=31)

    failed = await queue.get(job.id)

    assert failed.error is not None
    assert (failed.state, failed.error.message) == (State.FAILED, "Not started within 30 seconds")


async def test_a_job_ages(queue: qo.Queue, worker: qo.Worker, ran: list[str], clock: qo.Clock) -> None:
    await queue.submit("note", "low", priority="low")
    clock.advance(hours=1)
    await queue.submit("note", "normal")

    await worker.run_until_idle()

    assert ran == ["low", "normal"]


async def test_a_quota_s_day_ends(queue: qo.Queue, worker: qo.Worker, ran: list[str], clock: qo.Clock) -> None:
    jobs = [await queue.submit("note", str(number), user="ada", tier="bootstrapper") for number in range(6)]
    await worker.run_until_idle()
    assert (jobs[-1].deferred, len(ran)) == (True, 5)
    assert (await queue.usage("ada")).jobs_remaining == 0

    clock.advance(days=1)
    await worker.run_until_idle()

    assert len(ran) == 6
    assert (await queue.usage("ada")).jobs_used == 1


async def test_a_confirmation_that_nobody_gave_ends_the_job(
    queue: qo.Queue, worker: qo.Worker, clock: qo.Clock
) -> None:
    @worker.task
    async def improve(data: None, ctx: qo.Context) -> None:
        async for _ in ctx.iterations():
            pass

    job = await run_one(queue, worker, "improve", user="ada", tier="bootstrapper")
    assert job.state is State.CONFIRMING

    clock.advance(hours=25)
    await worker.run_until_idle()

    assert (await queue.get(job.id)).state is State.FAILED


async def test_a_slot_that_nobody_extends_is_free_again(queue: qo.Queue, clock: qo.Clock) -> None:
    manager = qo.ConcurrencyManager(queue)
    assert await manager.try_acquire("api", 1, "ann", lease=600) == 0
    clock.advance(minutes=9)
    assert await manager.extend_lease("api", 0, "ann", 600)
    assert await manager.try_acquire("api", 1, "bob") is None

    clock.advance(hours=1)

    assert (await manager.get_status("api")).active == 0
    assert not await manager.extend_lease("api", 0, "ann", 600)
    assert await manager.try_acquire("api", 1, "bob") == 0


async def test_a_job_that_runs_while_the_clock_jumps_loses_its_lease(
    queue: qo.Queue, worker: qo.Worker, clock: qo.Clock
) -> None:
    runs = 0

    @worker.task
    async def slow() -> int:
        nonlocal runs
        runs += 1
        if runs == 1:
            clock.advance(hours=1)
            await asyncio.Event().wait()
        return runs

    job = await queue.submit("slow")
    async with running(worker):
        assert await soon(queue.result(job)) == 2


async def test_time_passes_for_a_worker_that_runs_beside_the_test(
    queue: qo.Queue, worker: qo.Worker, ran: list[str], clock: qo.Clock
) -> None:
    job = await queue.submit("note", "tomorrow", delay=timedelta(days=1))
    async with running(worker):
        clock.advance(days=1)
        await soon(queue.wait(job.id))

    assert ran == ["tomorrow"]


def test_blocking_code_has_the_same_clock(clock: qo.Clock) -> None:
    with qo.sync.connect("memory://", clock=clock) as queue:
        worker = qo.sync.Worker(queue)
        ran: list[str] = []
        worker.task("note")(ran.append)
        worker.cron("0 3 * * *", "note", "nightly")
        queue.submit("note", "later", delay=3600)
        worker.run_until_idle()
        clock.advance(hours=1)
        worker.run_until_idle()
        assert ran == ["later"]
        clock.advance(days=1)
        worker.run_until_idle()

    assert ran == ["later", "nightly"]
