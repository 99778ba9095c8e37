"""Limits of the configuration: written with a worker's registration, or all at once; each change is recorded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from qo.errors import InvalidValue
from qo.store.contract import Store
from qo.values import Limit, LimitChange, LimitIgnored, Source, TaskOptions, Unlimited
from tests.conformance.suite.harness import (
    NOW,
    SECOND,
    at,
    claim,
    events_of,
    group_status,
    ids,
    limit,
    register,
    submit,
    submit_all,
)

pytestmark = pytest.mark.small_bounds


def configured(**slots: int) -> tuple[Limit, ...]:
    return tuple(Limit(group=group, slots=number, source=Source.CONFIGURATION) for group, number in slots.items())


async def limits_of(store: Store) -> dict[str, tuple[int | None, str]]:
    groups = await store.groups()
    return {each.group: (each.limit, each.source.name) for each in groups if each.source is not None}


async def audited(store: Store) -> list[tuple[str | None, str, str, dict[str, Any]]]:
    """Oldest first."""
    return [(entry.by, entry.action, entry.subject, entry.detail) for entry in reversed(await store.audit())]


# --- with a registration ----------------------------------------------------------------------------------------


async def test_a_registration_sets_the_configurations_limits_before_anything_is_claimed(store: Store) -> None:
    await submit_all(store, "abc", groups=("gpu",))

    answer = await register(store, "w1", "work", limits=configured(gpu=1))

    assert answer.changed == (LimitChange(limit=configured(gpu=1)[0], before=None),)
    assert ids(await claim(store, worker="w1", capacity=9)) == ["a"]


async def test_each_change_of_a_registration_is_recorded_with_what_there_was_and_the_worker(store: Store) -> None:
    await register(store, "w1", "work", limits=configured(gpu=2, api=7))
    await limit(store, "slow", 5, source=Source.TASK)

    answer = await register(store, "w2", "work", limits=configured(gpu=99, api=7, slow=5), now=NOW + SECOND)

    gpu, slow = configured(gpu=99, slow=5)
    assert answer.changed == (
        LimitChange(limit=gpu, before=configured(gpu=2)[0]),
        LimitChange(limit=slow, before=Limit(group="slow", slots=5, source=Source.TASK)),
    )
    assert await audited(store) == [
        ("w1", "limit", "gpu", {"limit": 2, "source": 2, "from": None, "from_source": None}),
        ("w1", "limit", "api", {"limit": 7, "source": 2, "from": None, "from_source": None}),
        ("w2", "limit", "gpu", {"limit": 99, "source": 2, "from": 2, "from_source": 2}),
        ("w2", "limit", "slow", {"limit": 5, "source": 2, "from": 5, "from_source": 4}),
    ]
    assert [detail for _, detail in await events_of(store, "gpu")] == [
        {"limit": 2, "source": 2},
        {"limit": 99, "source": 2},
    ]


async def test_a_registration_with_other_limits_or_none_removes_nobodys(store: Store) -> None:
    await register(store, "w1", "work", limits=configured(gpu=2, api=7))

    await register(store, "w2", "work", limits=configured(api=8))
    await register(store, "w3", "work")

    assert await limits_of(store) == {"gpu": (2, "CONFIGURATION"), "api": (8, "CONFIGURATION")}


async def test_a_registration_with_the_same_limits_changes_and_records_nothing(store: Store) -> None:
    await register(store, "w1", "work", limits=configured(gpu=2))
    before = await audited(store)

    answer = await register(store, "w1", "work", limits=configured(gpu=2), now=NOW + SECOND)

    assert (answer.changed, answer.ignored) == ((), ())
    assert await audited(store) == before
    assert len(await events_of(store, "gpu")) == 1


async def test_an_operators_limit_is_kept_and_the_configurations_is_answered_as_ignored(store: Store) -> None:
    await limit(store, "gpu", 3, by="ops")

    answer = await register(store, "w1", "work", limits=configured(gpu=9))

    in_force = Limit(group="gpu", slots=3, source=Source.OPERATOR)
    assert answer.changed == ()
    assert answer.ignored == (LimitIgnored(wanted=configured(gpu=9)[0], in_force=in_force),)
    assert await limits_of(store) == {"gpu": (3, "OPERATOR")}


async def test_the_configurations_limit_of_a_task_is_set_before_the_tasks_own_which_is_then_ignored(
    store: Store,
) -> None:
    answer = await register(store, "w1", TaskOptions(name="work", limit=5), limits=configured(work=2))

    assert [(one.wanted.source, one.wanted.slots) for one in answer.ignored] == [(Source.TASK, 5)]
    assert await limits_of(store) == {"work": (2, "CONFIGURATION")}


async def test_a_lowered_limit_of_a_registration_lets_holders_finish_and_nobody_in(store: Store) -> None:
    await register(store, "w1", "work", limits=configured(gpu=3))
    await submit_all(store, "abcd", groups=("gpu",))
    await claim(store, worker="w1", capacity=2)

    await register(store, "w2", "work", limits=configured(gpu=1))

    assert (await group_status(store, "gpu")).active == 2
    assert await claim(store, worker="w2", capacity=9) == []


@pytest.mark.parametrize("source", [source for source in Source if source is not Source.CONFIGURATION])
async def test_limits_of_a_registration_from_another_source_are_refused(store: Store, source: Source) -> None:
    wanted = Limit(group="gpu", slots=1, source=source)

    with pytest.raises(InvalidValue, match=f"'gpu' from the source {source.name.lower()}"):
        await register(store, "w1", "work", limits=(wanted,))

    assert await at(store, NOW).workers() == ()


# --- all at once ------------------------------------------------------------------------------------------------


async def test_exactly_these_adds_changes_and_removes_in_one_step_and_records_each(store: Store) -> None:
    await at(store, NOW).set_limits(configured(gpu=2, api=7, old=1, older=4))

    ignored = await at(store, NOW + SECOND).set_limits(
        configured(gpu=3, api=7, new=5), exactly=Source.CONFIGURATION, by="ops"
    )

    assert ignored == ()
    assert await limits_of(store) == {
        "gpu": (3, "CONFIGURATION"),
        "api": (7, "CONFIGURATION"),
        "new": (5, "CONFIGURATION"),
    }
    assert (await audited(store))[4:] == [
        ("ops", "limit", "gpu", {"limit": 3, "source": 2, "from": 2, "from_source": 2}),
        ("ops", "limit", "new", {"limit": 5, "source": 2, "from": None, "from_source": None}),
        ("ops", "limit", "old", {"limit": None, "source": 2, "from": 1, "from_source": 2}),
        ("ops", "limit", "older", {"limit": None, "source": 2, "from": 4, "from_source": 2}),
    ]


async def test_exactly_none_removes_all_of_the_configurations_and_nobody_elses(store: Store) -> None:
    await at(store, NOW).set_limits(configured(gpu=2))
    for source in Source:
        if source is not Source.CONFIGURATION:
            await limit(store, f"of-{source.name}", 1, source=source)
    others = {name: found for name, found in (await limits_of(store)).items() if name != "gpu"}

    await at(store, NOW).set_limits([], exactly=Source.CONFIGURATION)

    assert len(others) == 4
    assert await limits_of(store) == others


async def test_exactly_these_leaves_an_operators_limit_of_a_group_it_names_and_of_one_it_does_not(
    store: Store,
) -> None:
    await limit(store, "gpu", 1)
    await limit(store, "api", 1)

    (ignored,) = await at(store, NOW).set_limits(configured(gpu=9), exactly=Source.CONFIGURATION)

    assert (ignored.wanted.slots, ignored.in_force.slots) == (9, 1)
    assert await limits_of(store) == {"gpu": (1, "OPERATOR"), "api": (1, "OPERATOR")}


async def test_what_is_there_already_changes_nothing(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]]
) -> None:
    await at(store, NOW).set_limits(configured(gpu=2, api=7))
    before = await snapshot()

    await at(store, NOW).set_limits(configured(gpu=2, api=7), exactly=Source.CONFIGURATION, by="ops")

    assert await snapshot() == before


async def test_a_removed_limit_lets_in_who_waited_for_it_in_the_same_step(store: Store) -> None:
    await at(store, NOW).set_limits(configured(gpu=0))
    await submit(store, "a", groups=("gpu",))
    blocked = await claim(store)

    await at(store, NOW).set_limits([], exactly=Source.CONFIGURATION)

    assert blocked == []
    assert ids(await claim(store)) == ["a"]


async def test_limits_of_another_source_among_exactly_these_are_refused(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]]
) -> None:
    await at(store, NOW).set_limits(configured(gpu=2))
    before = await snapshot()
    wanted = [Limit(group="api", slots=1, source=Source.TIER)]

    with pytest.raises(InvalidValue, match="'api' from the source tier"):
        await at(store, NOW).set_limits(wanted, exactly=Source.CONFIGURATION)
    with pytest.raises(InvalidValue, match="source is 'configuration'"):
        await at(store, NOW).set_limits([], exactly="configuration")  # type: ignore[arg-type] # refused when it runs

    assert await snapshot() == before


# --- removing one -----------------------------------------------------------------------------------------------


async def test_a_limit_is_removed_only_if_it_is_of_the_source_that_is_named(store: Store) -> None:
    await limit(store, "gpu", 2)
    await limit(store, "api", 2, source=Source.TASK)

    for group in ("gpu", "api", "nobody"):
        await at(store, NOW).set_limits([Unlimited(group=group, only=Source.TASK)], by="code")

    assert await limits_of(store) == {"gpu": (2, "OPERATOR")}
    assert (await audited(store))[1:] == [
        ("code", "limit", "api", {"limit": None, "source": 4, "from": 2, "from_source": 4})
    ]
