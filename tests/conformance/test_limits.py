"""Limits, where they come from, and pauses."""

from __future__ import annotations

import pytest
from harness import (
    NOW,
    active,
    claim,
    hand_back,
    ids,
    limit,
    line,
    numbered,
    register,
    standing,
    start,
    submission,
    submit,
    submit_all,
    submit_list,
    succeed,
    try_submit,
)

from qo.store.base import Store
from qo.store.values import Limit, LimitIgnored, Source, TaskOptions

pytestmark = pytest.mark.small_bounds


@pytest.mark.parametrize(
    ("group", "fields"),
    [
        ("global", {}),
        ("work", {}),
        ("priority:50", {}),
        ("user:u1", {"user": "u1"}),
        ("project:p1", {"project": "p1"}),
        ("tier:partner", {"standing": standing()}),
        ("parent:107", {"parent": "107"}),
        ("gpu", {"groups": ("gpu",)}),
        ("provider:ollama", {"groups": ("provider:ollama",)}),
    ],
)
async def test_no_more_jobs_of_a_group_run_than_its_limit(store: Store, group: str, fields) -> None:
    await limit(store, group, 2)
    await submit_all(store, "abcd", **fields)

    first = await claim(store, places=9)
    none = await claim(store, places=9)
    await succeed(store, first[0])
    next_one = await claim(store, places=9)

    assert (ids(first), none, ids(next_one)) == (["a", "b"], [], ["c"])
    assert await active(store, group) == 2


async def test_without_a_limit_everything_runs(store: Store) -> None:
    await submit_all(store, numbered("j", 50), user="u1", groups=("gpu",))

    assert len(await claim(store, places=50)) == 50


async def test_a_limit_of_zero_admits_nobody(store: Store) -> None:
    await limit(store, "gpu", 0)
    await submit(store, "a", groups=("gpu",))
    await submit(store, "b")

    assert ids(await claim(store, places=5)) == ["b"]


async def test_a_job_blocked_in_one_group_takes_nothing_from_its_others(store: Store) -> None:
    await limit(store, "gpu", 0)
    await limit(store, "api", 1)
    await submit(store, "needs-both", groups=("gpu", "api"))
    await submit(store, "needs-api", groups=("api",))

    claimed = await claim(store, places=5)

    assert ids(claimed) == ["needs-api"]
    assert await active(store, "api") == 1


async def test_with_a_full_and_b_free_a_job_of_both_takes_neither_until_a_frees(store: Store) -> None:
    await limit(store, "a", 1)
    await limit(store, "b", 1)
    holder = await start(store, "holds-a", groups=("a",))
    await submit(store, "both", groups=("a", "b"))

    blocked = await claim(store)
    in_b_meanwhile = await active(store, "b")
    aside = (await store.group("a")).waiting
    await submit(store, "only-b", groups=("b",))
    (only_b,) = await claim(store)
    await succeed(store, only_b)
    await succeed(store, holder)

    assert (blocked, in_b_meanwhile, aside) == ([], 0, 1)
    assert only_b.job.id == "only-b"
    (both,) = await claim(store)
    assert (both.job.id, both.slots) == ("both", {"a": 0, "b": 0})


@pytest.mark.small_bounds(apply=False)
async def test_the_others_behind_nine_thousand_blocked_ones_are_claimed_at_once_in_order(
    store: Store, crowd: int
) -> None:
    await limit(store, "user:many", 1)
    await submit_all(store, numbered("many", 9 * crowd), user="many")
    others = numbered("other", crowd)
    one_each = [Limit(group=f"user:{job_id}", slots=1, source=Source.OPERATOR) for job_id in others]
    await store.set_limits(one_each, now=NOW)
    await submit_list(store, [submission(job_id, user=job_id) for job_id in others])

    claimed = ids(await claim(store, places=crowd + 1))

    assert claimed == ["many00001", *others]
    assert (await store.group("user:many")).waiting == 9 * crowd - 1


# --- a first limit, a lowered, a removed one ---------------------------------------------------------------------


