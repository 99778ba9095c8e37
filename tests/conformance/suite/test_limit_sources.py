"""Where a group's limit comes from: the stronger source wins, and the weaker is told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from qo.store.contract import Store
from qo.values import Limit, LimitIgnored, Source, TaskOptions, Unlimited
from tests.conformance.suite.harness import (
    NOW,
    accepted,
    at,
    claim,
    group_status,
    ids,
    limit,
    register,
    submit,
    submit_all,
    try_submit,
)

pytestmark = pytest.mark.small_bounds

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
    kept = await group_status(store, "gpu")

    ignored = await limit(store, "gpu", 9, source=weaker)

    wanted = Limit(group="gpu", slots=9, source=weaker)
    in_force = Limit(group="gpu", slots=7, source=stronger)
    if stronger == weaker == Source.SUBMIT:
        first = Limit(group="gpu", slots=5, source=Source.SUBMIT)
        assert (kept.limit, replaced[0].in_force, ignored[0].in_force) == (5, first, first)
    elif stronger == weaker:
        assert (kept.limit, replaced, ignored) == (7, (), ())
        assert (await group_status(store, "gpu")).limit == 9
    else:
        assert (kept.limit, kept.source, replaced) == (7, stronger, ())
        assert ignored == (LimitIgnored(wanted=wanted, in_force=in_force),)
        assert (await group_status(store, "gpu")).limit == 7


async def test_a_stronger_source_with_the_same_value_takes_over(store: Store) -> None:
    await limit(store, "gpu", 5, source=Source.TASK)

    ignored = await limit(store, "gpu", 5, source=Source.OPERATOR)

    assert ignored == ()
    assert (await group_status(store, "gpu")).source is Source.OPERATOR


async def test_a_weaker_source_with_the_same_value_is_nothing_to_warn_of(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]]
) -> None:
    await limit(store, "gpu", 5, source=Source.CONFIGURATION)
    before = await snapshot()

    assert await limit(store, "gpu", 5, source=Source.TASK) == ()
    assert await limit(store, "gpu", 5, source=Source.SUBMIT) == ()
    assert await snapshot() == before


async def test_setting_the_present_value_again_changes_nothing(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]]
) -> None:
    await limit(store, "gpu", 5)
    before = await snapshot()

    await limit(store, "gpu", 5, by="ops")

    assert await snapshot() == before


async def test_after_a_removal_anyone_may_set_a_limit(store: Store) -> None:
    await limit(store, "gpu", 5, source=Source.OPERATOR)
    await at(store, NOW).set_limits([Unlimited(group="gpu")])

    await limit(store, "gpu", 2, source=Source.SUBMIT)

    assert ((await group_status(store, "gpu")).limit, (await group_status(store, "gpu")).source) == (2, Source.SUBMIT)


async def test_a_submits_limit_holds_for_the_job_itself(store: Store) -> None:
    own = Limit(group="gpu", slots=1, source=Source.SUBMIT)
    await submit_all(store, ["a", "b"], groups=("gpu",), limits=(own,))

    assert ids(await claim(store, capacity=5)) == ["a"]


async def test_a_submits_limit_only_fills_an_empty_one_and_is_told_otherwise(store: Store) -> None:
    first = Limit(group="gpu", slots=1, source=Source.SUBMIT)
    second = Limit(group="gpu", slots=4, source=Source.SUBMIT)
    await submit(store, "a", groups=("gpu",), limits=(first,))

    answer = accepted(await try_submit(store, "b", groups=("gpu",), limits=(second,)))

    assert answer.ignored == (LimitIgnored(wanted=second, in_force=first),)
    assert (await group_status(store, "gpu")).limit == 1


async def test_a_workers_limit_on_its_task_is_that_of_the_newest_worker(store: Store) -> None:
    await register(store, "w1", TaskOptions(name="work", limit=1))
    await register(store, "w2", TaskOptions(name="work", limit=3))
    await submit_all(store, "abcde")

    assert ((await group_status(store, "work")).limit, (await group_status(store, "work")).source) == (3, Source.TASK)
    assert len(await claim(store, capacity=9)) == 3


async def test_a_workers_limit_goes_when_the_newest_worker_names_none(store: Store) -> None:
    await register(store, "w1", TaskOptions(name="work", limit=1))
    await register(store, "w2", TaskOptions(name="work"))

    assert (await group_status(store, "work")).limit is None


async def test_a_workers_limit_against_an_operators_is_answered(store: Store) -> None:
    await limit(store, "work", 2)

    registered = await register(store, "w1", TaskOptions(name="work", limit=9))

    assert [(one.wanted.slots, one.in_force.slots) for one in registered.ignored] == [(9, 2)]
    assert (await group_status(store, "work")).limit == 2
