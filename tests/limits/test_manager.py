"""Slots of a group taken and given back by hand."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

import qo
from qo.queue.queue import Queue
from qo.settings import load_settings
from tests.worker.clocked import ClockedStore

MINUTE_MS = 60_000


@pytest.fixture
def manager(queue: qo.Queue) -> qo.ConcurrencyManager:
    return qo.ConcurrencyManager(queue)


async def test_slots_are_numbered_from_zero_and_run_out(manager: qo.ConcurrencyManager) -> None:
    taken = [await manager.try_acquire("api", 2, f"holder-{number}") for number in range(3)]

    assert taken == [0, 1, None]


async def test_the_same_holder_is_told_its_slot_and_gets_no_second_one(manager: qo.ConcurrencyManager) -> None:
    first = await manager.try_acquire("api", 2, "ann", "worker-1")
    again = await manager.try_acquire("api", 2, "ann", "worker-1")

    assert (first, again, (await manager.get_status("api")).active) == (0, 0, 1)


async def test_one_holder_may_have_slots_of_several_groups(manager: qo.ConcurrencyManager) -> None:
    assert [await manager.try_acquire(group, 1, "ann") for group in ("a", "b", "a:b", "a%3Ab")] == [0, 0, 0, 0]


async def test_status_tells_who_holds_what_by_the_names_they_gave(manager: qo.ConcurrencyManager) -> None:
    await manager.try_acquire("api", 3, "ann", "worker-1")
    await manager.try_acquire("api", 3, "bob")

    status = await manager.get_status("api")

    assert (status.group, status.limit, status.active) == ("api", 3, 2)
    assert [(slot.slot_id, slot.holder, slot.worker_id) for slot in status.slots] == [
        (0, "ann", "worker-1"),
        (1, "bob", None),
    ]


async def test_a_released_slot_is_free_for_the_next(manager: qo.ConcurrencyManager) -> None:
    await manager.try_acquire("api", 1, "ann")

    assert await manager.release("api", 0, "ann")
    assert not await manager.release("api", 0, "ann")
    assert await manager.try_acquire("api", 1, "bob") == 0


@pytest.mark.parametrize(("slot_id", "holder"), [(0, "bob"), (1, "ann"), (7, "ann")])
async def test_a_wrong_holder_or_slot_changes_nothing_and_is_told(
    manager: qo.ConcurrencyManager, slot_id: int, holder: str
) -> None:
    await manager.try_acquire("api", 2, "ann")
    before = await manager.get_status("api")

    assert not await manager.release("api", slot_id, holder)
    assert not await manager.extend_lease("api", slot_id, holder, 60)
    assert await manager.get_status("api") == before


async def test_an_extended_lease_ends_later(manager: qo.ConcurrencyManager) -> None:
    await manager.try_acquire("api", 1, "ann", lease=timedelta(seconds=30))
    (before,) = (await manager.get_status("api")).slots
    assert await manager.extend_lease("api", 0, "ann", 45)
    (after,) = (await manager.get_status("api")).slots

    assert after.expires_at - before.expires_at == timedelta(seconds=45)


async def test_what_has_run_out_is_cleaned_up_and_counted(queue: Queue) -> None:
    clock = ClockedStore(queue.store, now=1_728_043_200_000)
    manager = qo.ConcurrencyManager(Queue(clock, load_settings({}, environ={})))
    for holder in ("ann", "bob"):
        await manager.try_acquire("api", 3, holder, lease=60)
    await manager.try_acquire("api", 3, "cid", lease=600)
    assert await manager.cleanup_expired("api") == 0
    clock.now += MINUTE_MS

    assert await manager.cleanup_expired("elsewhere") == 0
    assert await manager.try_acquire("api", 3, "dan") == 0
    assert (await manager.get_status("api")).active == 2
    assert not await manager.release("api", 1, "bob")


async def test_cleaning_up_counts_only_its_own_group(queue: Queue) -> None:
    clock = ClockedStore(queue.store, now=1_728_043_200_000)
    manager = qo.ConcurrencyManager(Queue(clock, load_settings({}, environ={})))
    for group, holder in (("api", "ann"), ("api", "bob"), ("other", "cid")):
        await manager.try_acquire(group, 3, holder, lease=60)
    clock.now += MINUTE_MS

    assert await manager.cleanup_expired("api") == 2
    assert await manager.cleanup_expired("api") == 0


async def test_an_operators_limit_wins_over_the_callers(queue: qo.Queue, manager: qo.ConcurrencyManager) -> None:
    await queue.set_limit("api", 1)

    assert [await manager.try_acquire("api", 5, holder) for holder in ("ann", "bob")] == [0, None]


async def test_jobs_and_holders_share_a_groups_slots(
    queue: qo.Queue, worker: qo.Worker, manager: qo.ConcurrencyManager
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    @worker.task(groups=["api"])
    async def call() -> None:
        begun.set()
        await go_on.wait()

    await queue.set_limit("api", 1)
    job = await queue.submit("call")
    run = asyncio.create_task(worker.run_until_idle())
    await asyncio.wait_for(begun.wait(), 10)
    refused = await manager.try_acquire("api", 1, "ann")
    go_on.set()
    await asyncio.wait_for(run, 10)

    assert (refused, (await queue.get(job.id)).state) == (None, qo.State.SUCCEEDED)
    assert await manager.try_acquire("api", 1, "ann") == 0


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("no group", {"group": ""}, "group"),
    ("a negative limit", {"limit": -1}, "limit"),
    ("half a limit", {"limit": 1.5}, "limit"),
    ("no holder", {"holder": ""}, "holder"),
    ("a long holder", {"holder": "x" * 101}, "holder"),
    ("no lease", {"lease": 0}, "lease"),
    ("an endless lease", {"lease": float("inf")}, "lease"),
    ("a lease that is text", {"lease": "60"}, "lease"),
]


@pytest.mark.parametrize(("wrong", "field"), [(wrong, field) for _, wrong, field in WRONG], ids=[w[0] for w in WRONG])
async def test_bad_input_is_refused_by_field_and_changes_nothing(
    manager: qo.ConcurrencyManager, queue: qo.Queue, wrong: dict[str, Any], field: str
) -> None:
    with pytest.raises(qo.InvalidValue, match=field):
        await manager.try_acquire(**{"group": "api", "limit": 1, "holder": "ann", **wrong})

    assert [group for group in await queue.limits() if group.group == "api"] == []
