"""The estimate that comes with every job in line, and what it costs those who read it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import qo
from qo.policy.estimates.base import duration_of_task, not_known, starts_now
from qo.queue import estimator
from qo.queue.estimator import Estimator
from qo.values import Average, Registration, TaskOptions
from tests.queue.counted_replays import counted_replays
from tests.worker.running import soon


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many jobs were in line at each replay."""
    return counted_replays(monkeypatch, estimator)


async def one_place_and_runs_of_a_minute(queue: qo.Queue, *, has_run: bool = True) -> None:
    worker = Registration(name="w", tasks=(TaskOptions(name="build"),), capacity=1, lifetime_ms=10**9)
    await queue.store.register(worker)
    if has_run:
        await queue.store.observe([(Average(name=duration_of_task("build"), first=60, weight=0.3), 60.0)] * 20)


# --- who is told ----------------------------------------------------------------------------------------------


async def test_a_job_in_line_is_read_with_its_estimate(queue: qo.Queue) -> None:
    await one_place_and_runs_of_a_minute(queue)
    *_, third = await queue.submit_many([qo.New("build", id=name) for name in "abc"])

    read = (await queue.get("c")).estimate

    assert read is not None
    assert read.estimate_seconds == pytest.approx(120, rel=0.15)
    assert read.lower_bound is not None
    assert read.upper_bound is not None
    assert read.lower_bound < 120 < read.upper_bound
    assert third.estimate is None  # type: ignore[union-attr]  # nobody waits for a replay to submit


async def test_jobs_in_a_list_have_each_their_own_estimate_and_those_not_in_line_none(queue: qo.Queue) -> None:
    await one_place_and_runs_of_a_minute(queue)
    await queue.submit_many([qo.New("build", id=name) for name in "abc"])
    await queue.submit("build", id="later", delay=60)

    told = {job.id: job.estimate for job in await queue.jobs()}

    seconds = [told[name].estimate_seconds for name in "abc"]  # type: ignore[union-attr]
    assert seconds == pytest.approx([0, 60, 120], rel=0.15, abs=10)
    assert told["later"] is None


async def test_estimates_behind_a_job_whose_worker_stopped_responding_have_low_confidence(queue: qo.Queue) -> None:
    await one_place_and_runs_of_a_minute(queue)
    await queue.submit("build", id="suspect")
    await queue.store.claim(worker="gone", tasks=["build"], capacity=1, lease_ms=1, claim_id="c")
    await queue.submit_many([qo.New("build", id="sooner", priority=10), qo.New("build", id="behind")])
    while await queue.store.leases():
        await queue.store.catch_up()

    told = {job.id: job.estimate for job in await queue.jobs()}

    assert {name: estimate and estimate.confidence for name, estimate in told.items()} == {
        "sooner": "medium",
        "suspect": "low",
        "behind": "low",
    }


async def test_before_any_run_only_jobs_with_a_tier_get_a_first_guess(queue: qo.Queue) -> None:
    worker = Registration(
        name="w", tasks=(TaskOptions(name="build"), TaskOptions(name="mail")), capacity=1, lifetime_ms=10**9
    )
    await queue.store.register(worker)
    await queue.submit("build")
    await queue.store.claim(worker="w", tasks=["build"], capacity=1, lease_ms=60_000, claim_id="c")
    await queue.submit_many([qo.New("build", id="a"), qo.New("mail", id="b", user="ada", tier="cto_scale")])

    first, second, _ = await queue.jobs()

    assert first.estimate is not None
    assert second.estimate is not None
    # With its boost the second has become the first.
    assert (first.id, first.estimate.estimate_seconds) == ("b", 900)
    assert first.estimate.message == "10 minutes-19 minutes (first guess)"
    assert (first.estimate.confidence, first.estimate.basis) == ("low", "first_guess")
    assert (second.id, second.estimate.estimate_seconds) == ("a", None)
    assert second.estimate.message == "not known yet: no job of task build has ended, and it has no tier"


async def test_without_a_worker_the_estimate_says_why_there_is_no_time(queue: qo.Queue) -> None:
    job = await queue.submit("build", user="ada", tier="partner")

    estimate = (await queue.get(job.id)).estimate

    assert estimate == await queue.estimate(job.id)
    assert estimate is not None
    assert (estimate.estimate_seconds, estimate.confidence, estimate.basis) == (None, None, None)
    assert estimate.message == "not known yet: no worker runs task build"


