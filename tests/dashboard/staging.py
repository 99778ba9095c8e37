"""Jobs that run, as a worker in another process would have started them."""

from __future__ import annotations

from typing import Any

import qo
from qo.values import Lease, Registration, TaskOptions


async def register(
    queue: qo.Queue, name: str, *, tasks: tuple[str, ...] = ("build",), capacity: int = 4, turn_after: int = 8
) -> None:
    options = tuple(TaskOptions(name=task) for task in tasks)
    await queue.store.register(
        Registration(
            name=name,
            instance=name,
            tasks=options,
            capacity=capacity,
            host="host-1",
            pid=4321,
            turn_after=turn_after,
        )
    )


async def start(
    queue: qo.Queue, *ids: str, worker: str = "worker-1", task: str = "build", **fields: Any
) -> list[Lease]:
    """Submit these jobs and let the worker take as many of them as there is room for."""
    for job_id in ids:
        await queue.submit(task, id=job_id, **fields)
    claimed = await queue.store.claim(
        worker=worker, tasks=[task], capacity=len(ids), lease_ms=60_000, claim_id=f"claim {ids}"
    )
    return list(claimed.leases)
