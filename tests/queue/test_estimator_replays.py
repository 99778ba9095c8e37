"""One replay of the line serves all who ask, and is made anew only while somebody asks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from qo.errors import StoreUnavailable
from qo.job import Job
from qo.queue.estimator import LOOK_AT_MOST
from tests.queue.estimator_scene import Scene, known
from tests.worker.running import soon, until


async def until_true(condition: Callable[[], bool]) -> None:
    async def look() -> bool:
        return condition()

    await until(look)


def counted_reads(scene: Scene) -> list[str]:
    reads: list[str] = []
    line = scene.store.line

    async def counting(**options: Any) -> Any:
        reads.append("line")
        return await line(**options)

    scene.store.line = counting
    return reads


async def test_a_thousand_callers_share_one_replay_a_tick(scene: Scene) -> None:
    await scene.ran(60)
    await scene.worker()
    await scene.submit(*(f"job-{number}" for number in range(1000)))
    jobs: tuple[Job, ...] = (await scene.store.jobs(status="queued", limit=1000)).jobs
    reads = counted_reads(scene)

    for _ in range(3):
        answers = await asyncio.gather(*(scene.estimator.estimate_of(job) for job in jobs))
        assert all(answers)
    one_tick = len(reads)
    scene.pass_time(6)
    await asyncio.gather(*(scene.estimator.estimate_of(job) for job in jobs))

    assert (one_tick, len(reads)) == (1, 2)


async def test_a_caller_that_gives_up_does_not_cancel_the_replay_of_the_others(scene: Scene) -> None:
    await scene.ran(60)
    await scene.worker()
    await scene.submit("a")
    job = await scene.store.job("a")
    impatient = asyncio.create_task(scene.estimator.estimate_of(job))
    patient = asyncio.create_task(scene.estimator.estimate_of(job))
    await asyncio.sleep(0)
    impatient.cancel()

    assert await soon(patient) is not None


async def test_a_job_that_came_after_the_replay_is_estimated_by_its_place(scene: Scene) -> None:
    await scene.ran(60)
    await scene.worker()
    await scene.submit("a", "b", "c")
    await scene.estimator.refresh()
    reads = counted_reads(scene)
    await scene.submit("urgent", priority=10)
    await scene.submit("last")

    urgent, last = known(await scene.estimate_of("urgent")), known(await scene.estimate_of("last"))

    assert reads == []
    assert urgent.seconds < 10 < 100 < last.seconds


async def test_the_first_job_after_a_replay_of_an_empty_line_is_estimated_by_what_runs(scene: Scene) -> None:
    await scene.ran(600)
    await scene.worker()
    await scene.submit("runs")
    await scene.start()
    await scene.estimator.refresh()
    await scene.submit("waits")

    estimate = await scene.estimate_of("waits")

    assert estimate is not None
    assert estimate.estimate_seconds == pytest.approx(600, rel=0.1)


async def test_reading_an_estimate_among_ten_thousand_takes_under_a_millisecond(scene: Scene) -> None:
    await scene.ran(60)
    await scene.worker()
    for first in range(0, LOOK_AT_MOST, 1000):
        await scene.submit(*(f"job-{first + number}" for number in range(1000)))
    await scene.estimator.refresh()
    job = await scene.store.job(f"job-{LOOK_AT_MOST - 1}")
    took = []
    for _ in range(50):
        began = time.thread_time()
        assert await scene.estimator.estimate_of(job) is not None
        took.append(time.thread_time() - began)

    assert min(took) < 0.001


async def test_estimates_are_kept_fresh_only_while_they_are_asked_for(scene: Scene) -> None:
    estimator = scene.another(every_seconds=0)
    reads = counted_reads(scene)
    await scene.submit("a")
    keeping = asyncio.create_task(estimator.keep_fresh())
    try:
        await asyncio.sleep(0)
        assert reads == []
        await estimator.estimate_of(await scene.store.job("a"))
        await until_true(lambda: len(reads) >= 4)
        scene.pass_time(3600)
        await until_true(lambda: not estimator.wanted.is_set())
        so_far = len(reads)
        await scene.submit("b")  # a round trip, in which it would read again
        assert len(reads) == so_far
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


async def test_a_store_that_is_away_for_a_moment_does_not_end_it(scene: Scene) -> None:
    estimator = scene.another(every_seconds=0)
    await scene.submit("a")
    job = await scene.store.job("a")
    line = scene.store.line
    failures = 3

    async def unsteady(**options: Any) -> Any:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise StoreUnavailable("away")
        return await line(**options)

    scene.store.line = unsteady
    with pytest.raises(StoreUnavailable):
        await estimator.estimate_of(job)
    keeping = asyncio.create_task(estimator.keep_fresh())
    await until_true(lambda: failures < 0)
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)

    assert await estimator.estimate_of(job) is not None
