"""A process whose clock is wrong: only the store's clock decides when something is due."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import Any

import pytest

import qo
from qo.clock import system_ms
from qo.job import moment
from qo.loops.system import System
from qo.policy.days import day_of, midnight
from qo.queue.queue import Queue
from qo.settings import load_settings
from qo.store.bucket import BucketSlots
from qo.store.redis.store import RedisStore
from qo.values import Bounds
from qo.worker import shared_slots
from qo.worker.cron import CronEntry, Ticks, fire
from qo.worker.store_time import StoreTime
from tests.servers.bucket import shared_bucket_server
from tests.stores import StoreUnderTest
from tests.worker.running import running, soon

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
WITHIN_MS = 1000
GROUP = "provider:openai"


@pytest.fixture(params=[HOUR_MS, -HOUR_MS, 15 * MINUTE_MS, -15 * MINUTE_MS], ids=["+1h", "-1h", "+15min", "-15min"])
def ahead_ms(request: pytest.FixtureRequest) -> int:
    chosen: int = request.param
    return chosen


@pytest.fixture
async def skewed(
    store_under_test: StoreUnderTest, ahead_ms: int, overrides: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[qo.Queue]:
    """A queue whose process has a wrong clock. The file of SQLite has this machine's, which is right."""
    store = await store_under_test.open(Bounds())
    if isinstance(store, RedisStore):
        right, right_ns = time.time, time.time_ns
        monkeypatch.setattr(time, "time", lambda: right() + ahead_ms / 1000)
        monkeypatch.setattr(time, "time_ns", lambda: right_ns() + ahead_ms * 1_000_000)
        clock = system_ms
    else:
        clock = lambda: system_ms() + ahead_ms  # noqa: E731
    opened = Queue(store, load_settings(overrides, environ={}), system=System(clock=clock))
    yield opened
    await opened.close()
    monkeypatch.undo()
    await store_under_test.close(store)


async def store_now(queue: qo.Queue) -> datetime:
    return moment((await queue.store.renew([])).now_ms)


def assert_about(at: datetime | None, expected: datetime) -> None:
    assert at is not None
    assert abs(at - expected) < timedelta(milliseconds=WITHIN_MS)


async def test_a_delay_is_counted_by_the_store(skewed: qo.Queue) -> None:
    job = await skewed.submit("work", delay=60)

    assert_about(job.run_at, await store_now(skewed) + timedelta(seconds=60))


async def test_a_retry_is_counted_by_the_store(skewed: qo.Queue) -> None:
    worker = qo.Worker(skewed)

    @worker.task("work")
    async def work() -> None:
        raise qo.Retry("not yet", after=60)

    job = await skewed.submit("work")
    await worker.run_until_idle()

    assert_about((await skewed.get(job.id)).run_at, await store_now(skewed) + timedelta(seconds=60))


async def test_a_worker_s_cron_entries_go_by_the_time_of_the_store(
    skewed: qo.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: asyncio.Future[StoreTime] = asyncio.get_running_loop().create_future()

    async def note(ticks: Ticks, queue: qo.Queue, store_time: StoreTime) -> None:
        given.set_result(store_time)

    monkeypatch.setattr("qo.worker.background.fire", note)
    worker = qo.Worker(skewed)
    worker.cron("0 3 * * *", "work")

    async with running(worker):
        store_time = await soon(given)
        assert_about(store_time.now(), await store_now(skewed))


async def test_a_cron_entry_fires_at_the_store_s_time(skewed: qo.Queue) -> None:
    at = await store_now(skewed)
    # At least a minute ahead, so that the store's clock does not come to it during the test.
    tick = at.replace(second=0, microsecond=0) + timedelta(minutes=2)
    # Early enough for a busy machine: once the tick has passed, the next one is a minute away.
    just_before = StoreTime(round(tick.timestamp() * 1000) - 1500)
    ticks = Ticks(CronEntry(name="c", expression="* * * * *", task="work"))
    ticks.begin(just_before.now())
    firing = asyncio.create_task(fire(ticks, skewed, just_before))
    job_id = f"cron:c@{tick:%Y-%m-%dT%H:%MZ}"
    try:
        async with asyncio.timeout(10), aclosing(skewed.follower.follow(job_id, after=0)) as events:
            await anext(events)
    finally:
        firing.cancel()

    job = await skewed.get(job_id)
    assert (job.run_at, job.state) == (tick, qo.State.SCHEDULED)  # the store's clock has not come to the tick yet


async def test_a_quota_s_day_is_the_store_s(skewed: qo.Queue) -> None:
    jobs = [await skewed.submit("work", user="u1", tier="bootstrapper") for _ in range(6)]
    first, *_, deferred = jobs
    today = day_of(round((await store_now(skewed)).timestamp() * 1000))
    tomorrow = moment(midnight(today + 1))

    assert first.usage is not None
    assert first.usage.daily_limit_resets_at == tomorrow
    assert (await skewed.usage("u1")).daily_limit_resets_at == tomorrow
    assert deferred.run_at is not None
    assert tomorrow <= deferred.run_at <= tomorrow + timedelta(hours=1)


@pytest.fixture
def bucket_url() -> str:
    return shared_bucket_server().url(f"skewed-{secrets.token_hex(6)}")


class TestClosedGroups:
    @pytest.fixture
    def overrides(self, bucket_url: str) -> dict[str, Any]:
        return {"concurrency": {"store": bucket_url, "shared_groups": [GROUP], "limits": {GROUP: 1}}}

    async def test_a_group_that_is_full_elsewhere_is_closed_by_the_store_s_time(
        self, skewed: qo.Queue, bucket_url: str
    ) -> None:
        bucket = await BucketSlots.open(bucket_url)
        worker = qo.Worker(skewed)
        worker.task("call", groups=[GROUP])(lambda: None)
        try:
            await bucket.try_acquire(GROUP, 1, "somebody else", None, 60)
            await skewed.submit("call")
            before = await store_now(skewed)
            await worker.run_until_idle()
            status = await skewed.limit(GROUP)
        finally:
            await bucket.close()

        assert status.closed_until is not None
        left = status.closed_until - before
        assert timedelta(0) < left <= timedelta(seconds=shared_slots.LONGEST_PAUSE_SECONDS + 5)
