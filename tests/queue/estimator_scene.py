"""A store on a clock that the test sets, with jobs, a worker and an estimator: where estimates are tested."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest

from qo.job import Estimate, State
from qo.loops.system import System
from qo.policy.estimates.base import duration_of_task
from qo.queue.estimator import Estimator
from qo.settings import Settings
from qo.values import Average, Bounds, Outcome, Registration, Submission, TaskOptions
from tests.stores import StoreUnderTest
from tests.worker.clocked import ClockedStore

START_MS = 1_800_000_000_000
SETTINGS = Settings()


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


def about(*seconds: float) -> Any:
    """Runs are taken to differ a little even where they never did, and few estimates have been checked."""
    return pytest.approx(list(seconds), rel=0.15, abs=10)
