"""`global` and a task's own group are gates: a task behind a closed one is passed by, and nobody is put aside."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from qo.store.contract import Store
from tests.conformance.suite.harness import (
    NOW,
    active,
    at,
    claim,
    group_status,
    ids,
    limit,
    line,
    numbered,
    series,
    start,
    submit,
    submit_all,
    succeed,
)

pytestmark = pytest.mark.small_bounds


async def test_pausing_everything_moves_nothing(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]]
) -> None:
    await submit_all(store, numbered("j", 30))
    before = await snapshot()

    await at(store, NOW).set_paused("global", True)
    during = await claim(store, capacity=50)
    after = await snapshot()

    assert during == []
    assert after["jobs"] == before["jobs"]
    assert (await group_status(store, "global")).waiting == 0


async def test_a_full_global_stops_all_tasks(store: Store) -> None:
    await limit(store, "global", 2)
    await submit(store, "x1", task="x")
    await submit(store, "y1", task="y")
    await submit(store, "x2", task="x")

    taken = await claim(store, tasks=["x", "y"], capacity=9)
    none = await claim(store, tasks=["x", "y"], capacity=9)
    await succeed(store, taken[1])

    assert (ids(taken), none) == (["x1", "y1"], [])
    assert ids(await claim(store, tasks=["x", "y"], capacity=9)) == ["x2"]


async def test_a_full_task_is_passed_by_and_other_tasks_go_on(store: Store) -> None:
    await limit(store, "x", 1)
    await submit_all(store, ["x1", "x2", "x3"], task="x", priority=10)
    await submit_all(store, ["y1", "y2"], task="y", priority=90)

    taken = ids(await claim(store, tasks=["x", "y"], capacity=9))

    assert taken == ["x1", "y1", "y2"]
    assert (await group_status(store, "x")).waiting == 0


async def test_jobs_behind_a_gate_start_in_order_when_it_opens(store: Store) -> None:
    await limit(store, "x", 0)
    await submit_all(store, ["a", "b", "c"], task="x")
    await at(store, NOW).set_priority(10, job_id="c")

    await limit(store, "x", 2)

    assert ids(await claim(store, tasks=["x"], capacity=9)) == ["c", "a"]


async def test_a_worker_of_one_task_is_not_starved_by_ready_jobs_of_another(store: Store, crowd: int) -> None:
    await submit_all(store, numbered("y", crowd), task="y", priority=10)
    await submit(store, "x", task="x", priority=99)

    claimed = await at(store, NOW).claim(worker="w", tasks=["x"], capacity=5, lease_ms=1000, claim_id="c1")

    assert ids(claimed.leases) == ["x"]
    assert not claimed.more


async def test_a_worker_of_one_task_is_not_starved_by_parked_jobs_of_another(store: Store, crowd: int) -> None:
    await limit(store, "gpu", 0)
    await submit_all(store, numbered("y", crowd), task="y", priority=10, groups=("gpu",))
    await limit(store, "gpu", 1)
    await submit(store, "x", task="x", priority=99, groups=("gpu",))

    claimed = await at(store, NOW).claim(worker="w", tasks=["x"], capacity=5, lease_ms=1000, claim_id="c1")

    assert ids(claimed.leases) == ["x"]
    assert not claimed.more


async def test_the_group_of_another_task_parks_like_any_group(store: Store) -> None:
    """A job that adds another task's group is not of that task: only its own gate is its gate."""
    await limit(store, "deploy", 1)
    await start(store, "deploys", task="deploy")
    await submit(store, "builds", task="build", groups=("deploy",))

    assert await claim(store, tasks=["build"]) == []
    assert (await group_status(store, "deploy")).waiting == 1
    assert await active(store, "deploy") == 1


async def test_being_passed_by_at_a_gate_is_no_rejection(store: Store) -> None:
    await limit(store, "work", 0)
    await submit_all(store, ["a", "b"])
    await claim(store, capacity=5)

    assert await series(store, "rejected:") == {}
    assert await line(store) == ["a", "b"]
