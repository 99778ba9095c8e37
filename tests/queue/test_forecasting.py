"""What may happen, against what then happens: a job not yet submitted, other limits, the slots of a group."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from statistics import median_low
from typing import Any

import pytest

import qo
from qo.clock import system_ms
from qo.loops.system import System
from qo.policy.estimates.base import duration_of_task
from qo.queue import forecasting
from qo.queue.estimator import Estimator
from qo.queue.queue import Queue
from qo.settings import load_settings
from qo.store.contract import Store
from qo.values import Average, Bounds, Registration, TaskOptions, Ticket
from tests.queue.counted_replays import counted_replays
from tests.stores import StoreUnderTest

PAGE = 2000


@pytest.fixture
async def queue(store_under_test: StoreUnderTest) -> AsyncIterator[qo.Queue]:
    """Its time stands still, so that its reading never becomes old."""
    store = await store_under_test.open(Bounds())
    now = system_ms()
    opened = Queue(store, load_settings({}, environ={}), system=System(clock=lambda: now))
    yield opened
    await opened.close()
    await store_under_test.close(store)


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many jobs were in line at each replay of a variant."""
    return counted_replays(monkeypatch, forecasting)


async def a_worker_and_runs_of_a_minute(queue: qo.Queue, *, capacity: int = 4, name: str = "w") -> None:
    task = TaskOptions(name="build", groups=("gpu",))
    await queue.store.register(Registration(name=name, tasks=(task,), capacity=capacity, lifetime_ms=10**9))
    await queue.store.observe([(Average(name=duration_of_task("build"), first=60, weight=0.3), 60.0)] * 20)


async def start(queue: qo.Queue, capacity: int, *, worker: str = "w") -> None:
    await queue.store.claim(
        worker=worker, tasks=["build"], capacity=capacity, lease_ms=10**9, claim_id=f"claim-{capacity}"
    )


async def a_line(queue: qo.Queue, *, jobs: int = 12, running: int = 2, **fields: Any) -> None:
    await queue.submit_many([qo.New("build", id=f"job-{number}", **fields) for number in range(jobs + running)])
    await start(queue, running)


async def seconds_read_anew(queue: qo.Queue, *ids: str) -> list[float]:
    """What estimates of these jobs are, or of the whole line, from a reading of their own."""
    jobs = [job for job in await queue.jobs(limit=1000) if job.position is not None and (not ids or job.id in ids)]
    estimates = await Estimator(queue.store, queue.settings, system=queue.system).estimates_of(jobs)
    seconds = [estimate.estimate_seconds for estimate in estimates if estimate is not None]
    return [each for each in seconds if each is not None]


# --- a job that is not submitted yet --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"priority": "urgent"},
        {"priority": 70},
        {"user": "ada", "tier": "partner"},
        {"user": "ada", "tier": "cto_scale", "project": "p1"},
        {"groups": ["licence"]},
        {"user": "known"},
        {"user": "known", "tier": "cto_scale"},
    ],
    ids=lambda fields: " ".join(f"{name}={value}" for name, value in fields.items()) or "plain",
)
async def test_the_estimate_of_a_job_is_the_same_before_and_after_its_submit(
    queue: qo.Queue, fields: dict[str, Any]
) -> None:
    await a_worker_and_runs_of_a_minute(queue)
    await queue.set_limit("gpu", 3)
    await queue.set_limit("licence", 1)
    await queue.set_tier("known", "partner")
    await a_line(queue, running=3)
    await queue.submit_many([qo.New("build", groups=["licence"], priority=number) for number in (30, 60, 80)])
    await queue.submit_many([qo.New("build", user="known") for _ in range(3)])

    before = await queue.estimate_new("build", **fields)
    job = await queue.submit("build", **fields)
    (after,) = await seconds_read_anew(queue, job.id)

    assert before.position == job.position
    assert before.estimate.estimate_seconds == pytest.approx(after, rel=0.02, abs=1)
    assert before.estimate.lower_bound is not None
    assert before.estimate.upper_bound is not None
    assert before.estimate.lower_bound <= after <= before.estimate.upper_bound


async def test_a_boost_passes_only_jobs_that_drew_the_places_before_it(queue: qo.Queue) -> None:
    await a_worker_and_runs_of_a_minute(queue, capacity=1)
    await queue.submit_many([qo.New("build", id=f"early-{number}") for number in range(3)])
    await queue.submit_many([qo.New("build", id=f"gone-{number}") for number in range(4)])
    for number in range(4):
        await queue.cancel(f"gone-{number}")

    found = await queue.estimate_new("build", user="ada", tier="cto_scale")  # a boost of 5, of which 4 are gone

    assert found.position == 3
    assert (await queue.submit("build", user="ada", tier="cto_scale")).position == 3


