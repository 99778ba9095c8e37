"""Estimates of a whole line: one replay for all who ask, and ranges learnt from how it went."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

import pytest

from bench.simulated_days import DAYS
from bench.simulation import play
from qo.errors import StoreUnavailable
from qo.job import Basis, Estimate, Job, Promise, State, moment
from qo.loops.system import System
from qo.policy.estimates.base import (
    base_estimate,
    duration_of_task,
    duration_of_tier,
    no_data,
    no_worker,
    not_known,
    starts_now,
)
from qo.policy.estimates.forecast import forecast_line
from qo.policy.estimates.situation import Situation
from qo.queue.estimator import LOOK_AT_MOST, Estimator
from qo.settings import Settings
from qo.values import (
    Average,
    Bounds,
    GroupStatus,
    Limit,
    Outcome,
    Registration,
    Source,
    Standing,
    Submission,
    TaskOptions,
    Ticket,
    WorkerInfo,
)
from tests.stores import StoreUnderTest
from tests.worker.clocked import ClockedStore
from tests.worker.running import soon, until

START_MS = 1_800_000_000_000
SETTINGS = Settings()
HOURS = 2


class Known(NamedTuple):
    """The numbers of an estimate that has them."""

    seconds: float
    lower_bound: float
    upper_bound: float


def known(estimate: Estimate | None) -> Known:
    assert estimate is not None
    assert estimate.estimate_seconds is not None
    assert estimate.lower_bound is not None
    assert estimate.upper_bound is not None
    return Known(estimate.estimate_seconds, estimate.lower_bound, estimate.upper_bound)


class Scene:
    """A store on a clock that the test sets, and an estimator that sees the same time."""

    def __init__(self, store: Any) -> None:
        self.store = ClockedStore(store, now=START_MS)
        self.estimator = self.another()

    def another(self, **options: Any) -> Estimator:
        return Estimator(self.store, SETTINGS, system=System(clock=lambda: self.store.now), **options)

    def pass_time(self, seconds: float) -> None:
        self.store.now += round(seconds * 1000)

    async def submit(self, *ids: str, task: str = "build", **fields: Any) -> None:
        await self.store.submit([Submission(id=each, task=task, **fields) for each in ids])

    async def worker(self, name: str = "w", *, capacity: int = 1, tasks: tuple[str, ...] = ("build",)) -> None:
        options = tuple(TaskOptions(name=task) for task in tasks)
        await self.store.register(Registration(name=name, tasks=options, capacity=capacity, lifetime_ms=10**9))

    async def ran(self, seconds: float, *, task: str = "build", times: int = 20) -> None:
        """The task is known to take so long, always."""
        average = Average(name=duration_of_task(task), first=seconds, weight=0.3)
        await self.store.observe([(average, seconds)] * times)

    async def start(self, capacity: int = 1, *, worker: str = "w", tasks: tuple[str, ...] = ("build",)) -> list[Any]:
        claimed = await self.store.claim(
            worker=worker, tasks=tasks, capacity=capacity, lease_ms=10**9, claim_id=f"claim-{self.store.now}-{worker}"
        )
        return list(claimed.leases)

    async def finish(self, leases: list[Any]) -> None:
        await self.store.finish(
            [Outcome(job_id=lease.job.id, token=lease.token, state=State.SUCCEEDED) for lease in leases]
        )

    async def seconds(self, *ids: str) -> list[float | None]:
        await self.estimator.refresh()
        estimates = [self.estimator.estimate(each) for each in ids]
        return [None if estimate is None else estimate.estimate_seconds for estimate in estimates]

    async def estimate_of(self, job_id: str) -> Estimate | None:
        return await self.estimator.estimate_of(await self.store.job(job_id))


@pytest.fixture
async def scene(store_under_test: StoreUnderTest) -> AsyncIterator[Scene]:
    store = await store_under_test.open(Bounds())
    yield Scene(store)
    await store_under_test.close(store)


async def until_true(condition: Callable[[], bool]) -> None:
    async def look() -> bool:
        return condition()

    await until(look)


def about(*seconds: float) -> Any:
    """Runs are taken to differ a little even where they never did, and few estimates have been checked."""
    return pytest.approx(list(seconds), rel=0.15, abs=10)


# --- what an estimate knows -----------------------------------------------------------------------------------


async def test_an_estimate_is_when_the_jobs_ahead_will_be_done(scene: Scene) -> None:
    await scene.ran(60)
    await scene.worker(capacity=2)
    await scene.submit("a", "b", "c", "d", "e")

    assert await scene.seconds("a", "c", "e") == about(0, 60, 120)


async def test_how_long_a_running_job_has_run_already_counts(scene: Scene) -> None:
    await scene.ran(600)
    await scene.worker()
    await scene.submit("runs", "waits")
    await scene.start()
    scene.pass_time(500)

    assert await scene.seconds("waits") == about(100)


async def test_the_tasks_of_those_ahead_count_and_not_ones_own(scene: Scene) -> None:
    await scene.ran(600, task="build")
    await scene.ran(1, task="mail")
    await scene.worker(tasks=("build", "mail"))
    await scene.submit("first", "second", task="build")
    await scene.submit("third", task="mail")

    assert await scene.seconds("third") == about(1200)


async def test_the_estimate_of_a_job_outside_a_full_group_does_not_wait_for_it(scene: Scene) -> None:
    await scene.ran(60)
    await scene.worker(capacity=10)
    await scene.store.set_limits([Limit(group="gpu", slots=1, source=Source.OPERATOR)])
    await scene.submit("gpu-1", "gpu-2", "gpu-3", groups=("gpu",))
    await scene.submit("other")

    assert await scene.seconds("gpu-1", "gpu-2", "gpu-3", "other") == about(0, 60, 120, 0)


async def test_slots_that_are_held_now_are_waited_for(scene: Scene) -> None:
    await scene.ran(60)
    await scene.worker(capacity=10)
    standing = Standing(tier="bootstrapper", user_limit=2)
    await scene.submit("a", "b", "c", "d", user="ada", standing=standing)
    await scene.start(capacity=5)

    assert await scene.seconds("c", "d") == about(60, 60)


async def test_capacity_counts_only_for_the_tasks_of_its_worker(scene: Scene) -> None:
    await scene.ran(60, task="build")
    await scene.ran(60, task="mail")
    await scene.worker("builder", capacity=1, tasks=("build",))
    await scene.worker("mailer", capacity=50, tasks=("mail",))
    await scene.submit("a", "b", "c", task="build")

    assert await scene.seconds("c") == about(120)


async def test_a_task_that_never_ran_takes_what_its_tier_takes_else_the_first_guess(scene: Scene) -> None:
    name = duration_of_tier("partner")
    await scene.store.observe([(Average(name=name, first=600, weight=0.3), 100.0)] * 20)
    await scene.worker(tasks=("new", "newer"))
    await scene.submit("a", task="new", user="ada", standing=Standing(tier="partner"))
    await scene.submit("b", "c", task="newer")

    assert await scene.seconds("b", "c") == about(100, 700)


async def test_a_paused_group_gives_no_estimate_and_those_outside_of_it_theirs(scene: Scene) -> None:
    await scene.ran(60)
    await scene.worker()
    await scene.store.set_paused("gpu", True)
    await scene.submit("paused", groups=("gpu",))
    await scene.submit("free")

    assert await scene.seconds("paused", "free") == [None, pytest.approx(0, abs=1)]
    assert await scene.estimate_of("paused") == not_known("group gpu is paused")


async def test_an_estimate_gets_shorter_as_time_goes_by(scene: Scene) -> None:
    await scene.ran(600)
    await scene.worker()
    await scene.submit("a", "b")
    await scene.estimator.refresh()
    before = known(scene.estimator.estimate("b"))
    scene.pass_time(4)
    after = known(scene.estimator.estimate("b"))

    assert before.seconds - after.seconds == pytest.approx(4, abs=0.1)


# --- where there is no data -----------------------------------------------------------------------------------


async def test_without_a_single_run_it_is_the_base_estimate_with_the_tiers_first_guess(scene: Scene) -> None:
    await scene.worker(capacity=2)
    await scene.submit("runs", "runs too")
    await scene.start(2)
    await scene.submit("a", "b")
    await scene.submit("c", user="ada", standing=Standing(tier="cto_scale"))

    assert await scene.estimate_of("c") == base_estimate(
        position=3, active_workers=2, average_seconds=900, settings=SETTINGS.estimate, basis=Basis.FIRST_GUESS
    )


async def test_without_a_single_run_and_without_a_tier_nothing_is_known(scene: Scene) -> None:
    await scene.worker()
    await scene.submit("runs", "waits")
    await scene.start()

    assert await scene.estimate_of("waits") == no_data("build")


async def test_a_job_of_a_new_task_behind_known_ones_is_guessed_only_with_a_tier(scene: Scene) -> None:
    await scene.ran(60, task="mail")
    await scene.worker(tasks=("build", "mail"))
    await scene.submit("runs", task="mail")
    await scene.start(tasks=("mail",))
    await scene.submit("plain")
    await scene.submit("tiered", user="ada", standing=Standing(tier="partner"))

    plain, tiered = await scene.estimate_of("plain"), await scene.estimate_of("tiered")

    assert plain == no_data("build")
    assert tiered is not None
    assert (tiered.basis, tiered.confidence) == ("first_guess", "low")
    assert tiered.message.endswith("(first guess)")


async def test_an_average_of_the_tier_is_measured_too(scene: Scene) -> None:
    average = Average(name=duration_of_tier("partner"), first=60, weight=0.3)
    await scene.store.observe([(average, 60.0)])
    await scene.worker()
    await scene.submit("runs", "waits", user="ada", standing=Standing(tier="partner"))
    await scene.start()

    estimate = await scene.estimate_of("waits")

    assert estimate is not None
    assert (estimate.basis, estimate.confidence) == ("measured", "medium")
    assert "guess" not in estimate.message


@pytest.mark.parametrize("was_replayed", [True, False], ids=["known to the replay", "came after it"])
@pytest.mark.parametrize("has_run", [True, False])
async def test_without_a_worker_for_its_task_nothing_is_known(scene: Scene, has_run: bool, was_replayed: bool) -> None:
    if has_run:
        await scene.ran(60)
    await scene.worker(tasks=("mail",))
    if not was_replayed:
        await scene.estimator.refresh()
    await scene.submit("a", user="ada", standing=Standing(tier="partner"))

    assert await scene.estimate_of("a") == no_worker("build")


# --- now --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("was_replayed", [True, False], ids=["known to the replay", "came after it"])
@pytest.mark.parametrize("has_run", [True, False])
async def test_with_an_idle_worker_the_estimate_of_a_job_is_now(
    scene: Scene, has_run: bool, was_replayed: bool
) -> None:
    if has_run:
        await scene.ran(60)
    await scene.worker(capacity=2)
    await scene.store.set_limits([Limit(group="gpu", slots=1, source=Source.OPERATOR)])
    if not was_replayed:
        await scene.estimator.refresh()
    await scene.submit("a", groups=("gpu",))

    assert await scene.estimate_of("a") == starts_now()


@pytest.mark.parametrize("was_replayed", [True, False], ids=["known to the replay", "came after it"])
async def test_the_estimate_is_now_for_as_many_jobs_as_there_is_room_for(scene: Scene, was_replayed: bool) -> None:
    await scene.ran(60)
    await scene.worker(capacity=2)
    await scene.submit("a")
    if not was_replayed:
        await scene.estimator.refresh()
    await scene.submit("b", "c")

    a, b, c = [await scene.estimate_of(each) for each in "abc"]

    assert a == starts_now()
    assert b == starts_now() or not was_replayed
    assert c is not None
    assert c != starts_now()


@pytest.mark.parametrize("was_replayed", [True, False], ids=["known to the replay", "came after it"])
async def test_the_estimate_of_a_job_in_a_full_group_is_not_now_despite_an_idle_worker(
    scene: Scene, was_replayed: bool
) -> None:
    await scene.ran(60)
    await scene.worker(capacity=5)
    await scene.store.set_limits([Limit(group="gpu", slots=1, source=Source.OPERATOR)])
    await scene.submit("runs", groups=("gpu",))
    await scene.start()
    if not was_replayed:
        await scene.estimator.refresh()
    await scene.submit("waits", groups=("gpu",))

    estimate = await scene.estimate_of("waits")

    assert estimate is not None
    assert estimate != starts_now()


@pytest.mark.parametrize(
    ("group", "has_room"),
    [
        (GroupStatus(group="gpu"), True),
        (GroupStatus(group="gpu", limit=2, active=1), True),
        (GroupStatus(group="gpu", limit=2, active=2), False),
        (GroupStatus(group="gpu", closed_until=moment(START_MS + 60_000)), False),
        (GroupStatus(group="gpu", limit=2, closed_until=moment(START_MS + 60_000)), False),
    ],
)
def test_the_estimate_of_a_job_after_the_replay_is_now_only_if_its_groups_have_room(
    group: GroupStatus, has_room: bool
) -> None:
    now = moment(START_MS)
    worker = WorkerInfo(
        name="w", tasks=("build",), capacity=5, running=0, registered_at=now, heard_at=now, expires_at=now
    )
    situation = Situation(now=START_MS / 1000, line=[], leases=[], groups=[group], workers=[worker], means={})
    job = Job(
        id="new",
        task="build",
        state=State.QUEUED,
        status="queued",
        priority=50,
        groups=("global", "build", "gpu"),
        submitted_at=now,
        attempts=0,
        position=1,
    )

    assert forecast_line(situation, SETTINGS).has_room_for(job) == has_room


async def test_a_job_whose_slot_will_not_be_given_back_gets_the_reason(scene: Scene) -> None:
    await scene.ran(60)
    await scene.worker()
    await scene.store.set_limits([Limit(group="gpu", slots=1, source=Source.OPERATOR)])
    await scene.store.acquire([Ticket(holder="caller", groups=("gpu",), lease_ms=10**9)])
    await scene.submit("waits", groups=("gpu",))

    estimate = await scene.estimate_of("waits")

    assert estimate is not None
    assert estimate.message == "not known yet: nothing that runs now will make room for it"
    assert estimate.estimate_seconds is None


async def test_a_job_that_is_not_in_line_has_no_estimate(scene: Scene) -> None:
    await scene.ran(60)
    await scene.worker()
    await scene.submit("a")
    await scene.start()

    assert await scene.estimate_of("a") is None
    assert scene.estimator.estimate("nobody") is None


# --- one replay for all who ask -------------------------------------------------------------------------------


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


# --- learning -------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("day", ["steady", "bursty", "mixed"])
async def test_on_a_simulated_day_about_the_stated_share_starts_inside_its_range(day: str) -> None:
    """The full days are in `bench/calibration.py`; this is their beginning, so the band is wide."""
    result = await play(DAYS[day](HOURS, 1))

    assert len(result.promises) > 100
    assert 0.65 <= result.coverage() <= 0.95