@pytest.mark.parametrize("group", ["global", "work", "priority:50", "user:u1", "project:p1", "parent:p", "gpu"])
async def test_a_first_limit_counts_those_already_running(store: Store, group: str) -> None:
    await submit_all(store, numbered("j", 52), user="u1", project="p1", parent="p", groups=("gpu",))
    running = await claim(store, places=50)

    await limit(store, group, 50)
    full = await claim(store, places=9)
    await limit(store, group, 49)
    await succeed(store, running[0])
    still_full = await claim(store, places=9)
    await succeed(store, running[1])

    assert (len(running), full, still_full) == (50, [], [])
    assert ids(await claim(store, places=9)) == ["j00051"]
    assert await active(store, group) == 49


async def test_capacity_lowered_below_use_holders_finish_and_nobody_new_starts(store: Store) -> None:
    await limit(store, "gpu", 4)
    await submit_all(store, "abcdefg", groups=("gpu",))
    running = await claim(store, places=4)

    await limit(store, "gpu", 2)
    seen = []
    for lease in running:
        seen.append((await active(store, "gpu"), ids(await claim(store, places=9))))
        await succeed(store, lease)

    assert seen == [(4, []), (3, []), (2, []), (1, ["e"])]


async def test_a_raised_limit_admits_the_next_in_line(store: Store) -> None:
    await limit(store, "gpu", 1)
    await submit_all(store, "abcd", groups=("gpu",))
    await claim(store, places=9)
    blocked = await claim(store, places=9)

    await limit(store, "gpu", 3)

    assert blocked == []
    assert ids(await claim(store, places=9)) == ["b", "c"]


async def test_removing_a_limit_with_many_parked_keeps_the_exact_order(store: Store, crowd: int) -> None:
    await limit(store, "gpu", 0)
    expected = numbered("j", crowd)
    in_group = [job_id for number, job_id in enumerate(expected) if number % 3]
    await submit_list(
        store, [submission(job_id, groups=("gpu",) if job_id in in_group else ()) for job_id in expected]
    )
    parked = (await store.group("gpu")).waiting

    await store.remove_limit("gpu", now=NOW)

    assert parked == len(in_group)
    assert await line(store) == expected
    assert ids(await claim(store, places=crowd)) == expected


async def test_removing_where_there_is_no_limit_changes_nothing(store: Store, snapshot) -> None:
    before = await snapshot()

    await store.remove_limit("gpu", by="ops", now=NOW)

    assert await snapshot() == before


async def test_jobs_parked_in_one_group_and_then_freed_by_another_way_start_in_order(store: Store) -> None:
    """Cancelled, moved and re-prioritised while they are put aside."""
    await limit(store, "gpu", 1)
    holder = await start(store, "holder", groups=("gpu",))
    await submit_all(store, "abcdef", groups=("gpu",))
    assert await claim(store, places=9) == []

    await store.cancel(job_id="a", now=NOW)
    await store.move("f", before="b", now=NOW)
    await store.set_priority(10, job_id="e", now=NOW)
    await succeed(store, holder)

    started = []
    for _ in range(5):
        (lease,) = await claim(store, places=9)
        started.append(lease.job.id)
        await succeed(store, lease)
    assert started == ["e", "f", "b", "c", "d"]


# --- where a limit comes from ------------------------------------------------------------------------------------

STRONGEST_FIRST = list(Source)


@pytest.mark.parametrize("stronger", STRONGEST_FIRST)
@pytest.mark.parametrize("weaker", STRONGEST_FIRST)
async def test_a_stronger_source_replaces_a_weaker_one_and_not_the_other_way(
    store: Store, stronger: Source, weaker: Source
) -> None:
    if stronger >= weaker:
        stronger, weaker = weaker, stronger
    await limit(store, "gpu", 5, source=weaker)
    replaced = await limit(store, "gpu", 7, source=stronger)
    kept = await store.group("gpu")

    ignored = await limit(store, "gpu", 9, source=weaker)

    wanted = Limit(group="gpu", slots=9, source=weaker)
    in_force = Limit(group="gpu", slots=7, source=stronger)
    if stronger == weaker == Source.SUBMIT:
        first = Limit(group="gpu", slots=5, source=Source.SUBMIT)
        assert (kept.limit, replaced[0].in_force, ignored[0].in_force) == (5, first, first)
    elif stronger == weaker:
        assert (kept.limit, replaced, ignored) == (7, (), ())
        assert (await store.group("gpu")).limit == 9
    else:
        assert (kept.limit, kept.source, replaced) == (7, stronger, ())
        assert ignored == (LimitIgnored(wanted=wanted, in_force=in_force),)
        assert (await store.group("gpu")).limit == 7