async def test_the_limits_that_its_tier_would_set_count(queue: qo.Queue) -> None:
    await a_worker_and_runs_of_a_minute(queue, capacity=9)
    for user in ("ada", "bob"):
        await queue.submit_many([qo.New("build", user=user) for _ in range(2)])
    await start(queue, 4)
    await queue.set_limit("user:bob", 5)  # an operator's limit wins over a tier's

    ada = await queue.estimate_new("build", user="ada", tier="bootstrapper")
    bob = await queue.estimate_new("build", user="bob", tier="bootstrapper")
    without_a_tier = await queue.estimate_new("build", user="ada")
    job = await queue.submit("build", user="ada", tier="bootstrapper")

    assert (bob.estimate.message, without_a_tier.estimate.message) == ("now", "now")
    assert ada.estimate.estimate_seconds == pytest.approx(60, rel=0.3)
    assert [ada.estimate.estimate_seconds] == pytest.approx(await seconds_read_anew(queue, job.id), rel=0.02, abs=1)


async def test_asking_about_a_job_changes_nothing(queue: qo.Queue) -> None:
    await a_worker_and_runs_of_a_minute(queue)
    await a_line(queue)
    before = (await queue.store.line(limit=100), await queue.limits(), await queue.usage("ada"))

    await queue.estimate_new("build", user="ada", tier="partner", project="p1", groups=["licence"])
    await queue.what_if([qo.Variant(limits={"gpu": 1}, capacity={"w": 9})])
    await queue.timeline("gpu")

    assert before == (await queue.store.line(limit=100), await queue.limits(), await queue.usage("ada"))


async def test_a_job_that_would_find_everything_free_would_start_now(queue: qo.Queue) -> None:
    await a_worker_and_runs_of_a_minute(queue)

    found = await queue.estimate_new("build")

    assert (found.position, found.estimate.message) == (1, "now")


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("nobody's", "not known yet: no worker runs task nobody's"),
        ("build", "not known yet: group gpu is paused"),
    ],
)
async def test_a_job_that_could_not_start_gets_the_reason(queue: qo.Queue, task: str, message: str) -> None:
    await a_worker_and_runs_of_a_minute(queue)
    await queue.pause("gpu")

    assert (await queue.estimate_new(task)).estimate.message == message


async def test_a_job_over_the_quota_or_the_cap_would_not_join_the_line(queue: qo.Queue) -> None:
    await a_worker_and_runs_of_a_minute(queue)
    await queue.submit_many([qo.New("build", user="ada", tier="bootstrapper") for _ in range(5)])
    await queue.submit_many([qo.New("build") for _ in range(95)])

    over_quota = await queue.estimate_new("build", user="ada")
    over_cap = await queue.estimate_new("build", user="bob", tier="partner")
    without_a_tier = await queue.estimate_new("build", user="bob")

    assert over_quota.position is over_cap.position is None
    assert "quota of 5 jobs a day is used up" in over_quota.estimate.message
    assert "line is full (100 jobs in line, cap 100)" in over_cap.estimate.message
    assert without_a_tier.position == 101


