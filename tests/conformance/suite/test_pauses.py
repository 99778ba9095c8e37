"""Paused and closed groups: nobody new starts, and nothing else changes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from qo.store.contract import Store
from qo.values import Unlimited
from tests.conformance.suite.harness import (
    NOW,
    at,
    claim,
    group_status,
    hand_back,
    ids,
    limit,
    numbered,
    submit,
    submit_all,
    succeed,
)

pytestmark = pytest.mark.small_bounds


@pytest.mark.parametrize("group", ["global", "work", "priority:50", "user:u1", "gpu"])
async def test_nobody_new_starts_in_a_paused_group_and_those_that_run_go_on(store: Store, group: str) -> None:
    await submit_all(store, ["a", "b"], user="u1", groups=("gpu",))
    (running,) = await claim(store)

    await at(store, NOW).set_paused(group, True)
    during = await claim(store, capacity=5)
    finished = await succeed(store, running)
    await at(store, NOW).set_paused(group, False)

    assert (during, finished[0].lost) == ([], False)
    assert ids(await claim(store, capacity=5)) == ["b"]


async def test_pausing_twice_and_resuming_once_gives_back_the_limit_there_was(store: Store) -> None:
    await limit(store, "gpu", 2)
    await submit_all(store, "abc", groups=("gpu",))

    await at(store, NOW).set_paused("gpu", True)
    await at(store, NOW).set_paused("gpu", True)
    paused = await group_status(store, "gpu")
    during = await claim(store, capacity=5)
    await at(store, NOW).set_paused("gpu", False)

    assert (paused.paused, paused.limit, during) == (True, 2, [])
    assert ids(await claim(store, capacity=5)) == ["a", "b"]


async def test_pausing_what_is_paused_changes_nothing(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]]
) -> None:
    await at(store, NOW).set_paused("gpu", True, by="ops")
    before = await snapshot()

    await at(store, NOW).set_paused("gpu", True, by="ops")

    assert await snapshot() == before


async def test_resuming_what_is_not_paused_changes_nothing(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]]
) -> None:
    before = await snapshot()

    await at(store, NOW).set_paused("gpu", False, by="ops")

    assert await snapshot() == before


async def test_a_limit_set_while_paused_is_kept_for_the_resume(store: Store) -> None:
    await limit(store, "gpu", 3)
    await submit_all(store, "abcd", groups=("gpu",))
    await at(store, NOW).set_paused("gpu", True)

    await limit(store, "gpu", 1)
    during = await claim(store, capacity=5)
    await at(store, NOW).set_paused("gpu", False)

    assert during == []
    assert ids(await claim(store, capacity=5)) == ["a"]


async def test_removing_the_limit_of_a_paused_group_does_not_resume_it(store: Store) -> None:
    await limit(store, "gpu", 1)
    await at(store, NOW).set_paused("gpu", True)
    await submit(store, "a", groups=("gpu",))

    await at(store, NOW).set_limits([Unlimited(group="gpu")])

    assert await claim(store) == []
    assert (await group_status(store, "gpu")).paused


async def test_a_group_that_was_only_paused_is_unlimited_after_the_resume(store: Store) -> None:
    await at(store, NOW).set_paused("gpu", True)
    await submit_all(store, numbered("j", 9), groups=("gpu",))
    assert await claim(store, capacity=9) == []

    await at(store, NOW).set_paused("gpu", False)

    assert len(await claim(store, capacity=9)) == 9


# --- groups whose slots are kept elsewhere -----------------------------------------------------------------------


async def test_a_closed_group_stays_closed_until_its_time_and_blocks_nobody_else(store: Store) -> None:
    await submit_all(store, ["a", "b"], groups=("bucket",))
    await submit(store, "c")
    (lease,) = await claim(store)

    await hand_back(store, lease, closed={"bucket": 5000})
    others = ids(await claim(store, capacity=5))
    too_early = await claim(store, capacity=5, now=NOW + 4999)
    in_time = ids(await claim(store, capacity=5, now=NOW + 5000))

    assert (others, too_early, in_time) == (["c"], [], ["a", "b"])


async def test_a_job_handed_back_from_a_closed_group_spent_no_attempt_and_kept_its_place(store: Store) -> None:
    await submit_all(store, ["a", "b"], groups=("bucket",))
    (lease,) = await claim(store)

    await hand_back(store, lease, closed={"bucket": 5000})

    job = await store.job("a")
    assert (job.attempts, job.started_at, job.position) == (0, None, 1)
    assert (await group_status(store, "bucket")).waiting == 2
