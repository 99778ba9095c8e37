"""Tiers, quotas, the cap and usage through the front door. Their numbers are in `test_numbers_of_the_spec.py`."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import qo
from qo.job import State
from qo.loops.system import System
from qo.policy.days import DAY_MS
from qo.queue.queue import Queue
from qo.settings import load_settings
from tests.worker.clocked import ClockedStore

MIDNIGHT = 1_900_022_400_000  # of some day
NOON = MIDNIGHT + DAY_MS // 2
MINUTE_MS = 60_000


@pytest.fixture
def clock(queue: qo.Queue) -> ClockedStore:
    return ClockedStore(queue.store, now=NOON)


@pytest.fixture
def clocked(queue: qo.Queue, clock: ClockedStore) -> qo.Queue:
    return Queue(clock, queue.settings, system=System(draw=random.Random(1).random))


# --- tiers ----------------------------------------------------------------------------------------------------


async def test_other_tiers_and_numbers_work_the_same_way(queue: qo.Queue) -> None:
    settings = load_settings({"tiers": {"studio": {"per_user": 7, "boost": 9}}}, environ={})
    other = Queue(queue.store, settings)

    job = await other.submit("build", user="ada", tier="studio")

    assert ((await other.limit("user:ada")).limit, job.tier) == (7, "studio")


# --- another tier ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_submit", [True, False], ids=["a submit", "set_tier"])
async def test_another_tier_counts_at_once_for_waiting_and_deferred_jobs(clocked: qo.Queue, by_submit: bool) -> None:
    jobs = [await clocked.submit("build", user="ada", tier="bootstrapper") for _ in range(8)]
    deferred = [job.id for job in jobs if job.state is State.SCHEDULED]
    if by_submit:
        await clocked.submit("build", user="ada", tier="partner")
    else:
        await clocked.set_tier("ada", "partner", by="ops")

    assert len(deferred) == 3
    assert [(await clocked.get(job_id)).state for job_id in deferred] == [State.QUEUED] * 3
    assert (await clocked.limit("user:ada")).limit == 3
    assert {(await clocked.get(job.id)).tier for job in jobs} == {"partner"}


async def test_a_job_deferred_for_days_moves_forward_when_there_is_room_today(
    clocked: qo.Queue, clock: ClockedStore
) -> None:
    jobs = [await clocked.submit("build", user="ada", tier="bootstrapper") for _ in range(20)]
    last = jobs[-1]
    assert last.run_at is not None
    assert (round(last.run_at.timestamp() * 1000) - MIDNIGHT) // DAY_MS == 3

    await clocked.set_tier("ada", "cto_scale")

    assert (await clocked.get(last.id)).state is State.QUEUED


async def test_a_cancelled_job_gives_its_quota_back_to_the_earliest_deferred_one(clocked: qo.Queue) -> None:
    jobs = [await clocked.submit("build", user="ada", tier="bootstrapper") for _ in range(7)]

    await clocked.cancel(jobs[0].id)

    states = [(await clocked.get(job.id)).state for job in jobs]
    assert states[5:] == [State.QUEUED, State.SCHEDULED]


async def test_a_deferred_job_says_when_its_turn_comes(queue: qo.Queue) -> None:
    jobs = [await queue.submit("build", user="ada", tier="bootstrapper") for _ in range(11)]

    after = datetime.now(UTC) + timedelta(days=2)
    assert (jobs[5].message, jobs[4].message) == ("Scheduled for tomorrow", None)
    year = "" if after.year == datetime.now(UTC).year else f" {after.year}"
    assert jobs[10].message == f"Scheduled for {after:%A}, {after.day} {after:%B}{year}"
    assert (await queue.get(jobs[5].id)).message == "Scheduled for tomorrow"


async def test_why_names_the_quota_of_a_deferred_job(queue: qo.Queue) -> None:
    jobs = [await queue.submit("build", user="ada", tier="bootstrapper") for _ in range(6)]

    why = await queue.why(jobs[5].id)

    assert why.sentence.endswith(", because ada's quota of 5 jobs a day is used up until then.")


# --- the cap --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"delay": 0.01}, {"delay": 59.9}, {"run_at": timedelta(seconds=1)}])
async def test_a_short_delay_does_not_get_a_submit_past_the_cap(queue: qo.Queue, options: dict[str, Any]) -> None:
    await queue.submit_many([qo.New("build")] * 100)
    if "run_at" in options:
        options = {"run_at": datetime.now(UTC) + options["run_at"]}

    with pytest.raises(qo.QueueFull, match=r"try again in \d+ minutes"):
        await queue.submit("build", user="ada", tier="partner", **options)


async def test_what_does_not_join_the_line_now_is_never_refused(queue: qo.Queue) -> None:
    await queue.submit_many([qo.New("build")] * 100)

    delayed = await queue.submit("build", user="ada", tier="partner", delay=60)
    phase = await queue.submit("build", user="ada", tier="partner", parent="app", phase=2)

    assert (delayed.state, phase.state) == (State.SCHEDULED, State.WAITING)


@pytest.mark.parametrize("applies_to", ["tiered", "all"])
async def test_the_cap_is_for_users_or_for_all(queue: qo.Queue, applies_to: str) -> None:
    settings = load_settings({"queue": {"cap": 3, "cap_applies_to": applies_to}}, environ={})
    capped = Queue(queue.store, settings)
    answers = await capped.submit_many([qo.New("build")] * 4)

    assert isinstance(answers[3], qo.QueueFull) == (applies_to == "all")


# --- usage ----------------------------------------------------------------------------------------------------


async def test_every_answer_about_a_job_comes_with_its_users_usage(queue: qo.Queue) -> None:
    submitted = await queue.submit("build", user="ada", tier="partner")
    read = await queue.get(submitted.id)
    (listed,) = await queue.jobs()
    changed = await queue.set_priority(submitted.id, "high")

    for job in (submitted, read, listed, changed):
        assert job.usage is not None
        assert (job.usage.jobs_used, job.usage.jobs_remaining) == (1, 49)
        assert (job.usage.iterations_used, job.usage.iterations_remaining) == (0, 9)
        assert job.usage.daily_limit_resets_at.time() == datetime.min.time()
    assert (await queue.submit("build")).usage is None


async def test_a_user_without_a_tier_has_no_limit_but_is_counted(queue: qo.Queue) -> None:
    job = await queue.submit("build", user="ada")

    assert job.usage is not None
    assert (job.usage.jobs_used, job.usage.jobs_remaining, job.usage.iterations_remaining) == (1, None, None)


# --- midnight -------------------------------------------------------------------------------------------------


async def test_nothing_floods_at_midnight(clocked: qo.Queue, clock: ClockedStore) -> None:
    """200 users with 10 deferred jobs each: the hour after midnight is used evenly, quotas hold, order is kept."""
    users = [f"user-{number}" for number in range(200)]
    quota = 10
    settings = load_settings({"tiers": {"ten": {"jobs_per_day": quota}}, "queue": {"cap": 100_000}}, environ={})
    queue = Queue(clock, settings, system=System(draw=random.Random(7).random))
    submitted: dict[str, list[str]] = {}
    for user in users:
        answers = await queue.submit_many([qo.New("build", user=user, tier="ten")] * (2 * quota))
        submitted[user] = [job.id for job in answers[quota:] if isinstance(job, qo.Job)]

    tomorrow = MIDNIGHT + DAY_MS
    joined: Counter[int] = Counter()
    order: dict[str, list[str]] = {user: [] for user in users}
    for minute in range(61):
        clock.now = tomorrow + minute * MINUTE_MS
        before = (await queue.store.events(None)).cursor
        while (await queue.store.catch_up()).more:
            pass
        events = await queue.store.events(before, kinds=["queued"], limit=10_000)
        joined[minute] = len(events.events)
        owners = {job_id: user for user, ids in submitted.items() for job_id in ids}
        for event in events.events:
            order[owners[event.subject]].append(event.subject)

    fair_share = 200 * quota / 60
    assert sum(joined.values()) == 200 * quota
    assert max(joined.values()) <= 2 * fair_share
    assert order == submitted
    for user in users[:5]:
        usage = await queue.store.usage(user)
        assert usage.used_today == quota


async def test_the_jitter_of_deferred_jobs_is_drawn_and_fills_the_hour_after_midnight(
    queue: qo.Queue, clock: ClockedStore
) -> None:
    """With what a queue draws by itself. That 200 draws leave a quarter of the hour empty is as good as impossible."""
    settings = load_settings({"tiers": {"one": {"jobs_per_day": 1}}, "queue": {"cap": 1000}}, environ={})
    plain = Queue(clock, settings)
    users = [f"user-{number}" for number in range(200)]
    await plain.submit_many([qo.New("build", user=user, tier="one") for user in users])

    deferred = await plain.submit_many([qo.New("build", user=user, tier="one") for user in users])

    midnight = datetime.fromtimestamp((MIDNIGHT + DAY_MS) / 1000, UTC)
    waits = [(job.run_at - midnight).total_seconds() for job in deferred if isinstance(job, qo.Job) and job.run_at]
    assert len(waits) == 200
    assert all(0 <= wait <= 3600 for wait in waits)
    assert {int(wait // 900) for wait in waits} == {0, 1, 2, 3}
