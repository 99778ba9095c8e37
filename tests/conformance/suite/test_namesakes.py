"""Two workers of one name: the store tells them apart by their instances, and never mixes them up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from qo.errors import InvalidValue
from qo.job import moment
from qo.store.contract import Store
from qo.values import Keep, Limit, Registered, Renewal, Source, TaskOptions, UpkeepRules
from tests.conformance.suite.harness import (
    LEASE,
    MINUTE,
    NOW,
    SECOND,
    at,
    claim,
    group_status,
    limit,
    register,
    start,
    submit,
)

pytestmark = pytest.mark.small_bounds


async def registered_as(store: Store, name: str = "w1", *, now: int = NOW) -> str | None:
    """The instance that has the name."""
    return next((worker.instance for worker in await at(store, now).workers() if worker.name == name), None)


async def test_a_live_namesake_is_answered_with_where_it_runs_and_when_it_was_heard_of(store: Store) -> None:
    await register(store, "w1", "build", capacity=4, instance="one", host="h1", pid=7)
    await at(store, NOW + 10 * SECOND).renew([], worker="w1", instance="one")
    await start(store, "a", task="build", worker="w1")

    answer = await register(store, "w1", "mail", instance="two", now=NOW + 15 * SECOND)

    (namesake,) = await at(store, NOW + 15 * SECOND).workers()
    assert answer == Registered(namesake=namesake, now_ms=NOW + 15 * SECOND)
    assert answer.namesake is not None
    known = answer.namesake
    assert (known.instance, known.host, known.pid, known.capacity, known.running) == ("one", "h1", 7, 4, 1)
    assert (known.registered_at, known.heard_at) == (moment(NOW), moment(NOW + 10 * SECOND))


async def test_a_namesake_that_is_told_so_has_changed_nothing(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]]
) -> None:
    await register(store, "w1", TaskOptions(name="work", groups=("gpu",), limit=2), instance="one")
    before = await snapshot()

    tasks = (TaskOptions(name="work", limit=5), TaskOptions(name="x"))
    await register(store, "w1", *tasks, instance="two", limits=configured(api=9))

    assert await snapshot() == before


async def test_of_many_that_register_a_name_at_once_one_has_it_and_all_others_are_told_of_that_one(
    store: Store,
) -> None:
    answers = await asyncio.gather(*(register(store, "w1", "work", instance=f"i{number}") for number in range(12)))

    winner = await registered_as(store)
    assert [answer.namesake for answer in answers].count(None) == 1
    assert {answer.namesake.instance for answer in answers if answer.namesake is not None} == {winner}


async def test_a_namesake_that_has_not_been_heard_of_for_its_lifetime_is_followed(store: Store) -> None:
    await register(store, "w1", "work", instance="one", lifetime_ms=30_000)

    early = await register(store, "w1", "work", instance="two", now=NOW + 29_999)
    late = await register(store, "w1", "work", instance="two", now=NOW + 30_000)

    assert (early.namesake is None, late.namesake) == (False, None)
    assert await registered_as(store, now=NOW + 30_000) == "two"


async def test_an_instance_that_is_known_to_be_dead_is_replaced_by_one_of_those_that_name_it(store: Store) -> None:
    await register(store, "w1", "work", instance="dead")

    first = await register(store, "w1", "work", instance="one", replaces="dead")
    second = await register(store, "w1", "work", instance="two", replaces="dead")

    assert first.namesake is None
    assert second.namesake is not None
    assert (await registered_as(store), second.namesake.instance) == ("one", "one")


async def test_the_same_instance_may_register_again(store: Store) -> None:
    await register(store, "w1", "work", instance="one")

    again = await register(store, "w1", "work", "mail", capacity=3, instance="one")

    (worker,) = await at(store, NOW).workers()
    assert (again.namesake, worker.tasks, worker.capacity) == (None, ("work", "mail"), 3)


async def test_who_leaves_takes_only_its_own_registration_with_it(store: Store) -> None:
    await register(store, "w1", "work", instance="one")
    await register(store, "w1", "work", instance="two", replaces="one")

    left = await register(store, "w1", instance="one")

    assert left == Registered(now_ms=NOW)
    assert await registered_as(store) == "two"
    await register(store, "w1", instance="two")
    assert await registered_as(store) is None


async def test_a_renewal_keeps_its_own_registration_and_no_namesakes(store: Store) -> None:
    await register(store, "w1", "work", instance="one", lifetime_ms=30_000)

    other = (await at(store, NOW + 20 * SECOND).renew([], worker="w1", instance="two")).registration
    assert other is not None
    after_other = (await at(store, NOW + 20 * SECOND).workers())[0]
    own = (await at(store, NOW + 20 * SECOND).renew([], worker="w1", instance="one")).registration
    assert own is not None
    after_own = (await at(store, NOW + 20 * SECOND).workers())[0]

    assert (other.holder, other.token, other.lost, other.expires_at) == ("w1", "two", True, None)
    assert (after_other.heard_at, after_other.expires_at) == (moment(NOW), moment(NOW + 30_000))
    assert (own.holder, own.token, own.lost, own.expires_at) == ("w1", "one", False, moment(NOW + 50 * SECOND))
    assert (after_own.heard_at, after_own.expires_at) == (moment(NOW + 20 * SECOND), moment(NOW + 50 * SECOND))


async def test_leases_are_kept_whatever_is_answered_about_the_registration(store: Store) -> None:
    await submit(store, "a")
    (lease,) = await claim(store, worker="w1")

    renewed = await at(store, NOW).renew(
        [Renewal(holder="a", token=lease.token, lease_ms=LEASE)], worker="w1", instance="one"
    )

    assert [(held.holder, held.lost) for held in renewed.held] == [("a", False)]
    assert renewed.registration is not None
    assert (renewed.registration.holder, renewed.registration.lost) == ("w1", True)


async def test_a_registration_past_its_end_that_nobody_took_is_renewed(store: Store) -> None:
    await register(store, "w1", "work", instance="one", lifetime_ms=30_000)

    held = (await at(store, NOW + MINUTE).renew([], worker="w1", instance="one")).registration
    assert held is not None

    assert not held.lost
    assert await registered_as(store, now=NOW + MINUTE) == "one"


async def test_a_worker_that_was_forgotten_is_told_and_may_register_again(store: Store) -> None:
    await register(store, "w1", "work", instance="one", lifetime_ms=30_000)
    await at(store, NOW + MINUTE).upkeep(UpkeepRules(keep=Keep(ms=0, jobs=0, events=0, audit=0)))

    held = (await at(store, NOW + MINUTE).renew([], worker="w1", instance="one")).registration
    assert held is not None
    await register(store, "w1", "work", instance="one", now=NOW + MINUTE)

    assert held.lost
    assert await registered_as(store, now=NOW + MINUTE) == "one"


# --- when it was heard of ---------------------------------------------------------------------------------------


async def test_of_a_job_in_line_the_worker_of_its_task_that_was_heard_of_last_is_told_live_or_not(store: Store) -> None:
    await register(store, "w1", "build", lifetime_ms=30_000)
    await register(store, "w2", "build", lifetime_ms=30_000, now=NOW + 5 * SECOND)
    await register(store, "w3", "mail", lifetime_ms=30_000, now=NOW + 9 * SECOND)
    await submit(store, "a", task="build")

    told = await at(store, NOW + MINUTE).blockers("a")

    assert (told.has_worker, told.worker, told.heard_at) == (False, "w2", moment(NOW + 5 * SECOND))


async def test_of_workers_that_were_heard_of_in_the_same_moment_the_first_by_name_is_told(store: Store) -> None:
    for name in ("w2", "w1", "w3"):
        await register(store, name, "build")
    await submit(store, "a", task="build")

    assert (await at(store, NOW).blockers("a")).worker == "w1"


async def test_of_a_job_that_is_held_its_own_worker_is_told(store: Store) -> None:
    await register(store, "w1", "build")
    await register(store, "w2", "build", now=NOW + SECOND)
    await start(store, "a", task="build", worker="w1")
    await start(store, "b", worker="never-registered")

    own, unknown = await at(store, NOW + SECOND).blockers("a"), await at(store, NOW + SECOND).blockers("b")

    assert (own.worker, own.heard_at) == ("w1", moment(NOW))
    assert (unknown.worker, unknown.heard_at) == (None, None)


async def test_without_a_worker_there_is_nothing_to_tell(store: Store) -> None:
    await submit(store, "a")

    told = await at(store, NOW).blockers("a")

    assert (told.has_worker, told.worker, told.heard_at) == (False, None, None)


@pytest.mark.parametrize("field", ["instance", "replaces"])
@pytest.mark.parametrize("value", ["a\0b", "x" * 201, 7])
async def test_a_bad_instance_is_refused_by_its_field(store: Store, field: str, value: Any) -> None:
    with pytest.raises(InvalidValue, match=field):
        await register(store, "w1", "work", **{field: value})

    assert await at(store, NOW).workers() == ()


async def test_a_bad_instance_in_a_renewal_is_refused(store: Store) -> None:
    with pytest.raises(InvalidValue, match="instance"):
        await at(store, NOW).renew([], worker="w1", instance="a\0b")


# --- the configuration's limits ---------------------------------------------------------------------------------


def configured(**slots: int) -> tuple[Limit, ...]:
    return tuple(Limit(group=group, slots=number, source=Source.CONFIGURATION) for group, number in slots.items())


async def test_a_namesake_does_not_change_limits(store: Store) -> None:
    await register(store, "w1", "work", instance="one", limits=configured(gpu=2))

    await register(store, "w1", "work", instance="two", limits=configured(gpu=99))

    assert (await group_status(store, "gpu")).limit == 2


async def test_leaving_changes_no_limits(store: Store) -> None:
    await register(store, "w1", "work", instance="one", limits=configured(gpu=2))
    await limit(store, "api", 1)

    await register(store, "w1", instance="one", limits=configured(gpu=99, api=99))

    assert ((await group_status(store, "gpu")).limit, (await group_status(store, "api")).limit) == (2, 1)
