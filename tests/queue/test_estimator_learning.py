"""Ranges of estimates are learnt from how it went: from the promises that were told and the waits that followed."""

from __future__ import annotations

import pytest

from bench.simulated_days import DAYS
from bench.simulation import play
from qo.job import Promise, State
from qo.values import Outcome
from tests.queue.estimator_scene import Scene, known

HOURS = 2


async def test_how_wrong_the_first_promise_was_is_kept_by_task(scene: Scene) -> None:
    await scene.ran(100)
    await scene.worker()
    await scene.submit("a", "b")
    running = await scene.start()
    await scene.estimator.refresh()
    scene.pass_time(50)
    await scene.estimator.refresh()  # a later promise, which does not count
    scene.pass_time(250)
    await scene.finish(running)
    await scene.start()
    await scene.estimator.refresh()

    (error,) = (await scene.store.observed(tasks=["build"])).errors["build"]
    # About 100 s were promised and it took 300; the margin is twice the 100 s between two starts.
    assert error == pytest.approx((300 + 200) / (100 + 200), rel=0.1)


async def test_a_server_notes_the_first_range_that_it_tells_and_others_do_not(scene: Scene) -> None:
    await scene.ran(100)
    await scene.worker()
    await scene.submit("a", "b")
    await scene.start()
    await scene.estimator.refresh()
    assert await promise_of(scene, "b") is None

    scene.estimator.keeps_promises = True
    await scene.estimator.refresh()
    told, noted = scene.estimator.estimate("b"), await promise_of(scene, "b")
    scene.pass_time(20)
    await scene.estimator.refresh()

    assert told is not None
    assert noted is not None
    assert (noted.lower_bound, noted.upper_bound) == pytest.approx((told.lower_bound, told.upper_bound), abs=0.001)
    assert await promise_of(scene, "b") == noted


async def promise_of(scene: Scene, job_id: str) -> Promise | None:
    history = (await scene.store.job(job_id)).history
    return None if history is None else history.promise


async def test_a_wait_counts_once_however_often_the_job_starts_before_the_next_replay(scene: Scene) -> None:
    await scene.ran(100)
    await scene.worker()
    await scene.submit("a")
    await scene.estimator.refresh()
    for _ in range(2):
        scene.pass_time(10)
        (lease,) = await scene.start()
        await scene.store.finish([Outcome(job_id="a", token=lease.token, state=State.QUEUED)])
    await scene.estimator.refresh()

    assert len((await scene.store.observed(tasks=["build"])).errors["build"]) == 1


async def test_a_job_that_left_the_line_otherwise_is_forgotten(scene: Scene) -> None:
    await scene.ran(100)
    await scene.worker()
    await scene.submit("a", "b")
    await scene.estimator.refresh()
    await scene.store.cancel(job_id="a")
    await scene.estimator.refresh()

    assert set(scene.estimator.learning.promises) == {"b"}
    assert (await scene.store.observed(tasks=["build"])).errors["build"] == ()


async def test_what_was_learnt_widens_and_shifts_the_estimates_of_that_task(scene: Scene) -> None:
    await scene.ran(100)
    await scene.worker()
    await scene.submit("a", "b", "c", "d")
    await scene.estimator.refresh()
    before = known(scene.estimator.estimate("d"))
    await scene.store.observe(errors={"build": [1.5, 2.0, 4.0] * 50})
    other = scene.another()
    await other.refresh()
    after = known(other.estimate("d"))

    assert after.seconds > 1.5 * before.seconds
    assert after.upper_bound - after.lower_bound > before.upper_bound - before.lower_bound


@pytest.mark.parametrize("day", ["steady", "bursty", "mixed"])
async def test_on_a_simulated_day_about_the_stated_share_starts_inside_its_range(day: str) -> None:
    """The full days are in `bench/calibration.py`; this is their beginning, so the band is wide."""
    result = await play(DAYS[day](HOURS, 1))

    assert len(result.promises) > 100
    assert 0.65 <= result.coverage() <= 0.95
