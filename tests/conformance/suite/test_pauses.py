"""Paused and closed groups: nobody new starts, and nothing else changes."""

from __future__ import annotations

import pytest
from harness import (
    NOW,
    claim,
    hand_back,
    ids,
    limit,
    numbered,
    submit,
    submit_all,
    succeed,
)

from qo.store.base import Store

pytestmark = pytest.mark.small_bounds


@pytest.mark.parametrize("group", ["global", "work", "priority:50", "user:u1", "gpu"])
async def test_nobody_new_starts_in_a_paused_group_and_those_that_run_go_on(store: Store, group: str) -> None:
    await submit_all(store, ["a", "b"], user="u1", groups=("gpu",))
    (running,) = await claim(store)

    await store.set_paused(group, True, now=NOW)
    during = await claim(store, places=5)
    finished = await succeed(store, running)
    await store.set_paused(group, False, now=NOW)

    assert (during, finished[0].lost) == ([], False)
    assert ids(await claim(store, places=5)) == ["b"]


async def test_pausing_twice_and_resuming_once_gives_back_the_limit_there_was(store: Store) -> None:
    await limit(store, "gpu", 2)
    await submit_all(store, "abc", groups=("gpu",))

    await store.set_paused("gpu", True, now=NOW)
    await store.set_paused("gpu", True, now=NOW)
    paused = await store.group("gpu")
    during = await claim(store, places=5)
    await store.set_paused("gpu", False, now=NOW)

    assert (paused.paused, paused.limit, during) == (True, 2, [])
    assert ids(await claim(store, places=5)) == ["a", "b"]


async def test_pausing_what_is_paused_changes_nothing(store: Store, snapshot) -> None:
    await store.set_paused("gpu", True, by="ops", now=NOW)
    before = await snapshot()

    await store.set_paused("gpu", True, by="ops", now=NOW)

    assert await snapshot() == before


async def test_resuming_what_is_not_paused_changes_nothing(store: Store, snapshot) -> None:
    before = await snapshot()

    await store.set_paused("gpu", False, by="ops", now=NOW)

    assert await snapshot() == before


async def test_a_limit_set_while_paused_is_kept_for_the_resume(store: Store) -> None:
    await limit(store, "gpu", 3)
    await submit_all(store, "abcd", groups=("gpu",))
    await store.set_paused("gpu", True, now=NOW)

    await limit(store, "gpu", 1)
    during = await claim(store, places=5)
    await store.set_paused("gpu", False, now=NOW)

    assert during == []
    assert ids(await claim(store, places=5)) == ["a"]


async def test_removing_the_limit_of_a_paused_group_does_not_resume_it(store: Store) -> None:
    await limit(store, "gpu", 1)
    await store.set_paused("gpu", True, now=NOW)
    await submit(store, "a", groups=("gpu",))

    await store.remove_limit("gpu", now=NOW)

    assert await claim(store) == []
    assert (await store.group("gpu")).paused


async def test_a_group_that_was_only_paused_is_unlimited_after_the_resume(store: Store) -> None:
    await store.set_paused("gpu", True, now=NOW)
    await submit_all(store, numbered("j", 9), groups=("gpu",))
    assert await claim(store, places=9) == []

    await store.set_paused("gpu", False, now=NOW)

    assert len(await claim(store, places=9)) == 9


# --- groups whose slots are kept elsewhere -----------------------------------------------------------------------


async def test_a_closed_group_stays_closed_until_its_time_and_blocks_nobody_else(store: Store) -> None:
    await submit_all(store, ["a", "b"], groups=("bucket",))
    await submit(store, "c")
    (lease,) = await claim(store)

    await hand_back(store, lease, closed={"bucket": 5000})
    others = ids(await claim(store, places=5))
    too_early = await claim(store, places=5, now=NOW + 4999)
    in_time = ids(await claim(store, places=5, now=NOW + 5000))

    assert (others, too_early, in_time) == (["c"], [], ["a", "b"])


async def test_a_job_handed_back_from_a_closed_group_spent_no_attempt_and_kept_its_place(store: Store) -> None:
    await submit_all(store, ["a", "b"], groups=("bucket",))
    (lease,) = await claim(store)

    await hand_back(store, lease, closed={"bucket": 5000})

    job = await store.job("a")
    assert (job.attempts, job.started_at, job.position) == (0, None, 1)
    assert (await store.group("bucket")).waiting == 1