async def test_a_job_behind_those_that_are_played_forward_is_put_at_the_end(
    queue: qo.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qo.queue.estimator.LOOK_AT_MOST", 5)
    await a_worker_and_runs_of_a_minute(queue, capacity=1)
    await a_line(queue, jobs=20, running=1)

    last = await queue.estimate_new("build")
    first = await queue.estimate_new("build", priority="urgent")

    assert (first.position, last.position) == (1, 21)
    assert last.estimate.estimate_seconds == pytest.approx(21 * 60, rel=0.25)


# --- what if --------------------------------------------------------------------------------------------------


async def test_other_limits_and_workers_give_the_waits_that_the_real_change_gives(queue: qo.Queue) -> None:
    await a_worker_and_runs_of_a_minute(queue)
    await queue.set_limit("gpu", 2)
    await a_line(queue, user="ada")
    variants = [
        qo.Variant(limits={"gpu": 4}),
        qo.Variant(limits={"gpu": 1}),
        qo.Variant(limits={"user:ada": 1}),
        qo.Variant(limits={"global": 3, "gpu": 9}),
        qo.Variant(capacity={"w": 1}),
    ]

    found = await queue.what_if(variants)

    async def check(waits: qo.Waits) -> None:
        seconds = await seconds_read_anew(queue)
        assert len(seconds) == found.jobs
        assert waits.median_seconds == pytest.approx(median_low(seconds), rel=0.02, abs=2)
        assert waits.last_seconds == pytest.approx(max(seconds), rel=0.02, abs=2)

    assert (found.jobs, found.basis) == (12, "measured")
    await check(found.before)
    await queue.set_limit("gpu", 4)
    await check(found.variants[0])
    await queue.set_limit("gpu", 1)
    await check(found.variants[1])
    await queue.set_limit("gpu", 2)
    await queue.set_limit("user:ada", 1)
    await check(found.variants[2])
    await queue.remove_limit("user:ada")
    await queue.set_limit("global", 3)
    await queue.set_limit("gpu", 9)
    await check(found.variants[3])
    await queue.remove_limit("global")
    await queue.set_limit("gpu", 2)
    await a_worker_and_runs_of_a_minute(queue, capacity=1)
    await check(found.variants[4])
    assert len({waits.last_seconds for waits in [found.before, *found.variants]}) >= 4


async def test_jobs_that_could_not_start_are_counted_and_not_averaged(queue: qo.Queue) -> None:
    await a_worker_and_runs_of_a_minute(queue)
    await a_line(queue, jobs=4, running=1)

    none, all_of_them = (await queue.what_if([qo.Variant(limits={"gpu": 0}), qo.Variant(limits={"gpu": 9})])).variants

    assert (none.median_seconds, none.last_seconds, none.cannot_start) == (None, None, 4)
    assert all_of_them.cannot_start == 0


async def test_an_empty_line_has_no_waits(queue: qo.Queue) -> None:
    found = await queue.what_if([])

    assert (found.jobs, found.basis, found.variants) == (0, "first_guess", [])
    assert (found.before.median_seconds, found.before.last_seconds, found.before.cannot_start) == (None, None, 0)


async def test_an_unknown_worker_is_refused_with_the_names_of_those_that_live(queue: qo.Queue) -> None:
    await a_worker_and_runs_of_a_minute(queue)

    with pytest.raises(qo.InvalidValue, match=r"variants\[1\].capacity names 'x', .*; use one of w\."):
        await queue.what_if([qo.Variant(), qo.Variant(capacity={"x": 1})])


# --- the slots of a group -------------------------------------------------------------------------------------


async def test_a_timeline_has_the_holders_of_the_store_and_slots_that_are_really_taken(queue: qo.Queue) -> None:
    await a_worker_and_runs_of_a_minute(queue)
    await queue.set_limit("gpu", 3)
    await queue.store.acquire([Ticket(holder="caller", groups=("gpu",), lease_ms=10**9)])
    await a_line(queue, jobs=4, running=2)

    found = await queue.timeline("gpu")

    held = (await queue.limit("gpu")).slots
    assert [(each.slot, each.holder, each.worker, each.expires_at) for each in found.now] == [
        (slot.slot_id, slot.holder, slot.worker_id, slot.expires_at) for slot in held
    ]
    assert [each.ends_at is None for each in found.now] == [each.holder == "caller" for each in found.now]
    assert sorted(each.job for each in found.forecast) == ["job-2", "job-3", "job-4", "job-5"]
    assert {each.slot for each in found.forecast} == {each.slot for each in found.now if each.holder != "caller"}


# --- one reading ----------------------------------------------------------------------------------------------


@pytest.fixture
def store_calls(queue: qo.Queue, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each operation of the store was called."""
    calls: Counter[str] = Counter()

    def counting(name: str) -> Any:
        real = getattr(queue.store, name)

        def call(*args: Any, **options: Any) -> Any:
            calls[name] += 1
            return real(*args, **options)

        return call

    for name in dir(Store):
        if not name.startswith("_") and callable(getattr(Store, name)) and name not in ("close", "signals"):
            monkeypatch.setattr(queue.store, name, counting(name))
    return calls


async def test_with_ten_thousand_in_line_all_forecasts_share_one_reading(
    queue: qo.Queue, store_calls: Counter[str]
) -> None:
    await a_worker_and_runs_of_a_minute(queue)
    await queue.set_limit("gpu", 2)
    await queue.submit_many([qo.New("build", user=f"user-{number % 50}") for number in range(10_000)])
    store_calls.clear()

    first = await queue.what_if([qo.Variant(limits={"gpu": 4})])
    assert first.jobs == 10_000
    assert store_calls["line"] in (10_000 // PAGE, 10_000 // PAGE + 1)
    assert all(count == 1 for name, count in store_calls.items() if name not in ("line", "observed"))
    assert store_calls["observed"] <= 2  # averages, and how wrong estimates were

    store_calls.clear()
    await asyncio.gather(*(queue.what_if([qo.Variant(limits={"gpu": slots})]) for slots in (3, 5, 6)))
    await queue.what_if([qo.Variant(capacity={"w": 1}), qo.Variant(limits={"user:user-1": 1})])
    await queue.estimate_new("build", priority="urgent")
    assert store_calls == {}

    await queue.timeline("gpu")
    await queue.timeline("gpu")
    await queue.estimate_new("build", user="user-1")
    assert store_calls == {"groups": 1, "usage": 1, "jobs": 1}


async def test_callers_that_ask_the_same_at_once_share_one_replay(queue: qo.Queue, replays: list[int]) -> None:
    await a_worker_and_runs_of_a_minute(queue)
    await a_line(queue)
    variant = qo.Variant(limits={"gpu": 1})

    answers = await asyncio.gather(*(queue.what_if([variant]) for _ in range(20)))

    assert replays == [12]
    assert all(answer == answers[0] for answer in answers)
