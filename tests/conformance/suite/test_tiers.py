"""A user's standing: what a tier grants, and what changes when it does."""

from __future__ import annotations

import pytest

from qo.job import State, moment
from qo.store.contract import Store
from qo.values import Source
from tests.conformance.suite.harness import (
    DAY,
    HOUR,
    MIDNIGHT,
    NOW,
    accepted,
    ask_to_confirm,
    at,
    claim,
    events_of,
    group_status,
    ids,
    limit,
    line,
    numbered,
    standing,
    start,
    state,
    submit,
    submit_all,
    try_submit,
)

pytestmark = pytest.mark.small_bounds

PARTNER = standing("partner", boost=2, user_limit=3, project_limit=2, daily_quota=50)
SMALL = standing("small", user_limit=1, daily_quota=5)


async def test_a_job_belongs_to_the_group_of_its_tier(store: Store) -> None:
    job = await submit(store, "a", user="u1", standing=PARTNER)

    assert job.tier == "partner"
    assert "tier:partner" in job.groups


async def test_without_a_standing_the_users_present_one_counts(store: Store) -> None:
    await submit(store, "a", user="u1", standing=PARTNER)

    same_user, other_user = await submit(store, "b", user="u1"), await submit(store, "c", user="u2")

    assert (same_user.tier, other_user.tier) == ("partner", None)


async def test_a_standing_limits_its_user_and_project(store: Store) -> None:
    await submit_all(store, "abcd", user="u1", standing=PARTNER)
    await submit_all(store, "pqrs", project="p1", standing=PARTNER)

    claimed = ids(await claim(store, capacity=20))

    assert claimed == ["a", "b", "c", "p", "q"]
    assert [(await group_status(store, group)).source for group in ("user:u1", "project:p1")] == [Source.TIER] * 2


async def test_the_newest_submits_standing_replaces_the_one_before(store: Store) -> None:
    await submit_all(store, "abc", user="u1", standing=PARTNER)

    await submit(store, "d", user="u1", standing=SMALL)

    assert {(await store.job(job_id)).tier for job_id in "abcd"} == {"small"}
    assert (await group_status(store, "user:u1")).limit == 1
    assert (await at(store, NOW).usage("u1")).tier == "small"


async def test_a_standing_against_an_operators_limit_is_answered(store: Store) -> None:
    await limit(store, "user:u1", 9)

    answer = accepted(await try_submit(store, "a", user="u1", standing=PARTNER))

    assert [(one.wanted.slots, one.wanted.source, one.in_force.slots) for one in answer.ignored] == [
        (3, Source.TIER, 9)
    ]
    assert (await group_status(store, "user:u1")).limit == 9


async def test_set_tier_applies_at_once_to_waiting_jobs(store: Store) -> None:
    await submit_all(store, "abc", user="u1", project="p1", standing=PARTNER)
    await submit(store, "later", user="u1", run_at_ms=NOW + HOUR)
    await submit(store, "phase", user="u1", parent="p", phase=2)

    await at(store, NOW).set_tier("u1", SMALL, by="ops")

    jobs = [await store.job(job_id) for job_id in ("a", "b", "c", "later", "phase")]
    assert {job.tier for job in jobs} == {"small"}
    assert all("tier:small" in job.groups and "tier:partner" not in job.groups for job in jobs)
    assert (await group_status(store, "user:u1")).limit == 1
    assert ids(await claim(store, capacity=9)) == ["a"]


async def test_a_changed_tier_keeps_drawn_places(store: Store) -> None:
    await submit_all(store, "abc")
    await submit(store, "boosted", user="u1", standing=PARTNER)
    before = await line(store)

    await at(store, NOW).set_tier("u1", SMALL)

    assert before == ["a", "boosted", "b", "c"]
    assert await line(store) == before


async def test_a_changed_tiers_boost_counts_for_a_place_drawn_later(store: Store) -> None:
    await submit(store, "a", user="u1", standing=SMALL)
    (lease,) = await claim(store)
    await ask_to_confirm(store, lease)
    await submit_all(store, "xyz")

    await at(store, NOW).set_tier("u1", PARTNER)
    await at(store, NOW).confirm("a")

    assert await line(store) == ["x", "a", "y", "z"]


async def test_a_job_that_runs_keeps_its_tier(store: Store) -> None:
    await start(store, "a", user="u1", standing=PARTNER)

    await at(store, NOW).set_tier("u1", SMALL)

    job = await store.job("a")
    assert job.tier == "partner"
    assert (await group_status(store, "tier:partner")).active == 1


