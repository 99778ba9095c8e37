"""The manager on a bucket: the same calls as on every store. Against a real S3 server."""

from __future__ import annotations

from pathlib import Path

import pytest

import qo
from qo.store.bucket import BucketSlots
from qo.values import Source
from tests.worker.shared_bucket import bucket_fixture, bucket_url_fixture  # noqa: F401 - asked for by name


async def test_the_manager_has_the_same_calls_on_a_bucket(bucket_url: str) -> None:
    async with await qo.ConcurrencyManager.open(bucket_url) as manager:
        taken = {await manager.try_acquire("api", 2, f"holder-{n}", "worker-1", 60) for n in range(2)}
        assert taken == {0, 1}
        assert await manager.try_acquire("api", 2, "late") is None
        status = await manager.get_status("api")
        assert (status.active, {slot.holder for slot in status.slots}) == (2, {"holder-0", "holder-1"})
        slot = next(slot.slot_id for slot in status.slots if slot.holder == "holder-0")
        assert not await manager.release("api", slot, "holder-1")
        assert await manager.extend_lease("api", slot, "holder-0", 30)
        assert await manager.release("api", slot, "holder-0")
        assert await manager.cleanup_expired("api") == 0
        assert await manager.try_acquire("api", 2, "late") == slot


async def test_the_manager_shows_the_limit_that_was_given_with_the_last_call(
    bucket_url: str, bucket: BucketSlots
) -> None:
    async with await qo.ConcurrencyManager.open(bucket_url) as manager:
        before = (await manager.get_status("api")).limit
        slot = await manager.try_acquire("api", 2, "ann")
        assert slot is not None
        given = await manager.get_status("api")
        elsewhere = await bucket.get_status("api")
        await manager.release("api", slot, "ann")
        released = (await manager.get_status("api")).limit
        await bucket.set_limit("api", 5)
        by_operator = await manager.get_status("api")

    assert (before, given.limit, given.source, released) == (None, 2, Source.TASK, 2)
    assert (elsewhere.limit, elsewhere.source) == (2, Source.TASK)
    assert (by_operator.limit, by_operator.source) == (5, Source.OPERATOR)


async def test_the_manager_opens_any_store(tmp_path: Path) -> None:
    async with await qo.ConcurrencyManager.open(f"sqlite:///{tmp_path}/qo.db") as manager:
        assert await manager.try_acquire("api", 1, "ann") == 0


async def test_a_bucket_is_no_place_for_jobs(bucket_url: str) -> None:
    with pytest.raises(qo.SettingsError, match="a bucket, which keeps slots and no jobs"):
        await qo.connect(bucket_url)
