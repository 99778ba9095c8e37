"""Workers whose queues live apart, with groups whose slots are kept in one bucket. Against a real S3 server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import qo
from qo.store.bucket import BucketSlots
from qo.values import Limit, Source
from qo.worker import shared_slots
from tests.worker.running import running, soon, until
from tests.worker.shared_bucket import (  # noqa: F401 - asked for by name
    GROUP,
    bucket_fixture,
    bucket_url_fixture,
    held,
    queues_fixture,
    settings_fixture,
)


async def test_no_more_run_at_once_than_the_bucket_has_slots_and_nothing_is_left_held(
    queues: list[qo.Queue], bucket: BucketSlots, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_slots, "FIRST_PAUSE_SECONDS", 0.02)
    monkeypatch.setattr(shared_slots, "LONGEST_PAUSE_SECONDS", 0.05)
    inside, most, two_were_inside = 0, 0, asyncio.Event()
    workers = [qo.Worker(queue, f"worker-{number}", concurrency=4) for number, queue in enumerate(queues)]

    async def call() -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        if inside == 2:
            two_were_inside.set()
        await soon(two_were_inside.wait())
        await asyncio.sleep(0.005)
        inside -= 1

    for worker in workers:
        worker.task("call", groups=[GROUP])(call)
    jobs = [(queue, await queue.submit("call")) for queue in queues for _ in range(8)]
    async with running(*workers):
        ended = [await queue.wait(job.id, timeout=60) for queue, job in jobs]

    assert most == 2
    assert {(job.state, job.attempts) for job in ended} == {(qo.State.SUCCEEDED, 1)}
    assert await held(bucket) == 0


async def test_a_job_without_a_slot_goes_back_to_its_place_without_an_attempt_and_does_not_hold_up_others(
    queues: list[qo.Queue], bucket: BucketSlots, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_slots, "FIRST_PAUSE_SECONDS", 20)  # it must not be over before the test is
    for number in range(2):
        assert await bucket.try_acquire(GROUP, 2, f"other-{number}", None, 60) is not None
    queue = queues[0]
    worker = qo.Worker(queue, "worker-1", concurrency=1)
    ran: list[str] = []

    @worker.task(groups=[GROUP])
    async def shared() -> None:
        ran.append("shared")

    @worker.task
    async def plain() -> None:
        ran.append("plain")

    first = await queue.submit("shared")
    others = [await queue.submit("plain") for _ in range(3)]
    async with running(worker):
        for other in others:
            await queue.wait(other.id, timeout=20)
        after = await queue.get(first.id)
        status = await queue.limit(GROUP)

    assert ran == ["plain"] * 3
    assert (after.state, after.attempts, after.position) == (qo.State.QUEUED, 0, 1)
    assert status.closed_until is not None


async def test_it_starts_when_a_slot_is_given_back(
    queues: list[qo.Queue], bucket: BucketSlots, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_slots, "FIRST_PAUSE_SECONDS", 0.02)
    monkeypatch.setattr(shared_slots, "LONGEST_PAUSE_SECONDS", 0.05)
    await bucket.set_limit(GROUP, 1)
    slot = await bucket.try_acquire(GROUP, 1, "other", None, 60)
    assert slot is not None
    worker = qo.Worker(queues[0], "worker-1")
    worker.task("call", groups=[GROUP])(lambda: "called")
    job = await queues[0].submit("call")
    async with running(worker):

        async def was_refused() -> bool:
            return (await queues[0].limit(GROUP)).closed_until is not None

        await until(was_refused)
        await bucket.release(GROUP, slot, "other")
        ended = await queues[0].wait(job.id, timeout=20)

    assert (ended.result, ended.attempts) == ("called", 1)


async def test_a_slot_is_kept_while_its_job_runs(
    settings: dict[str, Any], bucket: BucketSlots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings["concurrency"]["default_lease_duration_secs"] = 1.5
    begun, go_on = asyncio.Event(), asyncio.Event()
    renew, renewals = BucketSlots.renew, 0

    async def counted(*args: Any) -> bool:
        nonlocal renewals
        renewals += 1
        return await renew(*args)

    async def renewed_for_longer_than_a_lease() -> bool:
        return renewals > shared_slots.RENEWALS_PER_LEASE + 1

    monkeypatch.setattr(BucketSlots, "renew", counted)
    async with await qo.connect(f"sqlite:///{tmp_path}/qo.db", settings=settings) as queue:
        worker = qo.Worker(queue, "worker-1")

        @worker.task(groups=[GROUP])
        async def long() -> str:
            begun.set()
            await go_on.wait()
            return "done"

        job = await queue.submit("long")
        async with running(worker):
            await soon(begun.wait())
            assert await held(bucket) == 1  # seen, so that from now on it can be seen to have run out
            await until(renewed_for_longer_than_a_lease)
            still_held = await held(bucket)
            go_on.set()
            ended = await queue.wait(job.id, timeout=20)

    assert (still_held, ended.result, ended.attempts) == (1, "done", 1)
    assert await held(bucket) == 0


async def test_a_job_whose_slot_is_lost_is_interrupted_and_goes_back_in_line(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings["concurrency"]["default_lease_duration_secs"] = 1.5
    interrupted: list[bool] = []
    runs = 0
    async with await qo.connect(f"sqlite:///{tmp_path}/qo.db", settings=settings) as queue:
        worker = qo.Worker(queue, "worker-1")

        @worker.task(groups=[GROUP])
        async def long() -> str:
            nonlocal runs
            runs += 1
            if runs > 1:
                return "second run"
            monkeypatch.setattr(BucketSlots, "still_held", lambda *_: False)
            try:
                await asyncio.Event().wait()
            finally:
                interrupted.append(True)
                monkeypatch.undo()
            return "never"

        job = await queue.submit("long")
        async with running(worker):
            ended = await queue.wait(job.id, timeout=20)

    assert (interrupted, ended.result, ended.attempts) == ([True], "second run", 1)


async def test_a_shared_group_without_a_limit_is_refused_when_the_worker_starts(
    settings: dict[str, Any], bucket: BucketSlots, tmp_path: Path
) -> None:
    settings["concurrency"]["limits"] = {}
    async with await qo.connect(f"sqlite:///{tmp_path}/qo.db", settings=settings) as queue:
        worker = qo.Worker(queue, "worker-1")
        worker.task("call", groups=[GROUP])(lambda: "called")
        with pytest.raises(qo.SettingsError, match=r"shared_groups has 'provider:openai', which has no limit"):
            await worker.run_until_idle()
        await bucket.set_limit(GROUP, 1)
        job = await queue.submit("call")
        await soon(worker.run_until_idle())

        assert (await queue.get(job.id)).result == "called"


@pytest.mark.parametrize("silence", ["refuses", "does not answer"])
async def test_a_worker_starts_without_its_bucket_and_runs_what_does_not_need_it(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, silence: str
) -> None:
    monkeypatch.setattr(shared_slots, "FIRST_PAUSE_SECONDS", 0.02)
    monkeypatch.setattr(shared_slots, "LONGEST_PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(shared_slots, "START_SECONDS", 0.05)
    open_bucket, is_back = BucketSlots.open, asyncio.Event()

    async def when_it_is_back(url: str) -> BucketSlots:
        if not is_back.is_set():
            if silence == "refuses":
                raise qo.StoreUnavailable("The bucket cannot be used (connection refused).")
            await is_back.wait()
        return await open_bucket(url)

    monkeypatch.setattr(BucketSlots, "open", when_it_is_back)
    async with await qo.connect(f"sqlite:///{tmp_path}/qo.db", settings=settings) as queue:
        worker = qo.Worker(queue, "worker-1", concurrency=2)
        worker.task("plain")(lambda: "plain")
        worker.task("shared", groups=[GROUP])(lambda: "shared")
        shared, plain = await queue.submit("shared"), await queue.submit("plain")
        async with running(worker):
            without_bucket = await queue.wait(plain.id, timeout=20)
            waits = await queue.get(shared.id)
            is_back.set()
            with_bucket = await queue.wait(shared.id, timeout=20)

    assert (without_bucket.result, waits.finished_at) == ("plain", None)
    assert (with_bucket.result, with_bucket.attempts) == ("shared", 1)


async def test_a_wrong_url_of_the_bucket_still_ends_a_worker_at_its_start(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    settings["concurrency"]["store"] = "s3://"
    async with await qo.connect(f"sqlite:///{tmp_path}/qo.db", settings=settings) as queue:
        worker = qo.Worker(queue, "worker-1")
        worker.task("plain")(lambda: "plain")
        with pytest.raises(qo.SettingsError, match=r"concurrency\.store"):
            await worker.run_until_idle()


async def test_the_configured_limit_of_a_shared_group_is_the_buckets_alone(queues: list[qo.Queue]) -> None:
    assert (await queues[0].limit(GROUP)).limit is None


async def test_a_limit_that_is_removed_lets_jobs_wait_without_an_attempt_spent(
    settings: dict[str, Any], bucket: BucketSlots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_slots, "FIRST_PAUSE_SECONDS", 0.02)
    monkeypatch.setattr(shared_slots, "LONGEST_PAUSE_SECONDS", 0.05)
    settings["concurrency"]["limits"] = {}
    await bucket.set_limit(GROUP, 1)
    async with await qo.connect(f"sqlite:///{tmp_path}/qo.db", settings=settings) as queue:
        worker = qo.Worker(queue, "worker-1")
        worker.task("call", groups=[GROUP])(lambda: "called")
        async with running(worker):

            async def is_there() -> bool:
                return bool(await queue.workers())

            await until(is_there)
            await bucket.remove_limit(GROUP)
            job = await queue.submit("call")

            async def was_refused() -> bool:
                return (await queue.limit(GROUP)).closed_until is not None

            await until(was_refused)
            await bucket.set_limit(GROUP, 1)
            ended = await queue.wait(job.id, timeout=20)

    assert (ended.result, ended.attempts) == ("called", 1)


async def test_a_job_whose_lease_ran_out_while_its_slots_were_fetched_is_not_started(
    queues: list[qo.Queue], bucket: BucketSlots, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = queues[0]
    worker = qo.Worker(queue, "worker-1")
    ran: list[str] = []
    take = shared_slots.SharedSlots.take

    async def take_for_long(self: Any, token: str, job: qo.Job) -> str | None:
        full = await take(self, token, job)
        if not ran:
            ran.append("revoked")
            await queue.store.set_limits([Limit(group="call", slots=1, source=Source.OPERATOR)])
            await queue.release_slot("call", 0, force=True)
        return full

    monkeypatch.setattr(shared_slots.SharedSlots, "take", take_for_long)
    worker.task("call", groups=[GROUP])(lambda: ran.append("ran"))
    job = await queue.submit("call")
    async with running(worker):
        ended = await queue.wait(job.id, timeout=20)

    assert (ran, ended.attempts, await held(bucket)) == (["revoked", "ran"], 2, 0)
