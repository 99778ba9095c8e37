"""The log's line of slots that were freed because their lease ran out."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

import qo
from qo.event import LEASE_LOST, Event
from qo.queue.queue import Queue
from qo.worker.cleaned import log_cleaned
from qo.worker.upkeep import Upkeep
from tests.worker.clocked import ClockedStore
from tests.worker.running import run_one, until

NOW = 1_900_000_000_000
LEASE_MS = 300_000


def cleaned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "cleaned" in record.getMessage()]


@pytest.fixture
def clock(queue: qo.Queue) -> ClockedStore:
    return ClockedStore(queue.store, now=NOW)


@pytest.fixture
def workers(queue: qo.Queue, clock: ClockedStore) -> list[Upkeep]:
    """The upkeep of two workers."""
    clocked = Queue(clock, queue.settings)
    return [Upkeep(clocked, notifier=None, cursor=0) for _ in range(2)]  # type: ignore[arg-type]


async def let_leases_end(clock: ClockedStore, workers: list[Upkeep]) -> None:
    for _ in range(8):
        clock.now += LEASE_MS // 6
        await asyncio.gather(*(worker.catch_up() for worker in workers))


async def hold(clock: ClockedStore, queue: qo.Queue, jobs: int, *groups: str) -> None:
    for _ in range(jobs):
        await queue.submit("build", groups=list(groups))
    await clock.claim(worker="dead", tasks=["build"], capacity=jobs, lease_ms=LEASE_MS, claim_id=f"{jobs}{groups}")


async def test_swept_slots_are_told_once_by_one_of_the_workers(
    queue: qo.Queue, clock: ClockedStore, workers: list[Upkeep], caplog: pytest.LogCaptureFixture
) -> None:
    await queue.set_limit("gpu", 3)
    await queue.set_limit("build", 9)
    await hold(clock, queue, 2, "gpu", "unlimited")
    await hold(clock, queue, 1)

    await let_leases_end(clock, workers)
    await let_leases_end(clock, workers)

    assert cleaned(caplog) == [
        "cleaned 3 expired slots in group build",
        "cleaned 2 expired slots in group gpu",
    ]


async def test_slots_that_another_step_swept_are_told_too(
    queue: qo.Queue, clock: ClockedStore, workers: list[Upkeep], caplog: pytest.LogCaptureFixture
) -> None:
    """A claim ends leases as well, and mostly comes first."""
    await queue.set_limit("gpu", 3)
    await hold(clock, queue, 1, "gpu")
    for _ in range(8):
        clock.now += LEASE_MS // 6
        await clock.claim(worker="w", tasks=["other"], capacity=1, lease_ms=LEASE_MS, claim_id=str(clock.now))

    await workers[0].catch_up()
    await workers[1].catch_up()

    assert cleaned(caplog) == ["cleaned 1 expired slot in group gpu"]


async def test_swept_slots_are_told_on_a_store_that_takes_no_more_records(
    queue: qo.Queue, clock: ClockedStore, workers: list[Upkeep], caplog: pytest.LogCaptureFixture
) -> None:
    async def out_of_memory(*args: Any, **options: Any) -> bool:
        raise qo.StoreUnavailable("Redis is out of memory")

    clock.put_record = out_of_memory
    await queue.set_limit("gpu", 3)
    await hold(clock, queue, 1, "gpu")

    await let_leases_end(clock, workers[:1])

    assert cleaned(caplog) == ["cleaned 1 expired slot in group gpu"]


async def test_later_slots_are_told_later(
    queue: qo.Queue, clock: ClockedStore, workers: list[Upkeep], caplog: pytest.LogCaptureFixture
) -> None:
    await queue.set_limit("gpu", 3)
    for _ in range(2):
        await hold(clock, queue, 1, "gpu")
        await let_leases_end(clock, workers)
        await clock.cancel(job_id=(await queue.jobs(status="queued"))[0].id)

    assert cleaned(caplog) == ["cleaned 1 expired slot in group gpu"] * 2


async def test_a_running_worker_tells_what_it_swept(
    queue: qo.Queue, worker: qo.Worker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what its own first claim swept."""
    monkeypatch.setattr("qo.worker.upkeep.CATCH_UP_EVERY_SECONDS", 0.01)
    worker.task("build")(lambda: None)
    await queue.set_limit("gpu", 1)
    await queue.submit("build", groups=["gpu"])
    await queue.store.claim(worker="dead", tasks=["build"], capacity=1, lease_ms=1, claim_id="c")

    async def told() -> bool:
        return bool(cleaned(caplog))

    running = asyncio.create_task(worker.run())
    await until(told)
    worker.stop()
    await running

    assert cleaned(caplog) == ["cleaned 1 expired slot in group gpu"]


async def test_a_slot_that_was_given_back_or_revoked_is_not_told_as_expired(
    queue: qo.Queue, worker: qo.Worker, clock: ClockedStore, workers: list[Upkeep], caplog: pytest.LogCaptureFixture
) -> None:
    worker.task("build")(lambda: None)
    await queue.set_limit("gpu", 1)
    await run_one(queue, worker, "build", groups=["gpu"])
    await hold(clock, queue, 1, "gpu")
    await queue.release_slot("gpu", 0, force=True)

    await let_leases_end(clock, workers)

    assert cleaned(caplog) == []


def test_of_many_groups_the_fullest_are_named_and_the_others_counted(caplog: pytest.LogCaptureFixture) -> None:
    groups = [f"user:u{number:02}" for number in range(23)]
    lost = {"reason": "expired", "token": "1"}
    at = datetime.now(UTC)
    events = [Event(1, at, LEASE_LOST, "j", {**lost, "groups": groups}), Event(2, at, LEASE_LOST, "k", lost)]
    events += [Event(3, at, LEASE_LOST, "l", {**lost, "groups": ["user:u22"]})]

    log_cleaned(events)

    told = cleaned(caplog)
    assert told[0] == "cleaned 2 expired slots in group user:u22"
    assert told[-1] == "cleaned 3 expired slots in 3 more groups"
    assert len(told) == 21