async def test_with_an_idle_worker_the_estimate_says_that_the_job_starts_now(queue: qo.Queue) -> None:
    await queue.store.register(
        Registration(name="w", tasks=(TaskOptions(name="build"),), capacity=1, lifetime_ms=10**9)
    )
    job = await queue.submit("build")

    estimate = (await queue.get(job.id)).estimate

    assert estimate is not None
    assert (estimate.message, estimate.estimate_seconds) == ("now", 0)


@pytest.mark.parametrize("has_run", [True, False])
@pytest.mark.parametrize("was_replayed", [True, False], ids=["known to the replay", "came after it"])
async def test_the_estimate_of_a_job_that_cannot_start_says_why_instead_of_when(
    queue: qo.Queue, has_run: bool, was_replayed: bool
) -> None:
    await one_place_and_runs_of_a_minute(queue, has_run=has_run)
    await queue.pause("gpu")
    await queue.set_limit("licence", 0)
    await queue.submit("build", id="free")
    if not was_replayed:
        await queue.get("free")
    await queue.submit("build", id="paused", groups=["gpu"])
    await queue.submit("build", id="shut out", groups=["licence"])

    told = {job.id: job.estimate for job in await queue.jobs()}

    assert told["paused"] == not_known("group gpu is paused")
    assert told["shut out"] == not_known("group licence has a limit of 0")
    assert (await queue.get("paused")).estimate == told["paused"]
    assert told["free"] == starts_now()


async def test_a_job_that_came_after_the_replay_is_not_estimated_by_a_job_that_cannot_start(queue: qo.Queue) -> None:
    await one_place_and_runs_of_a_minute(queue)
    await queue.pause("gpu")
    await queue.submit_many([qo.New("build", groups=["gpu"])] * 3)
    await queue.submit_many([qo.New("build", id=name) for name in "ab"])
    await queue.get("a")
    await queue.submit("build", id="urgent", priority="urgent")

    estimate = (await queue.get("urgent")).estimate

    assert estimate is not None
    assert estimate.estimate_seconds is not None
    assert estimate.estimate_seconds < 10


# --- what it costs --------------------------------------------------------------------------------------------


async def test_a_thousand_reads_at_once_share_one_replay(queue: qo.Queue, replays: list[int]) -> None:
    await one_place_and_runs_of_a_minute(queue)
    await queue.submit_many([qo.New("build", id=f"job-{number}") for number in range(1000)])

    jobs = await soon(asyncio.gather(*(queue.get(f"job-{number}") for number in range(1000))))
    await queue.jobs(limit=1000)

    assert all(job.estimate is not None for job in jobs)
    assert replays == [1000]


async def test_where_nothing_is_in_line_nothing_is_computed(queue: qo.Queue, replays: list[int]) -> None:
    await queue.submit("build", id="later", delay=60)
    await queue.submit("build", id="gone")
    await queue.cancel("gone")

    for name in ("later", "gone"):
        assert (await queue.get(name)).estimate is None
    await queue.jobs()

    assert replays == []


@pytest.mark.parametrize("has_run", [True, False])
async def test_while_the_forecast_is_fresh_an_estimate_is_a_look_up(
    queue: qo.Queue, has_run: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if has_run:
        await one_place_and_runs_of_a_minute(queue)
    await queue.submit("build", id="a")
    before = await queue.get("a")

    async def asked_the_store(*args: Any, **options: Any) -> Any:
        raise AssertionError("a look-up asks nobody")

    for read in ("line", "leases", "groups", "workers", "observed", "events"):
        monkeypatch.setattr(queue.store, read, asked_the_store)
    after = await queue.get("a")

    assert before.estimate is not None
    assert after.estimate is not None


# --- what it must not do --------------------------------------------------------------------------------------


@pytest.mark.parametrize("failure", [qo.StoreUnavailable("away"), ZeroDivisionError("wrong")], ids=["store", "bug"])
async def test_jobs_are_returned_without_estimates_that_cannot_be_computed(
    queue: qo.Queue, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    await queue.submit("build", id="a")

    async def failing(self: Estimator) -> None:
        raise failure

    monkeypatch.setattr(Estimator, "read", failing)

    assert (await queue.get("a")).estimate is None
    assert [job.estimate for job in await queue.jobs()] == [None]
    with pytest.raises(type(failure)):
        await queue.estimate("a")


async def test_a_caller_that_waits_for_a_replay_while_the_queue_closes_is_not_cancelled(
    queue: qo.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    await queue.submit("build", id="a")
    begun = asyncio.Event()

    async def never(self: Estimator) -> None:
        begun.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Estimator, "read", never)
    asked = asyncio.create_task(queue.estimate("a"))
    await soon(begun.wait())
    await queue.close()

    with pytest.raises(qo.StoreUnavailable):
        await soon(asked)
