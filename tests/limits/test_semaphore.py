"""Semaphores of users and projects: slots taken by name and given back, limits from tiers, and names."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

import qo
from qo.limits.holders import MAX_HOLDER_CHARACTERS
from qo.limits.semaphore import (
    TIER_CONCURRENT_PROJECT,
    TIER_CONCURRENT_USER,
    project_semaphore,
    user_semaphore,
)
from qo.values import Keep, Source, UpkeepRules
from tests.limits.semaphore_fixtures import overrides_fixture, staged_fixture  # noqa: F401 - asked for by name
from tests.limits.semaphore_staging import Staged, queue_on, waiting
from tests.worker.running import soon

# --- slots and limits -----------------------------------------------------------------------------------------


def test_the_tables_give_the_numbers_of_the_built_in_tiers() -> None:
    assert dict(TIER_CONCURRENT_USER) == {"bootstrapper": 2, "partner": 3, "cto_scale": 10}
    assert dict(TIER_CONCURRENT_PROJECT) == {"bootstrapper": 2, "partner": 3, "cto_scale": 5}


@pytest.mark.parametrize("tier", TIER_CONCURRENT_USER)
async def test_as_many_hold_a_slot_as_the_tier_gives_a_user_or_project(queue: qo.Queue, tier: str) -> None:
    user, project = user_semaphore(queue, "ada", tier), project_semaphore(queue, "site", tier)

    of_user = [await user.acquire(f"h{number}") for number in range(12)]
    of_project = [await project.acquire(f"h{number}") for number in range(12)]

    assert of_user == [True] * TIER_CONCURRENT_USER[tier] + [False] * (12 - TIER_CONCURRENT_USER[tier])
    assert of_project == [True] * TIER_CONCURRENT_PROJECT[tier] + [False] * (12 - TIER_CONCURRENT_PROJECT[tier])
    assert await user.count() == TIER_CONCURRENT_USER[tier]
    assert await project.count() == TIER_CONCURRENT_PROJECT[tier]


async def test_a_hundred_at_once_never_get_more_than_the_limit(queue: qo.Queue) -> None:
    semaphore = user_semaphore(queue, "ada", "partner")

    got = await asyncio.gather(*(semaphore.acquire(f"h{number}") for number in range(100)))

    assert (sum(got), await semaphore.count()) == (3, 3)


@pytest.mark.parametrize("make", [user_semaphore, project_semaphore])
async def test_an_unknown_tier_is_refused_by_name(queue: qo.Queue, make: Any) -> None:
    with pytest.raises(qo.UnknownTier, match="tier is 'gold'; use one of bootstrapper, cto_scale, partner, solo"):
        make(queue, "ada", "gold")


async def test_the_same_holder_again_is_told_true_and_gets_no_second_slot(queue: qo.Queue) -> None:
    semaphore = user_semaphore(queue, "ada", "partner")

    got = [await semaphore.acquire("h"), await semaphore.acquire("h"), await semaphore.acquire("h", timeout=1)]

    assert (got, await semaphore.count()) == ([True, True, True], 1)


async def test_a_release_frees_the_slot_once_and_is_harmless_twice(queue: qo.Queue) -> None:
    semaphore = user_semaphore(queue, "ada", "solo")
    await semaphore.acquire("h")

    assert [await semaphore.release("h"), await semaphore.release("h")] == [True, False]
    assert await semaphore.acquire("other")
    assert not await semaphore.release("h")
    assert await semaphore.count() == 1


async def test_a_release_never_touches_another_holder_or_the_same_name_elsewhere(queue: qo.Queue) -> None:
    user, other = user_semaphore(queue, "ada", "partner"), user_semaphore(queue, "bob", "partner")
    project = project_semaphore(queue, "ada", "partner")
    for semaphore in (user, other, project):
        assert await semaphore.acquire("h")
    await user.acquire("h2")

    assert await user.release("h")

    assert [await each.count() for each in (user, other, project)] == [1, 1, 1]
    assert not await user.release("nobody")


async def test_a_release_leaves_the_place_in_line_of_one_that_waits(queue: qo.Queue) -> None:
    semaphore = user_semaphore(queue, "ada", "solo")
    await semaphore.acquire("first")
    waiter = asyncio.create_task(semaphore.acquire("h", timeout=20))
    await waiting(semaphore, 1)

    assert not await semaphore.release("h")
    await waiting(semaphore, 1)
    await semaphore.release("first")
    assert await soon(waiter)


async def test_a_release_that_comes_too_late_leaves_the_place_in_line_in_which_its_holder_stands_by_then(
    queue: qo.Queue, staged: Staged
) -> None:
    semaphore, other = user_semaphore(queue_on(staged), "ada", "solo"), user_semaphore(queue, "ada", "solo")
    await other.acquire("h")
    waiters = []

    async def lose_it_and_wait(*_: Any) -> None:
        await queue.release_slot("user:ada", 0, by="ops", force=True)
        await other.acquire("second")
        waiters.append(asyncio.create_task(other.acquire("h", timeout=60)))
        await waiting(other, 1)

    staged.before["release"] = lose_it_and_wait

    assert not await semaphore.release("h")
    await waiting(other, 1)
    await other.release("second")
    assert await soon(waiters[0])


async def test_the_limit_comes_from_the_tier_when_the_semaphore_is_first_used(queue: qo.Queue) -> None:
    semaphore = user_semaphore(queue, "ada", "partner")
    before = (await queue.limit("user:ada")).limit
    await semaphore.count()
    after_count = (await queue.limit("user:ada")).limit
    await semaphore.acquire("h")
    status = await queue.limit("user:ada")

    assert (before, after_count, status.limit, status.source) == (None, None, 3, Source.TIER)


async def test_a_stronger_limit_is_kept_and_the_tiers_is_a_warning(
    queue: qo.Queue, caplog: pytest.LogCaptureFixture
) -> None:
    await queue.set_limit("user:ada", 1, by="ops")
    semaphore = user_semaphore(queue, "ada", "partner")

    assert [await semaphore.acquire("a"), await semaphore.acquire("b")] == [True, False]
    assert "the limit 3 of group user:ada wanted by a tier is not used: the operator set 1" in caplog.text


async def test_a_tier_changed_by_set_tier_counts_for_a_semaphore_in_use(queue: qo.Queue) -> None:
    semaphore = user_semaphore(queue, "ada", "bootstrapper")
    before = [await semaphore.acquire(f"h{number}") for number in range(3)]

    await queue.set_tier("ada", "partner")
    raised = [await semaphore.acquire(f"h{number}") for number in range(4)]
    await queue.set_tier("ada", "solo")
    lowered = await semaphore.acquire("late")
    for number in range(3):
        await semaphore.release(f"h{number}")
    below = [await semaphore.acquire("late"), await semaphore.acquire("later")]

    assert before == [True, True, False]
    assert raised == [True, True, True, False]
    assert (lowered, below) == (False, [True, False])
    assert (await queue.limit("user:ada")).limit == 1


async def test_one_that_waits_gets_in_when_set_tier_raises_the_limit(queue: qo.Queue) -> None:
    semaphore = user_semaphore(queue, "ada", "solo")
    await semaphore.acquire("a")
    waiter = asyncio.create_task(semaphore.acquire("b", timeout=20))
    await waiting(semaphore, 1)

    await queue.set_tier("ada", "bootstrapper")

    assert await soon(waiter)
    assert await semaphore.count() == 2


async def test_nobody_gets_a_slot_while_the_group_is_paused(queue: qo.Queue) -> None:
    semaphore = user_semaphore(queue, "ada", "partner")
    await queue.pause("user:ada")
    paused = await semaphore.acquire("h")
    await queue.resume("user:ada")

    assert (paused, await semaphore.acquire("h")) == (False, True)


async def forget_everything(store: Any) -> None:
    await store.upkeep(UpkeepRules(keep=Keep(ms=0, jobs=0, events=1000, audit=1000)))


async def test_a_limit_that_retention_has_removed_is_set_again(queue: qo.Queue) -> None:
    semaphore = user_semaphore(queue, "ada", "solo")
    await semaphore.acquire("h")
    await semaphore.release("h")
    await forget_everything(queue.store)
    forgotten = (await queue.limit("user:ada")).limit

    got = await asyncio.gather(*(semaphore.acquire(f"h{number}") for number in range(5)))

    assert forgotten is None
    assert (sum(got), await semaphore.count(), (await queue.limit("user:ada")).limit) == (1, 1, 1)


async def test_a_limit_that_retention_removes_at_the_last_moment_is_set_again(queue: qo.Queue, staged: Staged) -> None:
    semaphore = user_semaphore(queue_on(staged), "ada", "solo")
    removed: list[int | None] = []

    async def forget(*_: Any) -> None:
        if not removed:
            await forget_everything(queue.store)
            removed.append((await queue.limit("user:ada")).limit)

    staged.before["acquire"] = forget

    assert [await semaphore.acquire("a"), await semaphore.acquire("b")] == [True, False]
    assert (removed, (await queue.limit("user:ada")).limit) == ([None], 1)


# --- names ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("holder", "message"),
    [
        ("", "holder is empty; use 1 to 100 characters."),
        ("h" * 101, "which has 101 characters; use 1 to 100."),
        ("a\nb", "holder is 'a\\nb', which has a control character"),
        (7, "holder is 7; use text of 1 to 100 characters."),
    ],
)
async def test_a_bad_holder_is_refused_before_anything_is_changed(queue: qo.Queue, holder: Any, message: str) -> None:
    semaphore = user_semaphore(queue, "ada", "partner")
    for call in (semaphore.acquire, semaphore.release, semaphore.heartbeat):
        with pytest.raises(qo.InvalidValue) as refusal:
            await call(holder)
        assert message in str(refusal.value)

    assert await queue.limits() == []


@pytest.mark.parametrize("owner", ["", "u" * 201, "a\x00b", None])
async def test_a_bad_owner_is_refused_by_its_field(queue: qo.Queue, owner: Any) -> None:
    with pytest.raises(qo.InvalidValue, match="user_id is"):
        user_semaphore(queue, owner, "partner")
    with pytest.raises(qo.InvalidValue, match="project_id is"):
        project_semaphore(queue, owner, "partner")


@pytest.mark.parametrize("timeout", [-1, math.nan, None, True, "1"])
async def test_a_bad_timeout_is_refused_before_anything_is_changed(queue: qo.Queue, timeout: Any) -> None:
    with pytest.raises(qo.InvalidValue, match=r"timeout is .*; use seconds of 0 or more"):
        await user_semaphore(queue, "ada", "partner").acquire("h", timeout=timeout)

    assert await queue.limits() == []


async def test_every_name_that_jobs_may_have_can_be_an_owner_with_the_longest_holder(queue: qo.Queue) -> None:
    long, longer, holder = "u" * 199 + "1", "u" * 199 + "2", "h" * MAX_HOLDER_CHARACTERS
    for make in (user_semaphore, project_semaphore):
        for owner in (long, longer, ":" * 200, "%" * 27, "ü" * 81):
            semaphore = make(queue, owner, "partner")
            got = [await semaphore.acquire(holder), await semaphore.heartbeat(holder), await semaphore.count()]
            assert got == [True, True, 1]


async def test_no_two_holders_clash_whatever_their_names(queue: qo.Queue) -> None:
    named = [("a:b", "c"), ("a", "b:c"), ("a%3Ab", "c"), ("a%253Ab", "c"), ("a", "c"), ("a", "b%3Ac")]
    for owner, holder in named:
        assert await user_semaphore(queue, owner, "partner").acquire(holder)

    counts = {owner: await user_semaphore(queue, owner, "partner").count() for owner, _ in named}
    assert counts == {"a:b": 1, "a": 3, "a%3Ab": 1, "a%253Ab": 1}