async def test_a_limit_that_is_no_longer_granted_is_removed(store: Store) -> None:
    await submit_all(store, "abcde", user="u1", project="p1", standing=PARTNER)

    await at(store, NOW).set_tier("u1", standing("free"))

    assert (await group_status(store, "user:u1")).limit is None
    assert (await group_status(store, "project:p1")).limit is None
    assert len(await claim(store, capacity=9)) == 5


async def test_a_limit_that_a_person_set_stays_when_a_tier_grants_none(store: Store) -> None:
    await limit(store, "user:u1", 2)
    await submit(store, "a", user="u1", standing=PARTNER)

    await at(store, NOW).set_tier("u1", standing("free"))

    assert (await group_status(store, "user:u1")).limit == 2


async def test_parked_jobs_move_with_their_tiers_group(store: Store) -> None:
    await limit(store, "tier:partner", 0)
    await submit_all(store, "ab", user="u1", standing=standing("partner"))
    blocked = await claim(store, capacity=9)

    await at(store, NOW).set_tier("u1", standing("other"))

    assert blocked == []
    assert (await group_status(store, "tier:partner")).waiting == 0
    assert ids(await claim(store, capacity=9)) == ["a", "b"]


async def test_a_larger_quota_moves_deferred_jobs_forward(store: Store) -> None:
    await submit_all(store, "abcdef", user="u1", standing=standing(daily_quota=1))

    await at(store, NOW).set_tier("u1", standing(daily_quota=3))

    states = [await state(store, job_id) for job_id in "abcdef"]
    assert states == [State.QUEUED] * 3 + [State.SCHEDULED] * 3
    tomorrow = moment(MIDNIGHT + DAY).date()
    run_ats = [(await store.job(job_id)).run_at for job_id in "def"]
    assert [run_at and run_at.date() for run_at in run_ats] == [tomorrow] * 3
    assert await line(store) == ["a", "b", "c"]


async def test_a_smaller_quota_takes_back_nothing_that_was_accepted(store: Store) -> None:
    await submit_all(store, "abcdef", user="u1", standing=standing(daily_quota=9))

    await at(store, NOW).set_tier("u1", SMALL)

    assert await line(store) == list("abcdef")
    assert (await submit(store, "g", user="u1")).state is State.SCHEDULED


async def test_a_tier_set_by_a_person_stays_until_the_next_one(store: Store) -> None:
    await at(store, NOW).set_tier("u1", PARTNER)

    job = await submit(store, "a", user="u1")

    assert job.tier == "partner"
    assert (await at(store, NOW).usage("u1")).daily_quota == 50


async def test_only_that_users_jobs_change(store: Store) -> None:
    await submit(store, "a", user="u1", standing=PARTNER)
    await submit(store, "b", user="u2", standing=PARTNER)

    await at(store, NOW).set_tier("u1", SMALL)

    assert (await store.job("b")).tier == "partner"
    assert (await group_status(store, "user:u2")).limit == 3


async def test_a_tier_set_by_a_person_is_told_with_its_name(store: Store) -> None:
    await submit(store, "a", user="u1", standing=PARTNER)

    await at(store, NOW).set_tier("u1", SMALL)

    assert (await events_of(store, "u1"))[-1] == ("tier", {"tier": "small"})


async def test_iterations_come_from_the_standing_and_every_confirmation_grants_a_batch_up_to_the_most(
    store: Store,
) -> None:
    given = standing(iterations_batch=2, iterations_max=5)
    await submit(store, "a", user="u1", standing=given)
    granted = [(await store.job("a")).iterations_granted]
    for _ in range(3):
        (lease,) = await claim(store)
        await ask_to_confirm(store, lease)
        granted.append((await at(store, NOW).confirm("a")).iterations_granted)

    assert granted == [2, 4, 5, 5]
    assert (await store.job("a")).iterations_max == 5


async def test_without_a_tier_iterations_are_not_counted_against_anything(store: Store) -> None:
    lease = await start(store, "a")
    await ask_to_confirm(store, lease)

    job = await at(store, NOW).confirm("a")

    assert (job.iterations_granted, job.iterations_max) == (None, None)


async def test_many_jobs_of_a_user_enter_anew_in_their_order(store: Store) -> None:
    await submit_all(store, numbered("j", 20), user="u1", standing=PARTNER)
    await limit(store, "tier:small", 5)

    await at(store, NOW).set_tier("u1", standing("small"))

    assert await line(store) == numbered("j", 20)
    assert ids(await claim(store, capacity=20)) == numbered("j", 5)
