"""Jobs that are passed until they take a turn, and what is then kept for them."""

from __future__ import annotations

from typing import Any

from qo.store.contract import Store
from qo.values import Lease
from tests.conformance.suite.harness import HOUR, group_status, limit, register, start, submit, succeed


async def pass_once(store: Store, job_id: str, *, task: str = "work", **fields: Any) -> Lease:
    """Submit a job that finds `gpu` taken, and let a job behind it take that slot. Returns the job that has it now."""
    before = await start(store, f"before-{job_id}", groups=("gpu",))
    await submit(store, job_id, task=task, **{"groups": ("gpu", "api"), **fields})
    await succeed(store, before)
    return await start(store, f"passes-{job_id}", groups=("gpu",))


async def prepare(store: Store, *tasks: str, turn_after: int = 1, api: int = 1) -> None:
    """Workers for these tasks, whose jobs take a turn when they are passed once."""
    await register(store, "w1", *(tasks or ("work",)), capacity=100, turn_after=turn_after, lifetime_ms=24 * HOUR)
    await limit(store, "gpu", 1)
    await limit(store, "api", api)


async def kept_for(store: Store, *groups: str) -> list[str | None]:
    return [(await group_status(store, group)).kept for group in groups]


async def has_turn(store: Store, job_id: str) -> bool:
    return next(job.turn for job in (await store.line(limit=1000)).jobs if job.id == job_id)
