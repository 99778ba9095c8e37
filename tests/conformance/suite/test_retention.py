"""What is past its retention goes, oldest first; what people set, and what is not over, stays."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from qo.errors import JobNotFound, ParentNotFound
from qo.job import State
from qo.store.contract import Store
from qo.values import Keep, Limit, Source, Unlimited, UpkeepRules
from tests.conformance.suite.harness import (
    DAY,
    HOUR,
    MINUTE,
    NOW,
    TODAY,
    accepted,
    acquire,
    at,
    claim,
    events_of,
    fail,
    group_status,
    limit,
    numbered,
    register,
    standing,
    start,
    state,
    submit,
    submit_all,
    succeed,
    try_submit,
    whole_upkeep,
)

pytestmark = pytest.mark.small_bounds

WEEK = 7 * DAY
LATER = NOW + WEEK + HOUR


async def forget(store: Store, *, now: int = LATER, keep_ms: int = WEEK, **kept: int) -> list[str]:
    given = {name.removeprefix("keep_"): number for name, number in kept.items()}
    keep = Keep(**{"ms": keep_ms, "jobs": 100_000, "events": 100_000, "audit": 100_000} | given)
    return list((await whole_upkeep(store, now=now, keep=keep)).forgotten)


async def finish_all(store: Store, *job_ids: str, now: int = NOW, **fields: Any) -> None:
    for job_id in job_ids:
        await succeed(store, await start(store, job_id, now=now, **fields), now=now)


# --- jobs -------------------------------------------------------------------------------------------------------


async def test_jobs_that_ended_long_ago_are_forgotten_oldest_first(store: Store) -> None:
    await finish_all(store, "b", now=NOW)
    await finish_all(store, "a", now=NOW + 1)
    await finish_all(store, "young", now=NOW + 2 * HOUR)

    forgotten = await forget(store, now=NOW + WEEK + 1)

    assert forgotten == ["b", "a"]
    assert await state(store, "young") is State.SUCCEEDED
    with pytest.raises(JobNotFound):
        await store.job("a")
    with pytest.raises(JobNotFound):
        await store.payload("b")


async def test_a_job_that_has_not_ended_is_never_forgotten(store: Store) -> None:
    await submit(store, "queued")
    await submit(store, "scheduled", run_at_ms=NOW + 90 * DAY)
    await submit(store, "waiting", parent="p", phase=2)
    await start(store, "runs")

    assert await forget(store, keep_jobs=0, keep_ms=0, now=NOW + 30 * DAY) == []
    assert len((await store.jobs()).jobs) == 4


async def test_only_so_many_ended_jobs_are_kept_the_newest_ones(store: Store) -> None:
    for number, job_id in enumerate(numbered("j", 8)):
        await finish_all(store, job_id, now=NOW + number)

    forgotten = await forget(store, keep_jobs=3, now=NOW + MINUTE)

    assert forgotten == numbered("j", 5)
    assert [job.id for job in (await store.jobs()).jobs] == numbered("j", 8)[5:]


@pytest.mark.parametrize("ended", ["succeeded", "failed", "cancelled"])
async def test_every_kind_of_end_is_forgotten(store: Store, ended: str) -> None:
    if ended == "cancelled":
        await submit(store, "a")
        await at(store, NOW).cancel(job_id="a")
    else:
        lease = await start(store, "a")
        await (succeed(store, lease) if ended == "succeeded" else fail(store, lease))

    assert await forget(store) == ["a"]


async def test_the_phases_of_a_parent_go_together_when_the_last_may_go(store: Store) -> None:
    await finish_all(store, "one", parent="app", phase=1, now=NOW)
    await finish_all(store, "two", parent="app", phase=2, now=NOW + DAY)

    too_early = await forget(store, now=NOW + WEEK + HOUR)
    in_time = await forget(store, now=NOW + DAY + WEEK + HOUR)

    assert (too_early, in_time) == ([], ["one", "two"])
    with pytest.raises(ParentNotFound):
        await store.parent("app")


async def test_a_parent_is_kept_while_one_of_its_jobs_has_not_ended(store: Store) -> None:
    await finish_all(store, "one", parent="app", phase=1)
    await submit(store, "three", parent="app", phase=3)

    assert await forget(store, keep_jobs=0) == []
    assert [job.id for job in (await store.parent("app")).jobs] == ["one", "three"]


async def test_a_forgotten_id_can_be_used_again(store: Store) -> None:
    await finish_all(store, "a", unique="k")
    await forget(store)

    assert not accepted(await try_submit(store, "a", unique="k", now=LATER)).known


async def test_a_forgotten_job_is_lost_for_a_late_finish(store: Store) -> None:
    lease = await start(store, "a")
    await succeed(store, lease)
    await forget(store)

    assert (await succeed(store, lease, now=LATER))[0].lost


async def test_one_portion_is_no_more_than_its_bound(store: Store) -> None:
    amount = store.bounds.portion + 1
    await submit_all(store, numbered("j", amount))
    leases = await claim(store, capacity=amount)
    await succeed(store, *leases)

    first = await at(store, LATER).upkeep(UpkeepRules(keep=Keep(ms=WEEK, jobs=10**6, events=10**6, audit=10**6)))

    assert (len(first.forgotten), first.more) == (amount - 1, True)
    assert await forget(store) == numbered("j", amount)[-1:]


# --- events -----------------------------------------------------------------------------------------------------


async def test_all_but_the_newest_events_go(store: Store) -> None:
    await submit_all(store, "abcde")

    await forget(store, keep_events=2, now=NOW)

    newest = (await store.events(None)).cursor
    feed = await store.events(newest - 2)
    assert [event.subject for event in feed.events] == ["d", "e"]
    assert (await store.events(0)).reset


async def test_the_newest_event_is_always_kept_so_that_cursors_go_on(store: Store) -> None:
    await submit_all(store, "abc")
    newest = (await store.events(None)).cursor

    await forget(store, keep_events=0, now=NOW)
    await submit(store, "d")

    assert (await store.events(None)).cursor == newest + 1
    feed = await store.events(newest)
    assert ([event.subject for event in feed.events], feed.reset) == (["d"], False)


async def test_all_but_the_newest_entries_of_the_audit_go(store: Store) -> None:
    await submit_all(store, "abcde", by="u1")

    await forget(store, keep_audit=2, now=NOW)

    assert [(entry.id, entry.subject) for entry in await store.audit()] == [(5, "e"), (4, "d")]
    assert [entry.id for entry in await store.audit(subject="d")] == [4]
    assert await store.audit(subject="c") == ()


async def test_the_number_of_an_entry_of_the_audit_is_never_used_again(store: Store) -> None:
    await submit_all(store, "abc", by="u1")
    await forget(store, keep_audit=0, now=NOW)
    assert await store.audit() == ()

    await at(store, NOW).cancel(job_id="a", by="ops")

    assert [(entry.id, entry.action, entry.subject) for entry in await store.audit()] == [(4, "cancel", "a")]


# --- users, limits, quota, workers ------------------------------------------------------------------------------


async def test_a_past_user_leaves_nothing_behind(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]]
) -> None:
    given = standing(user_limit=2, project_limit=1, daily_quota=5)
    await finish_all(store, "a", user="u1", project="p1", standing=given, groups=("gpu",))

    await forget(store)

    state = await snapshot()
    assert (state["jobs"], state["users"], state["groups"], state["quota"]) == ({}, {}, {}, {})
    assert state["slots"] == {}
    assert (await at(store, LATER).usage("u1")).tier is None


async def test_a_million_past_users_are_forgotten_in_portions(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]]
) -> None:
    for number in range(9):
        await finish_all(store, f"j{number}", user=f"u{number}", standing=standing(user_limit=1))

    await forget(store)

    state = await snapshot()
    assert (state["users"], state["groups"], state["quota"]) == ({}, {}, {})


async def test_a_user_of_a_job_that_is_kept_stays(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]]
) -> None:
    await finish_all(store, "old", user="u1", standing=standing(user_limit=2))
    await finish_all(store, "young", user="u1", now=NOW + 2 * HOUR)

    await forget(store)

    assert list((await snapshot())["users"]) == ["u1"]
    assert (await group_status(store, "user:u1")).limit == 2


async def test_a_user_whose_tier_a_person_set_stays(store: Store) -> None:
    await at(store, NOW).set_tier("u1", standing("partner", daily_quota=9), by="ops")
    await finish_all(store, "a", user="u1")

    await forget(store)

    assert (await at(store, LATER).usage("u1")).tier == "partner"


@pytest.mark.parametrize("source", [Source.OPERATOR, Source.CONFIGURATION, Source.TASK])
async def test_limits_that_people_configuration_or_tasks_set_stay_when_idle(store: Store, source: Source) -> None:
    await limit(store, "gpu", 3, source=source)
    await finish_all(store, "a", groups=("gpu",))

    await forget(store)

    assert (await group_status(store, "gpu")).limit == 3


async def test_a_submits_limit_goes_with_the_last_job_that_named_it(store: Store) -> None:
    own = Limit(group="gpu", slots=1, source=Source.SUBMIT)
    await finish_all(store, "a", groups=("gpu",), limits=(own,))
    await submit(store, "b", groups=("gpu",), run_at_ms=NOW + 30 * DAY)

    kept = await forget(store)
    during = (await group_status(store, "gpu")).limit
    await at(store, LATER).cancel(job_id="b")
    await forget(store, now=LATER + WEEK + 1)

    assert (kept, during) == (["a"], 1)
    assert (await group_status(store, "gpu")).limit is None


async def test_a_limit_with_holders_stays(store: Store) -> None:
    own = Limit(group="gpu", slots=1, source=Source.SUBMIT)
    await finish_all(store, "a", groups=("gpu",), limits=(own,))
    await acquire(store, "caller", "gpu", lease_ms=30 * DAY)

    await forget(store)

    assert (await group_status(store, "gpu")).limit == 1


async def test_a_pause_is_never_forgotten(store: Store) -> None:
    await at(store, NOW).set_paused("user:u1", True, by="ops")
    await submit(store, "a", user="u1", standing=standing(user_limit=1))
    await at(store, NOW).cancel(job_id="a")

    await forget(store)

    assert (await group_status(store, "user:u1")).paused


async def test_the_quota_of_past_days_goes_and_that_of_today_stays(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]]
) -> None:
    await submit(store, "old", user="u1", now=NOW - DAY)
    await submit(store, "new", user="u1", now=NOW)

    await forget(store, now=NOW)

    assert (await snapshot())["quota"] == {("u1", TODAY): 1}


async def test_workers_long_gone_go(store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]]) -> None:
    await register(store, "old", "work", now=NOW)
    await register(store, "new", "work", now=NOW + 2 * HOUR)

    await forget(store)

    assert list((await snapshot())["workers"]) == ["new"]


# --- figures ----------------------------------------------------------------------------------------------------


async def test_old_figures_are_summed_under_minute_zero(store: Store) -> None:
    await submit_all(store, "ab", now=NOW)
    await submit(store, "c", now=NOW + MINUTE)
    await submit(store, "d", now=NOW + 3 * HOUR)

    await forget(store)

    points = await store.series(prefix="submitted")
    assert [(point.minute, point.count) for point in points] == [(0, 3), ((NOW + 3 * HOUR) // MINUTE, 1)]


async def test_what_was_summed_before_is_added_to(store: Store) -> None:
    for days in range(4):
        await submit(store, f"j{days}", now=NOW + days * DAY)
        await forget(store, keep_ms=DAY, now=NOW + (days + 2) * DAY)

    points = await store.series(prefix="submitted")
    assert [(point.minute, point.count) for point in points] == [(0, 4)]


async def figures_of_groups(store: Store) -> set[str]:
    points = [*await store.series(prefix="acquired:"), *await store.series(prefix="rejected:")]
    return {point.name for point in points}


async def test_the_figures_of_a_group_go_with_a_limit_that_nobody_can_need_any_more(store: Store) -> None:
    for job_id, group in (("a", "customer:1"), ("b", "customer:2")):
        one_each = Limit(group=group, slots=1, source=Source.SUBMIT)
        await finish_all(store, job_id, groups=(group,), limits=(one_each,))
    await submit(store, "waits", groups=("customer:2",))

    await forget(store)

    assert await figures_of_groups(store) == {"acquired:customer:2:0"}


async def test_figures_that_are_summed_under_a_kind_stay_whatever_groups_are_called(store: Store) -> None:
    own = Limit(group="user", slots=1, source=Source.SUBMIT)
    await finish_all(store, "a", user="u1", standing=standing(user_limit=1), groups=("user",), limits=(own,))

    await forget(store)

    assert await figures_of_groups(store) == {"acquired:user:0"}


async def test_old_figures_of_a_group_are_summed_as_long_as_it_has_a_limit(store: Store) -> None:
    await limit(store, "gpu", 1)
    await limit(store, "disk", 1)
    await finish_all(store, "a", groups=("gpu", "disk"))
    await at(store, NOW).set_limits([Unlimited(group="disk")])

    await forget(store)

    assert await figures_of_groups(store) == {"acquired:gpu:0"}


# --- nothing else -----------------------------------------------------------------------------------------------


async def test_forgetting_again_changes_nothing(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]]
) -> None:
    await finish_all(store, "a", user="u1", standing=standing(user_limit=1))
    await submit(store, "b")
    await forget(store)
    before = await snapshot()

    assert await forget(store) == []
    assert await snapshot() == before


async def test_forgetting_tells_nobody(store: Store) -> None:
    await finish_all(store, "a")
    before = (await store.events(None)).cursor

    await forget(store)

    assert (await store.events(None)).cursor == before
    assert await events_of(store, "a") != []
