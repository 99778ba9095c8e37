"""The queue's cap: the door that users come through is guarded."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from qo.job import State, moment
from qo.store.contract import Store
from qo.values import Accepted, Limit, Refusal, RefusalReason, Source
from tests.conformance.suite.harness import (
    DAY,
    HOUR,
    LEASE,
    MIDNIGHT,
    MINUTE,
    NOW,
    SECOND,
    accepted,
    at,
    claim,
    fail,
    hand_back,
    line,
    numbered,
    pass_time,
    standing,
    start,
    submission,
    submit,
    submit_all,
    succeed,
    try_submit,
)

NEXT_MIDNIGHT = MIDNIGHT + DAY
BEFORE_MIDNIGHT = NEXT_MIDNIGHT - 30 * SECOND


async def test_a_submit_is_refused_when_so_many_are_in_line(store: Store) -> None:
    await submit_all(store, "abc", cap=3)

    answer = await try_submit(store, "d", cap=3)

    assert answer == Refusal(id="d", reason=RefusalReason.FULL, waiting=3, cap=3)
    assert await line(store) == ["a", "b", "c"]


async def test_a_refused_submit_changes_nothing_at_all(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]]
) -> None:
    await submit_all(store, "abc", user="u0")
    before = await snapshot()

    answer = await try_submit(
        store,
        "d",
        cap=3,
        user="u1",
        project="p1",
        parent="new",
        phase=1,
        by="u1",
        unique="k",
        groups=("gpu",),
        limits=(Limit(group="gpu", slots=1, source=Source.SUBMIT),),
        standing=standing(user_limit=2, project_limit=1, daily_quota=5),
    )

    assert isinstance(answer, Refusal)
    assert await snapshot() == before


async def test_a_refused_submit_does_not_move_deferred_jobs_forward(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]]
) -> None:
    """The refused standing would have had room for them."""
    await submit_all(store, "abc", user="u1", standing=standing(daily_quota=1))
    before = await snapshot()

    answer = await try_submit(store, "d", user="u1", standing=standing("cto", daily_quota=9), cap=1)

    assert isinstance(answer, Refusal)
    assert await snapshot() == before


@pytest.mark.small_bounds
async def test_a_hundred_simultaneous_submits_at_99_of_100_admit_exactly_one(store: Store) -> None:
    await submit_all(store, numbered("before", 99))

    answers = await asyncio.gather(*(try_submit(store, f"j{number}", cap=100) for number in range(100)))

    assert sum(isinstance(answer, Accepted) for answer in answers) == 1
    assert {answer.waiting for answer in answers if isinstance(answer, Refusal)} == {100}
    assert (await store.line(limit=0)).queued == 100


async def test_in_one_submit_each_is_admitted_or_refused_on_its_own(store: Store) -> None:
    listed = [
        submission("a", cap=2),
        submission("b", cap=2),
        submission("c", cap=2),
        submission("uncapped"),
        submission("later", cap=2, run_at_ms=NOW + HOUR),
    ]

    answers = await at(store, NOW).submit(listed)

    assert [isinstance(answer, Accepted) for answer in answers] == [True, True, False, True, True]


@pytest.mark.parametrize(
    "fields",
    [
        {"run_at_ms": NOW + HOUR},
        {"parent": "app", "phase": 2},
        {"user": "u1"},
    ],
    ids=["delayed", "waiting for a phase", "deferred"],
)
async def test_a_job_that_does_not_join_the_line_now_is_never_refused(
    store: Store, fields: dict[str, int | str] | dict[str, int] | dict[str, str]
) -> None:
    await submit(store, "a", user="u1", standing=standing(daily_quota=1))

    job = await submit(store, "b", cap=1, **fields)

    assert job.state in (State.SCHEDULED, State.WAITING)


async def test_a_job_whose_time_has_passed_already_joins_now_and_may_be_refused(store: Store) -> None:
    await submit(store, "a")

    assert isinstance(await try_submit(store, "b", cap=1, run_at_ms=NOW), Refusal)
    assert isinstance(await try_submit(store, "c", cap=1, run_at_ms=NOW - HOUR), Refusal)


@pytest.mark.parametrize("delay_ms", [1, 10, MINUTE - 1])
async def test_a_job_delayed_by_less_than_a_minute_may_be_refused(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]], delay_ms: int
) -> None:
    await submit(store, "a")
    before = await snapshot()

    answer = await try_submit(store, "b", cap=1, run_at_ms=NOW + delay_ms)

    assert answer == Refusal(id="b", reason=RefusalReason.FULL, waiting=1, cap=1)
    assert await snapshot() == before


async def test_a_job_delayed_by_a_minute_is_never_refused(store: Store) -> None:
    await submit(store, "a")

    assert (await submit(store, "b", cap=1, run_at_ms=NOW + MINUTE)).state is State.SCHEDULED


async def test_below_the_cap_a_short_delay_is_kept(store: Store) -> None:
    job = await submit(store, "a", cap=1, run_at_ms=NOW + 10)

    assert (job.state, job.run_at) == (State.SCHEDULED, moment(NOW + 10))


async def test_a_phase_that_waits_is_never_refused_for_its_short_delay(store: Store) -> None:
    await submit(store, "a")

    assert (await submit(store, "b", cap=1, parent="app", phase=2, run_at_ms=NOW + 10)).state is State.WAITING


async def test_a_job_deferred_to_a_midnight_that_is_near_is_never_refused(store: Store) -> None:
    await submit(store, "a", user="u1", standing=standing(daily_quota=1), now=BEFORE_MIDNIGHT)

    job = await submit(store, "b", user="u1", cap=1, now=BEFORE_MIDNIGHT)

    assert (job.state, job.deferred, job.run_at) == (State.SCHEDULED, True, moment(NEXT_MIDNIGHT))


async def test_a_short_delay_over_midnight_into_a_full_day_is_deferred_and_not_refused(store: Store) -> None:
    await submit_all(store, "ab", user="u1", standing=standing(daily_quota=1), now=BEFORE_MIDNIGHT)

    job = await submit(store, "c", user="u1", cap=1, run_at_ms=NEXT_MIDNIGHT + SECOND, now=BEFORE_MIDNIGHT)

    assert (job.deferred, job.run_at) == (True, moment(NEXT_MIDNIGHT + DAY))


@pytest.mark.parametrize(("deferred", "is_refused"), [("b", True), ("bc", True), ("bcd", False), ("bcde", False)])
async def test_a_better_standing_fills_the_next_day_before_the_cap_is_looked_at(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]], deferred: str, is_refused: bool
) -> None:
    """With two a day, "b" joins now, "c" and "d" have the next day."""
    await submit_all(store, f"a{deferred}", user="u1", standing=standing(daily_quota=1), now=BEFORE_MIDNIGHT)
    before = await snapshot()

    answer = await try_submit(
        store,
        "last",
        user="u1",
        standing=standing("cto", daily_quota=2),
        cap=2,
        run_at_ms=NEXT_MIDNIGHT + SECOND,
        now=BEFORE_MIDNIGHT,
    )

    if is_refused:
        assert answer == Refusal(id="last", reason=RefusalReason.FULL, waiting=2, cap=2)
        assert await snapshot() == before
    else:
        assert accepted(answer).job.deferred


async def test_jobs_that_run_are_not_in_line(store: Store) -> None:
    await submit_all(store, "abc")
    await claim(store, capacity=2)

    assert isinstance(await try_submit(store, "d", cap=2), Accepted)
    assert isinstance(await try_submit(store, "e", cap=2), Refusal)


async def test_jobs_in_line_count_whoever_they_belong_to_and_blocked_or_not(store: Store) -> None:
    await at(store, NOW).set_paused("user:u1", True)
    await submit_all(store, "ab", user="u1")

    assert isinstance(await try_submit(store, "c", user="u2", cap=2), Refusal)


async def test_jobs_accepted_before_come_back_whatever_the_cap(store: Store) -> None:
    await submit_all(store, ["back", "expires", "fails"], cap=3)
    back, _, fails = await claim(store, capacity=3)
    await submit_all(store, "abc", cap=3)

    await hand_back(store, back)
    await fail(store, fails)
    await at(store, NOW).retry("fails")
    await pass_time(store, since=NOW, until=NOW + LEASE)

    assert await line(store) == ["back", "expires", "a", "b", "c", "fails"]


async def test_released_phases_join_whatever_the_cap(store: Store) -> None:
    one = await start(store, "one", parent="app", phase=1)
    await submit(store, "two", parent="app", phase=2)
    await submit(store, "other", cap=1)

    await succeed(store, one)

    assert await line(store) == ["other", "two"]


async def test_a_cap_of_zero_admits_nothing_new(store: Store) -> None:
    assert isinstance(await try_submit(store, "a", cap=0), Refusal)
    assert (await store.line(limit=0)).queued == 0


async def test_jobs_that_come_due_join_before_the_cap_is_looked_at(store: Store) -> None:
    await submit(store, "later", run_at_ms=NOW + 1)

    answer = await try_submit(store, "b", cap=1, now=NOW + 1)

    assert isinstance(answer, Refusal)
    assert await line(store) == ["later"]


async def test_a_known_id_and_a_unique_key_are_answered_before_the_cap(store: Store) -> None:
    await submit(store, "a", unique="k")

    same_id, same_key = await try_submit(store, "a", cap=1), await try_submit(store, "b", unique="k", cap=1)

    assert (accepted(same_id).known, accepted(same_key).known) == (True, True)


async def test_quota_is_looked_at_before_the_cap(store: Store) -> None:
    """Over both, a job is deferred and not refused."""
    await submit(store, "a", user="u1", standing=standing(daily_quota=1), cap=1)

    job = await submit(store, "b", user="u1", cap=1)

    assert job.state is State.SCHEDULED
