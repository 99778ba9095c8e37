"""The totals of a queue are right after jobs ran, and the same for every reader."""

from __future__ import annotations

import pytest

from qo.job import State
from qo.queue.queue import Queue
from qo.service.metrics import QueueMetrics, StreamCounts
from tests.conformance.suite.harness import (
    NOW,
    SECOND,
    acquire,
    claim,
    fail,
    limit,
    register,
    retry_later,
    submit,
    submit_all,
    succeed,
)
from tests.conformance.suite.harness import start as start_job
from tests.service.metrics.scraping import named, scrape


async def test_a_queue_without_jobs_reports_zeros(metrics: QueueMetrics) -> None:
    numbers = await scrape(metrics)

    assert numbers == {
        ("qo_jobs_queued",): 0,
        ("qo_jobs_running",): 0,
        ("qo_jobs_submitted_total",): 0,
        ("qo_jobs_ended_total", "succeeded"): 0,
        ("qo_jobs_ended_total", "failed"): 0,
        ("qo_jobs_ended_total", "cancelled"): 0,
        ("qo_job_run_seconds_count",): 0,
        ("qo_job_run_seconds_sum",): 0,
        ("qo_turns_total",): 0,
        ("qo_estimates_total", "true"): 0,
        ("qo_estimates_total", "false"): 0,
        ("qo_streams_open",): 0,
    }


async def test_jobs_are_counted_by_how_they_ended(queue: Queue, metrics: QueueMetrics) -> None:
    store = queue.store
    await register(store, "w1", "work", capacity=5)
    await submit_all(store, ["a", "b", "c", "d", "e", "f"])
    one, two, three, four = await claim(store, capacity=4, now=NOW + 2 * SECOND)
    await succeed(store, one, two, now=NOW + 5 * SECOND)
    await fail(store, three, now=NOW + 3 * SECOND)
    await retry_later(store, four, at=NOW + 90 * SECOND, now=NOW + 3 * SECOND)
    await store.cancel(job_id="e")
    await submit(store, "g", priority=10)
    await claim(store, now=NOW + 3 * SECOND)

    numbers = await scrape(metrics)

    assert numbers["qo_jobs_submitted_total",] == 7
    assert named(numbers, "qo_jobs_ended_total") == {
        ("succeeded",): 2,
        ("failed",): 1,
        ("cancelled",): 1,
        ("scheduled",): 1,
    }
    assert (numbers["qo_jobs_queued",], numbers["qo_jobs_running",]) == (1, 1)
    assert named(numbers, "qo_job_wait_seconds_count") == {("10",): 1, ("50",): 4}
    assert named(numbers, "qo_job_wait_seconds_sum") == {("10",): 3, ("50",): 8}
    assert (numbers["qo_job_run_seconds_count",], numbers["qo_job_run_seconds_sum",]) == (2, 6)


async def test_slots_that_were_taken_are_counted_by_their_wait(queue: Queue, metrics: QueueMetrics) -> None:
    store = queue.store
    await limit(store, "gpu", 1)
    first = await start_job(store, "a", groups=("gpu",))
    await submit(store, "b", groups=("gpu",))
    assert await claim(store) == []
    await succeed(store, first, now=NOW + 3 * SECOND)
    (second,) = await claim(store, now=NOW + 3 * SECOND)
    await succeed(store, second, now=NOW + 4 * SECOND)
    await start_job(store, "c", groups=("gpu",), now=NOW + 4 * SECOND)

    numbers = await scrape(metrics)

    assert numbers["qo_concurrency_slots_active", "gpu"] == 1
    assert numbers["qo_concurrency_slots_limit", "gpu"] == 1
    assert numbers["qo_concurrency_acquisition_total", "gpu", "acquired"] == 3
    assert numbers["qo_concurrency_acquisition_total", "gpu", "rejected"] == 1
    buckets = named(numbers, "qo_concurrency_wait_seconds_bucket")
    assert [buckets["gpu", bound] for bound in ("0.0", "1.0", "2.0", "4.0", "32768.0", "+Inf")] == [2, 2, 2, 3, 3, 3]
    assert numbers["qo_concurrency_wait_seconds_count", "gpu"] == 3
    assert numbers["qo_concurrency_wait_seconds_sum", "gpu"] == 3


