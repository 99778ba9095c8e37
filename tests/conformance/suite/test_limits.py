"""Limits: first ones, lowered ones, removed ones, and those who are skipped over meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from qo.store.contract import Store
from qo.values import Limit, Source, Standing, Unlimited
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
    standing,
    start,
    submission,
    submit,
    submit_all,
    submit_list,
    succeed,
)

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
async def test_no_more_jobs_of_a_group_run_than_its_limit(
    store: Store, group: str, fields: dict[str, Standing] | dict[str, str] | dict[str, tuple[str, ...]]
) -> None:
    await limit(store, group, 2)
    await submit_all(store, "abcd", **fields)

    first = await claim(store, capacity=9)
    none = await claim(store, capacity=9)
    await succeed(store, first[0])
    next_one = await claim(store, capacity=9)

    assert (ids(first), none, ids(next_one)) == (["a", "b"], [], ["c"])
    assert await active(store, group) == 2


async def test_without_a_limit_everything_runs(store: Store) -> None:
    await submit_all(store, numbered("j", 50), user="u1", groups=("gpu",))

    assert len(await claim(store, capacity=50)) == 50


async def test_a_limit_of_zero_admits_nobody(store: Store) -> None:
    await limit(store, "gpu", 0)
    await submit(store, "a", groups=("gpu",))
    await submit(store, "b")

    assert ids(await claim(store, capacity=5)) == ["b"]


async def test_a_job_blocked_in_one_group_takes_nothing_from_its_others(store: Store) -> None:
    await limit(store, "gpu", 0)
    await limit(store, "api", 1)
    await submit(store, "needs-both", groups=("gpu", "api"))
    await submit(store, "needs-api", groups=("api",))

    claimed = await claim(store, capacity=5)

    assert ids(claimed) == ["needs-api"]
    assert await active(store, "api") == 1


async def test_with_a_full_and_b_free_a_job_of_both_takes_neither_until_a_frees(store: Store) -> None:
    await limit(store, "a", 1)
    await limit(store, "b", 1)
    holder = await start(store, "holds-a", groups=("a",))
    await submit(store, "both", groups=("a", "b"))

    blocked = await claim(store)
    in_b_meanwhile = await active(store, "b")
    aside = (await group_status(store, "a")).waiting
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
    await at(store, NOW).set_limits(one_each)
    await submit_list(store, [submission(job_id, user=job_id) for job_id in others])

    claimed = ids(await claim(store, capacity=crowd + 1))

    assert claimed == ["many00001", *others]
    assert (await group_status(store, "user:many")).waiting == 9 * crowd - 1


# --- a first limit, a lowered, a removed one ---------------------------------------------------------------------


@pytest.mark.parametrize("group", ["global", "work", "priority:50", "user:u1", "project:p1", "parent:p", "gpu"])
async def test_a_first_limit_counts_those_already_running(store: Store, group: str) -> None:
    await submit_all(store, numbered("j", 52), user="u1", project="p1", parent="p", groups=("gpu",))
    running = await claim(store, capacity=50)

    await limit(store, group, 50)
    full = await claim(store, capacity=9)
    await limit(store, group, 49)
    await succeed(store, running[0])
    still_full = await claim(store, capacity=9)
    await succeed(store, running[1])

    assert (len(running), full, still_full) == (50, [], [])
    assert ids(await claim(store, capacity=9)) == ["j00051"]
    assert await active(store, group) == 49


async def test_capacity_lowered_below_use_holders_finish_and_nobody_new_starts(store: Store) -> None:
    await limit(store, "gpu", 4)
    await submit_all(store, "abcdefg", groups=("gpu",))
    running = await claim(store, capacity=4)

    await limit(store, "gpu", 2)
    seen = []
    for lease in running:
        seen.append((await active(store, "gpu"), ids(await claim(store, capacity=9))))
        await succeed(store, lease)

    assert seen == [(4, []), (3, []), (2, []), (1, ["e"])]


async def test_a_raised_limit_admits_the_next_in_line(store: Store) -> None:
    await limit(store, "gpu", 1)
    await submit_all(store, "abcd", groups=("gpu",))
    await claim(store, capacity=9)
    blocked = await claim(store, capacity=9)

    await limit(store, "gpu", 3)

    assert blocked == []
    assert ids(await claim(store, capacity=9)) == ["b", "c"]


async def test_removing_a_limit_with_many_parked_keeps_the_exact_order(store: Store, crowd: int) -> None:
    await limit(store, "gpu", 0)
    expected = numbered("j", crowd)
    in_group = [job_id for number, job_id in enumerate(expected) if number % 3]
    await submit_list(store, [submission(job_id, groups=("gpu",) if job_id in in_group else ()) for job_id in expected])
    parked = (await group_status(store, "gpu")).waiting

    await at(store, NOW).set_limits([Unlimited(group="gpu")])

    assert parked == len(in_group)
    assert await line(store) == expected
    assert ids(await claim(store, capacity=crowd)) == expected


async def test_removing_where_there_is_no_limit_changes_nothing(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]]
) -> None:
    before = await snapshot()

    await at(store, NOW).set_limits([Unlimited(group="gpu")], by="ops")

    assert await snapshot() == before


async def test_jobs_parked_in_one_group_and_then_freed_by_another_way_start_in_order(store: Store) -> None:
    """Cancelled, moved and re-prioritised while they are put aside."""
    await limit(store, "gpu", 1)
    holder = await start(store, "holder", groups=("gpu",))
    await submit_all(store, "abcdef", groups=("gpu",))
    assert await claim(store, capacity=9) == []

    await at(store, NOW).cancel(job_id="a")
    await at(store, NOW).move("f", before="b")
    await at(store, NOW).set_priority(10, job_id="e")
    await succeed(store, holder)

    started = []
    for _ in range(5):
        (lease,) = await claim(store, capacity=9)
        started.append(lease.job.id)
        await succeed(store, lease)
    assert started == ["e", "f", "b", "c", "d"]
