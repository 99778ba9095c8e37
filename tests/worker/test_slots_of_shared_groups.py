"""How a worker takes and keeps the slots of shared groups, one step at a time."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

import qo
from qo.store.bucket import BucketSlots
from qo.worker import shared_slots
from tests.worker.running import soon
from tests.worker.shared_bucket import (  # noqa: F401 - asked for by name
    GROUP,
    bucket_fixture,
    bucket_url_fixture,
    held,
    queues_fixture,
    settings_fixture,
)

JOB: Any = SimpleNamespace(id="job", groups=(GROUP,))


class Bucket:
    """Gives the same slot to every caller, or none; it never answers renewals, and takes every slot for lost."""

    def __init__(self, *, slot: int | None) -> None:
        self._slot = slot

    async def try_acquire(self, *wanted: Any) -> int | None:
        return self._slot

    def still_held(self, *slot: Any) -> bool:
        return False

    async def renew(self, *slot: Any) -> bool:
        await asyncio.Event().wait()
        return True


def slots_of(bucket: Any, *, lease_seconds: float) -> shared_slots.SharedSlots:
    async def open_bucket() -> BucketSlots:
        opened: BucketSlots = bucket
        return opened

    return shared_slots.SharedSlots(open_bucket, {GROUP: 1}, worker="w", lease_seconds=lease_seconds)


async def test_a_full_group_is_left_alone_for_longer_each_time_and_never_the_same() -> None:
    slots = slots_of(Bucket(slot=None), lease_seconds=60)
    pauses = []
    for _ in range(11):
        assert await slots.take("token", JOB) == GROUP
        pauses.append([slots.pause_seconds(GROUP) for _ in range(20)])

    assert all(0.25 <= pause <= 0.5 for pause in pauses[0])
    assert all(15 <= pause <= 30 for pause in pauses[-1])
    assert len(set(pauses[-1])) > 1


async def test_a_lost_slot_is_reported_although_the_bucket_does_not_answer() -> None:
    slots = slots_of(Bucket(slot=0), lease_seconds=0.3)
    assert await slots.take("token", JOB) is None
    lost: asyncio.Queue[str] = asyncio.Queue()
    keeping = asyncio.create_task(slots.keep(lost.put_nowait))
    reported = await soon(lost.get())
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)

    assert reported == "token"


async def test_slots_of_a_job_whose_admission_is_cancelled_are_given_back(
    queues: list[qo.Queue], bucket: BucketSlots, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has one of its two slots and asks for the other when its worker's event loop ends."""
    groups = {"api": 1, "gpu": 1}
    try_acquire, asks_for_the_second = BucketSlots.try_acquire, asyncio.Event()

    async def stuck_at_the_second(self: BucketSlots, group: str, *rest: Any) -> int | None:
        if group == "gpu":
            asks_for_the_second.set()
            await asyncio.Event().wait()
        return await try_acquire(self, group, *rest)

    async def open_bucket() -> BucketSlots:
        return bucket

    monkeypatch.setattr(BucketSlots, "try_acquire", stuck_at_the_second)
    slots = shared_slots.SharedSlots(open_bucket, groups, worker="w", lease_seconds=60)
    job = await queues[0].submit("call", groups=["api", "gpu"])
    taking = asyncio.create_task(slots.take("token", job))
    await soon(asks_for_the_second.wait())
    held = (await bucket.get_status("api")).active
    taking.cancel()
    await asyncio.gather(taking, return_exceptions=True)

    assert (held, (await bucket.get_status("api")).active) == (1, 0)


async def test_a_job_in_two_groups_that_lacks_one_slot_keeps_none_of_the_other(
    bucket: BucketSlots, queues: list[qo.Queue]
) -> None:
    other = "provider:other"
    await bucket.set_limit(other, 1)
    await bucket.try_acquire(other, 1, "somebody", None, 60)

    async def opened() -> BucketSlots:
        return bucket

    slots = shared_slots.SharedSlots(opened, {GROUP: 2, other: 1}, worker="worker-1", lease_seconds=60)

    for groups in ([GROUP, other], [other, GROUP]):
        job = await queues[0].submit("call", groups=groups)
        lacking = await slots.take("a token", job)

        assert lacking == other
        assert await held(bucket) == 0
        assert (await bucket.get_status(other)).active == 1