async def test_a_stronger_source_with_the_same_value_takes_over(store: Store) -> None:
    await limit(store, "gpu", 5, source=Source.TASK)

    ignored = await limit(store, "gpu", 5, source=Source.OPERATOR)

    assert ignored == ()
    assert (await store.group("gpu")).source is Source.OPERATOR


async def test_a_weaker_source_with_the_same_value_is_nothing_to_warn_of(store: Store, snapshot) -> None:
    await limit(store, "gpu", 5, source=Source.CONFIGURATION)
    before = await snapshot()

    assert await limit(store, "gpu", 5, source=Source.TASK) == ()
    assert await limit(store, "gpu", 5, source=Source.SUBMIT) == ()
    assert await snapshot() == before


async def test_setting_the_present_value_again_changes_nothing(store: Store, snapshot) -> None:
    await limit(store, "gpu", 5)
    before = await snapshot()

    await limit(store, "gpu", 5, by="ops")

    assert await snapshot() == before


async def test_after_a_removal_anyone_may_set_a_limit(store: Store) -> None:
    await limit(store, "gpu", 5, source=Source.OPERATOR)
    await store.remove_limit("gpu", now=NOW)

    await limit(store, "gpu", 2, source=Source.SUBMIT)

    assert ((await store.group("gpu")).limit, (await store.group("gpu")).source) == (2, Source.SUBMIT)


async def test_a_submits_limit_holds_for_the_job_itself(store: Store) -> None:
    own = Limit(group="gpu", slots=1, source=Source.SUBMIT)
    await submit_all(store, ["a", "b"], groups=("gpu",), limits=(own,))

    assert ids(await claim(store, places=5)) == ["a"]


async def test_a_submits_limit_only_fills_an_empty_one_and_is_told_otherwise(store: Store) -> None:
    first = Limit(group="gpu", slots=1, source=Source.SUBMIT)
    second = Limit(group="gpu", slots=4, source=Source.SUBMIT)
    await submit(store, "a", groups=("gpu",), limits=(first,))

    answer = await try_submit(store, "b", groups=("gpu",), limits=(second,))

    assert answer.ignored == (LimitIgnored(wanted=second, in_force=first),)
    assert (await store.group("gpu")).limit == 1


async def test_a_workers_limit_on_its_task_is_that_of_the_newest_worker(store: Store) -> None:
    await register(store, "w1", TaskOptions(name="work", limit=1))
    await register(store, "w2", TaskOptions(name="work", limit=3))
    await submit_all(store, "abcde")

    assert ((await store.group("work")).limit, (await store.group("work")).source) == (3, Source.TASK)
    assert len(await claim(store, places=9)) == 3


async def test_a_workers_limit_goes_when_the_newest_worker_names_none(store: Store) -> None:
    await register(store, "w1", TaskOptions(name="work", limit=1))
    await register(store, "w2", TaskOptions(name="work"))

    assert (await store.group("work")).limit is None


async def test_a_workers_limit_against_an_operators_is_answered(store: Store) -> None:
    await limit(store, "work", 2)

    ignored = await register(store, "w1", TaskOptions(name="work", limit=9))

    assert [(one.wanted.slots, one.in_force.slots) for one in ignored] == [(9, 2)]
    assert (await store.group("work")).limit == 2


# --- pauses -----------------------------------------------------------------------------------------------------


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

    await hand_back(store, lease, closed={"bucket": NOW + 5000})
    others = ids(await claim(store, places=5))
    too_early = await claim(store, places=5, now=NOW + 4999)
    in_time = ids(await claim(store, places=5, now=NOW + 5000))

    assert (others, too_early, in_time) == (["c"], [], ["a", "b"])


async def test_a_job_handed_back_from_a_closed_group_spent_no_attempt_and_kept_its_place(store: Store) -> None:
    await submit_all(store, ["a", "b"], groups=("bucket",))
    (lease,) = await claim(store)

    await hand_back(store, lease, closed={"bucket": NOW + 5000})

    job = await store.job("a")
    assert (job.attempts, job.started_at, job.position) == (0, None, 1)
    assert (await store.group("bucket")).waiting == 1
