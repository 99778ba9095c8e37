"""What the table of `test_numbers_of_the_spec.py` measures: each is one thing that users meet, as a number or words."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import qo
from qo.job import State
from qo.loops.system import System
from qo.policy.admission import retry_after
from qo.policy.days import DAY_MS
from qo.policy.estimates.base import base_estimate
from qo.policy.estimates.durations import capacity_among
from qo.policy.groups import GLOBAL
from qo.queue.averages import average_duration
from qo.queue.queue import Queue
from qo.queue.wait_times import WaitTimeEstimator
from qo.settings import Settings, load_settings
from qo.values import Registration, TaskOptions
from tests.worker.clocked import ClockedStore
from tests.worker.running import run_one, soon

MIDNIGHT = 1_900_022_400_000  # of some day, in UTC
URL = "https://example.com/upgrade"


def with_settings(queue: qo.Queue, *, at: int | None = None, draw: float = 0.0, **settings: Any) -> qo.Queue:
    """Another queue on the same store, with these settings for the line and its door, at a time that stands still."""
    store: Any = queue.store if at is None else ClockedStore(queue.store, now=at)
    return Queue(store, load_settings({"queue": settings}, environ={}), system=System(draw=lambda: draw))


async def start_all(queue: qo.Queue) -> int:
    claimed = await queue.store.claim(worker="w", tasks=["build"], capacity=50, lease_ms=60_000, claim_id="c")
    return len(claimed.leases)


async def started_of_a_user(queue: qo.Queue, *, tier: str) -> int:
    for _ in range(12):
        await queue.submit("build", user="ada", tier=tier)
    return await start_all(queue)


async def started_of_a_project(queue: qo.Queue, *, tier: str) -> int:
    for number in range(12):
        await queue.submit("build", user=f"user-{number}", project="site", tier=tier)
    return await start_all(queue)


async def joined_on_one_day(queue: qo.Queue, *, tier: str) -> int:
    noon = with_settings(queue, at=MIDNIGHT + DAY_MS // 2, cap=1000)
    jobs = await noon.submit_many([qo.New("build", user="ada", tier=tier)] * 205)
    states = [job.state for job in jobs if isinstance(job, qo.Job)]
    assert states.count(State.QUEUED) + states.count(State.SCHEDULED) == 205  # nobody is refused
    return states.count(State.QUEUED)


async def passed(queue: qo.Queue, *, tier: str | None) -> int:
    for _ in range(10):
        await queue.submit("build")
    job = await queue.submit("build", user="ada", tier=tier)
    assert job.position is not None
    return 11 - job.position


async def iterations_until(queue: qo.Queue, wanted: State, *, tier: str) -> int:
    worker = qo.Worker(queue, "worker-1")

    @worker.task
    async def improve(data: Any, ctx: qo.Context) -> None:
        async for _ in ctx.iterations():
            pass

    job = await run_one(queue, worker, "improve", user="ada", tier=tier)
    while job.state is not wanted:
        await queue.confirm(job.id)
        await soon(worker.run_until_idle())
        job = await queue.get(job.id)
    return job.iterations


async def iterations_remaining_after_a_batch(queue: qo.Queue, *, tier: str) -> int | None:
    used = await iterations_until(queue, State.CONFIRMING, tier=tier)
    (job,) = await queue.jobs(status="confirming")
    assert job.usage is not None
    assert job.usage.iterations_used == used
    return job.usage.iterations_remaining


async def first_guess(queue: qo.Queue, *, tier: str) -> float:
    """What the first in line is told while the only place is taken and nothing has ended yet."""
    await register(queue, 1)
    await queue.submit("build")
    await queue.store.claim(worker="w0", tasks=["build"], capacity=1, lease_ms=60_000, claim_id="c")
    submitted = await queue.submit("build", user="ada", tier=tier)
    return await told_seconds(queue, submitted.id)


async def first_guess_of_a_refusal(queue: qo.Queue, *, tier: str | None) -> float:
    """To the second: who is refused is told when to come back, here without rounding and with one place."""
    full = with_settings(queue, cap=1, cap_applies_to="all", retry_after_step_secs=1)
    await full.submit("build")
    with pytest.raises(qo.QueueFull) as refusal:
        await full.submit("build", user="ada", tier=tier)
    assert refusal.value.is_guess
    return refusal.value.retry_after.total_seconds()


async def told_seconds(queue: qo.Queue, job_id: str) -> float:
    estimate = (await queue.get(job_id)).estimate
    assert estimate is not None
    assert estimate.estimate_seconds is not None, estimate.message
    return estimate.estimate_seconds


async def deferred_after_midnight_seconds(queue: qo.Queue, *, draw: float, noon_of_day: int = 0) -> float:
    """The first job over a quota of 5, submitted at noon: how long after which midnight UTC it is due."""
    noon = with_settings(queue, at=MIDNIGHT + noon_of_day * DAY_MS + DAY_MS // 2, draw=draw)
    *_, over = [await noon.submit("build", user="ada", tier="bootstrapper") for _ in range(6)]
    assert over.run_at is not None
    return over.run_at.timestamp() - (MIDNIGHT + (noon_of_day + 1) * DAY_MS) / 1000


async def days_ahead(queue: qo.Queue, *, number: int) -> int:
    """Which day, from today on, the job of this number gets of a user with 5 a day."""
    noon = with_settings(queue, at=MIDNIGHT + DAY_MS // 2)
    jobs = [await noon.submit("build", user="ada", tier="bootstrapper") for _ in range(number)]
    run_at = jobs[-1].run_at
    return 0 if run_at is None else (round(run_at.timestamp() * 1000) - MIDNIGHT) // DAY_MS


async def is_admitted(queue: qo.Queue, *, in_line: int, tier: str | None, **settings: Any) -> bool:
    await queue.submit_many([qo.New("build")] * in_line)
    try:
        await with_settings(queue, **settings).submit("build", user="ada", tier=tier)
    except qo.QueueFull:
        return False
    return True


async def refused_minutes(queue: qo.Queue, *, in_line: int, tier: str, capacity: int = 0) -> float:
    if capacity:
        await register(queue, capacity)
    await queue.submit_many([qo.New("build")] * in_line)
    with pytest.raises(qo.QueueFull) as refusal:
        await queue.submit("build", user="ada", tier=tier)
    minutes = refusal.value.retry_after.total_seconds() / 60
    assert str(refusal.value).startswith(f"The system is busy, try again in {minutes:.0f} minutes")
    return minutes


async def admitted_of_a_hundred_at_99(queue: qo.Queue) -> int:
    await queue.submit_many([qo.New("build")] * 99)
    submits = (queue.submit("build", user=f"user-{number}", tier="partner") for number in range(100))
    answers = await asyncio.gather(*submits, return_exceptions=True)
    return sum(isinstance(answer, qo.Job) for answer in answers)


async def answer_at_a_full_line(queue: qo.Queue, **fields: Any) -> str:
    """A user whose quota is used up submits once more, while the line is full."""
    for number in range(5):
        await queue.submit("build", id=f"ada-{number}", unique=f"key-{number}", user="ada", tier="bootstrapper")
    await queue.submit_many([qo.New("build")] * 100)
    try:
        job = await queue.submit("build", **{"user": "ada", "tier": "bootstrapper", **fields})
    except qo.QueueFull:
        return "refused"
    return job.id if job.id.startswith("ada-") else job.state.value


async def charged_for_a_refused_submit(queue: qo.Queue) -> int:
    await refused_minutes(queue, in_line=100, tier="partner")
    return (await queue.usage("ada", "partner")).jobs_used


async def usage_after(queue: qo.Queue, *, jobs: int, tier: str | None) -> tuple[int, int | None, int, int | None]:
    for _ in range(jobs):
        job = await queue.submit("build", user="ada", tier=tier)
    assert job.usage is not None
    return (
        job.usage.jobs_used,
        job.usage.jobs_remaining,
        job.usage.iterations_used,
        job.usage.iterations_remaining,
    )


async def resets_at(queue: qo.Queue) -> str:
    return f"{(await queue.usage('ada')).daily_limit_resets_at:%H:%M:%S %Z}"


async def register(queue: qo.Queue, *capacities: int) -> None:
    tasks = (TaskOptions(name="build"),)
    for number, each in enumerate(capacities):
        await queue.store.register(Registration(name=f"w{number}", tasks=tasks, capacity=each, lifetime_ms=10**9))


async def average_after(queue: qo.Queue, *seconds: float, tier: str) -> float:
    estimator = WaitTimeEstimator(queue)
    for each in seconds:
        await estimator.record_completion(tier, each)
    average = (await estimator.estimate_with_confidence(tier, 1, 1)).estimate_seconds
    assert average is not None
    return average


async def average_after_a_run_of_no_time(queue: qo.Queue, *, tier: str | None, of_another_task: bool) -> float:
    """What is reckoned with for the next job, after one run."""
    worker = qo.Worker(queue, "worker-1")

    @worker.task
    async def build() -> None: ...

    await run_one(queue, worker, "build", user="ada", tier=tier)
    average = await average_duration(
        queue.store, queue.settings, task="other" if of_another_task else "build", tier=tier
    )
    assert average.basis == "measured"
    return round(average.seconds)


async def active_workers(queue: qo.Queue, *capacities: int, limit: int | None = None) -> float:
    await register(queue, *capacities)
    if limit is not None:
        await queue.set_limit("global", limit)
    return capacity_among(await queue.store.workers(), limit=(await queue.store.groups([GLOBAL]))[0].limit)


async def nudge(queue: qo.Queue, *, tier: str | None, url: str | None = URL) -> tuple[str, str] | None:
    settings: dict[str, Any] = {} if url is None else {"upgrade_url": url}
    job = await with_settings(queue, **settings).submit("build", user="ada", tier=tier)
    assert job.position is not None
    return None if job.upgrade is None else (job.upgrade.message, job.upgrade.url)


def refusal_minutes(*, over: int, average: float, capacity: int) -> float:
    return retry_after(over=over, average_seconds=average, capacity=capacity, step_seconds=900).total_seconds() / 60


def base(what: str, *, position: int, workers: int = 1, average: float = 600) -> Any:
    settings = Settings().estimate
    return getattr(
        base_estimate(position=position, active_workers=workers, average_seconds=average, settings=settings), what
    )
