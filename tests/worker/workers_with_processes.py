"""A queue and a worker for tasks with `process=True`, and whether the processes that they named still live."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import qo
from tests.worker.process_tasks import (
    add_up,
    crashes,
    fails,
    holds_the_lock,
    process_id,
    returns,
    staged,
    starts_children,
    waits_for_a_file,
)
from tests.worker.running import until

TASKS: list[qo.Task[Any, Any]] = [
    add_up,
    crashes,
    fails,
    holds_the_lock,
    process_id,
    returns,
    staged,
    starts_children,
    waits_for_a_file,
]

SETTINGS: dict[str, Any] = {
    "worker": {"processes": 2, "jobs_per_process": 3, "grace_secs": 20},
    "retries": {"first_delay_secs": 0},
}


@pytest.fixture(name="queue")
async def queue_fixture() -> AsyncIterator[qo.Queue]:
    """On one store: a store does not know in which process a handler runs."""
    async with await qo.connect("memory://", settings=SETTINGS) as queue:
        yield queue


@pytest.fixture(name="worker")
def worker_fixture(queue: qo.Queue) -> qo.Worker:
    return qo.Worker(queue, tasks=TASKS)


def is_alive(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


async def gone(*pids: int) -> None:
    async def are_gone() -> bool:
        return not any(map(is_alive, pids))

    await until(are_gone)


async def read_when_there(path: Path) -> list[int]:
    async def is_there() -> bool:
        return pids_in(path) != []

    await until(is_there)
    return pids_in(path)


def pids_in(path: Path) -> list[int]:
    if not path.exists():
        return []
    return [int(pid) for pid in path.read_text().split()]
