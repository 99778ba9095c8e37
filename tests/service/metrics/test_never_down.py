"""No counter goes down, and none misses a figure: over retention, and when the store's clock is set."""

from __future__ import annotations

from typing import Any

import pytest

from qo.queue.queue import Queue
from qo.service.metrics import QueueMetrics
from qo.values import Keep
from tests.conformance.suite.harness import (
    DAY,
    HOUR,
    MINUTE,
    NOW,
    SECOND,
    limit,
    start,
    submit,
    succeed,
    whole_upkeep,
)
from tests.service.metrics.conftest import SteadyClock
from tests.service.metrics.scraping import Numbers, assert_none_went_down, counters_in, scrape


async def forget(queue: Queue, *, now: int, keep_ms: int = HOUR) -> None:
    await whole_upkeep(queue.store, now=now, keep=Keep(ms=keep_ms, jobs=0, events=1, audit=0))


async def run_one(queue: Queue, job_id: str, *, now: int, **fields: Any) -> None:
    lease = await start(queue.store, job_id, now=now, groups=("gpu",), **fields)
    await succeed(queue.store, lease, now=now + SECOND)


async def fresh(queue: Queue) -> Numbers:
    """What a server reports that starts now."""
    return await scrape(QueueMetrics(queue))


class SeriesReads:
    """Records from which minute on the figures are read."""

    def __init__(self, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
        self.since: list[int] = []
        series = queue.store.series

        async def recording(*, prefix: str = "", since_minute: int = 0) -> Any:
            self.since.append(since_minute)
            return await series(prefix=prefix, since_minute=since_minute)

        monkeypatch.setattr(queue.store, "series", recording)


@pytest.fixture
def reads(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> SeriesReads:
    return SeriesReads(queue, monkeypatch)


async def test_after_the_first_scrape_only_the_newest_minutes_are_read(
    queue: Queue, metrics: QueueMetrics, reads: SeriesReads, steady_clock: SteadyClock
) -> None:
    for minute in range(3):
        await submit(queue.store, f"j{minute}", now=NOW + minute * MINUTE)
        await scrape(metrics)
        steady_clock.seconds += 60

    first = NOW // MINUTE
    assert reads.since == [0, first - 1, first]


async def test_the_sum_of_old_minutes_changes_no_total(queue: Queue, metrics: QueueMetrics, reads: SeriesReads) -> None:
    await limit(queue.store, "gpu", 1)
    for hour in range(4):
        await run_one(queue, f"j{hour}", now=NOW + hour * HOUR)
        before = await scrape(metrics)
        await forget(queue, now=NOW + (hour + 2) * HOUR)
        after = await scrape(metrics)

        assert counters_in(after) == counters_in(before)
        assert counters_in(after) == counters_in(await fresh(queue))
    assert {point.minute for point in await queue.store.series(prefix="submitted")} == {0}


async def test_a_total_grows_on_after_retention_took_the_newest_minutes(queue: Queue, metrics: QueueMetrics) -> None:
    for number in range(3):
        await submit(queue.store, f"j{number}")
    before = await scrape(metrics)
    # Retention in the very minute, and the clock set back into it: the minute begins anew.
    await forget(queue, now=NOW + 2 * DAY)
    await submit(queue.store, "again", now=NOW)
    after = await scrape(metrics)

    assert before["qo_jobs_submitted_total",] == 3
    assert after["qo_jobs_submitted_total",] == 4
    assert counters_in(after) == counters_in(await fresh(queue))


async def test_a_group_that_the_store_forgets_keeps_its_counters(queue: Queue, metrics: QueueMetrics) -> None:
    await limit(queue.store, "gpu", 1)
    await run_one(queue, "a", now=NOW)
    before = await scrape(metrics)
    await queue.remove_limit("gpu")
    await forget(queue, now=NOW + DAY)

    after = await scrape(metrics)
    await limit(queue.store, "gpu", 1, now=NOW + DAY)
    await run_one(queue, "b", now=NOW + DAY)
    later = await scrape(metrics)

    assert_none_went_down(before, after)
    assert later["qo_concurrency_acquisition_total", "gpu", "acquired"] == 2


async def test_a_group_that_the_store_has_forgotten_and_meets_again_does_not_go_down(
    queue: Queue, metrics: QueueMetrics
) -> None:
    await limit(queue.store, "gpu", 1)
    for number in range(3):
        await run_one(queue, f"a{number}", now=NOW)
    before = await scrape(metrics)
    await queue.remove_limit("gpu")
    await forget(queue, now=NOW + DAY)
    await limit(queue.store, "gpu", 1, now=NOW + DAY)
    await run_one(queue, "b", now=NOW + DAY)

    after = await scrape(metrics)

    assert_none_went_down(before, after)
    assert (await fresh(queue))["qo_concurrency_acquisition_total", "gpu", "acquired"] == 1


@pytest.mark.parametrize("back_ms", [30 * SECOND, 5 * MINUTE, 3 * HOUR])
async def test_figures_are_counted_after_the_clock_was_set_back(
    queue: Queue, metrics: QueueMetrics, back_ms: int
) -> None:
    await submit(queue.store, "before", now=NOW)
    await scrape(metrics)
    for number in range(3):
        await submit(queue.store, f"j{number}", now=NOW - back_ms + number * SECOND)
        found = await scrape(metrics)

        assert found["qo_jobs_submitted_total",] == 2 + number
        assert counters_in(found) == counters_in(await fresh(queue))


async def test_a_clock_that_was_set_back_is_noticed_when_it_has_caught_up(
    queue: Queue, metrics: QueueMetrics, steady_clock: SteadyClock
) -> None:
    await submit(queue.store, "before", now=NOW)
    await scrape(metrics)
    for minutes in range(20):
        await submit(queue.store, f"j{minutes}", now=NOW + (minutes - 10) * MINUTE)
    steady_clock.seconds += 20 * 60

    assert (await scrape(metrics))["qo_jobs_submitted_total",] == 21


async def test_a_clock_that_was_ahead_for_a_moment_does_not_make_every_scrape_read_all(
    queue: Queue, metrics: QueueMetrics, reads: SeriesReads
) -> None:
    await submit(queue.store, "before", now=NOW)
    await scrape(metrics)
    await submit(queue.store, "ahead", now=NOW + 365 * DAY)
    await scrape(metrics)
    await submit(queue.store, "right", now=NOW + MINUTE)
    back = await scrape(metrics)
    await submit(queue.store, "later", now=NOW + MINUTE)
    later = await scrape(metrics)

    assert (back["qo_jobs_submitted_total",], later["qo_jobs_submitted_total",]) == (3, 4)
    first = NOW // MINUTE
    assert reads.since == [0, first - 1, 0, first]


async def test_the_sum_of_times_does_not_go_down_when_the_clock_is_set_back_during_a_run(
    queue: Queue, metrics: QueueMetrics
) -> None:
    await succeed(queue.store, await start(queue.store, "a", now=NOW), now=NOW + 5 * SECOND)
    before = await scrape(metrics)
    await succeed(queue.store, await start(queue.store, "b", now=NOW), now=NOW - 3 * SECOND)
    after = await scrape(metrics)

    assert (before["qo_job_run_seconds_sum",], after["qo_job_run_seconds_sum",]) == (5, 5)
    assert after["qo_job_run_seconds_count",] == 2