async def test_a_wait_longer_than_all_buckets_is_in_the_last_one_only(queue: Queue, metrics: QueueMetrics) -> None:
    await limit(queue.store, "gpu", 1)
    await submit(queue.store, "a", groups=("gpu",))
    await claim(queue.store, now=NOW + 100_000 * SECOND)

    buckets = named(await scrape(metrics), "qo_concurrency_wait_seconds_bucket")

    assert (buckets["gpu", "32768.0"], buckets["gpu", "+Inf"]) == (0, 1)
    assert ("gpu", "65536.0") not in buckets


async def test_a_group_with_holders_and_no_limit_has_no_slots(queue: Queue, metrics: QueueMetrics) -> None:
    await start_job(queue.store, "a", groups=("gpu",), user="u1")

    numbers = await scrape(metrics)

    assert named(numbers, "qo_concurrency_slots_active") == {}
    assert named(numbers, "qo_concurrency_acquisition_total") == {}


async def test_turns_are_counted(queue: Queue, metrics: QueueMetrics) -> None:
    store = queue.store
    await register(store, "w1", "work", turn_after=1)
    await limit(store, "gpu", 1)
    await limit(store, "api", 1)
    before = await start_job(store, "before", groups=("gpu",))
    await submit(store, "passed", groups=("gpu", "api"))
    await succeed(store, before)
    await start_job(store, "passes", groups=("gpu",))

    assert (await scrape(metrics))["qo_turns_total",] == 1


async def test_estimates_are_counted_by_whether_they_were_kept(queue: Queue, metrics: QueueMetrics) -> None:
    store = queue.store
    await submit_all(store, ["soon", "late", "never told"])
    await store.note_promises({"soon": (0, 1_000_000), "late": (900_000, 1_000_000)})
    await claim(store, capacity=3)

    assert named(await scrape(metrics), "qo_estimates_total") == {("true",): 1, ("false",): 1}


async def test_callers_of_a_limiter_are_counted_with_the_jobs(queue: Queue, metrics: QueueMetrics) -> None:
    await limit(queue.store, "provider:ollama", 1)
    await limit(queue.store, "providers", 5)
    await acquire(queue.store, "caller-1", "provider:ollama", "providers")
    await acquire(queue.store, "caller-2", "provider:ollama", "providers")

    numbers = await scrape(metrics)

    assert named(numbers, "qo_concurrency_slots_active") == {("provider",): 1, ("providers",): 1}
    assert numbers["qo_concurrency_acquisition_total", "provider", "acquired"] == 1
    assert numbers["qo_concurrency_acquisition_total", "provider", "rejected"] == 1


async def test_the_streams_are_those_of_this_server(queue: Queue) -> None:
    metrics = QueueMetrics(queue, streams=lambda: StreamCounts(open=3, dropped={"slow": 2}))

    numbers = await scrape(metrics)

    assert (numbers["qo_streams_open",], numbers["qo_streams_dropped_total", "slow"]) == (3, 2)


async def test_two_readers_report_the_same(queue: Queue) -> None:
    store = queue.store
    early, late = QueueMetrics(queue), QueueMetrics(queue)
    await limit(store, "gpu", 2)
    for minute in range(6):
        lease = await start_job(store, f"j{minute}", groups=("gpu",), user="u1", now=NOW + minute * 60 * SECOND)
        await scrape(early)
        await succeed(store, lease, now=NOW + (minute * 60 + 30) * SECOND)

    assert (await scrape(early))["qo_jobs_ended_total", State.SUCCEEDED] == 6
    assert await early.text() == await late.text()


@pytest.mark.parametrize("apart_minutes", [1, 7])
async def test_what_happens_between_two_scrapes_is_counted_however_far_they_are_apart(
    queue: Queue, metrics: QueueMetrics, apart_minutes: int
) -> None:
    await submit(queue.store, "first")
    await scrape(metrics)
    for minute in range(apart_minutes):
        await submit(queue.store, f"j{minute}", now=NOW + minute * 60 * SECOND)

    assert (await scrape(metrics))["qo_jobs_submitted_total",] == 1 + apart_minutes
