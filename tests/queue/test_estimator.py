"""Estimates of a whole line: what they are worked out from, where there is no data, and when a job starts now."""

from __future__ import annotations

import pytest

from qo.job import Basis, Job, State, moment
from qo.policy.estimates.base import base_estimate, duration_of_tier, no_data, no_worker, not_known, starts_now
from qo.policy.estimates.forecast import forecast_line
from qo.policy.estimates.situation import Situation
from qo.values import Average, GroupStatus, Limit, Source, Standing, Ticket, WorkerInfo
from tests.queue.estimator_scene import SETTINGS, START_MS, Scene, about, known

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
