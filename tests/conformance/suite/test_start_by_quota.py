"""A job that fails because it has not started by its `start_by` gives its quota back."""

from __future__ import annotations

import pytest

from qo.job import moment
from qo.store.contract import Store
from tests.conformance.suite.harness import (
    DAY,
    HOUR,
    MIDNIGHT,
    MINUTE,
    NOW,
    acquire,
    at,
    catch_up,
    claim,
    group_status,
    ids,
    kinds_of,
    limit,
    line,
    register,
    submit,
)
from tests.conformance.suite.overdue_jobs import LATE, ONE_A_DAY, SPAN, WITHIN, one_claim


async def used_today(store: Store, *, now: int) -> int:
    return (await at(store, now).usage("u")).used_today


async def test_it_gives_its_quota_back_and_the_users_deferred_jobs_move_forward(store: Store) -> None:
    await submit(store, "late", user="u", standing=ONE_A_DAY, **WITHIN)
    await submit(store, "tomorrow", user="u")
    await submit(store, "after", user="u")

    await catch_up(store, now=NOW + SPAN)

    assert await line(store) == ["tomorrow"]
    assert (await store.job("after")).run_at == moment(MIDNIGHT + DAY)
    assert await kinds_of(store, "after") == ["scheduled", "rescheduled"]
    assert await used_today(store, now=NOW + SPAN) == 1


async def test_a_deferred_job_that_is_overdue_gives_its_day_back(store: Store) -> None:
    await submit(store, "today", user="u", standing=ONE_A_DAY)
    await submit(store, "late", user="u", **WITHIN)
    await submit(store, "after", user="u")

    await catch_up(store, now=NOW + SPAN)

    assert (await store.job("after")).run_at == moment(MIDNIGHT + DAY)


async def test_a_day_that_is_over_gives_nothing_back(store: Store) -> None:
    await submit(store, "late", user="u", standing=ONE_A_DAY, start_by_ms=MIDNIGHT + DAY, overdue_message=LATE)

    await catch_up(store, now=MIDNIGHT + DAY)

    assert await used_today(store, now=NOW) == 1


@pytest.mark.bounded_by(portion=1, examine=256)
async def test_a_claim_that_gave_quota_back_says_that_there_may_be_more(store: Store) -> None:
    await submit(store, "first", **WITHIN)
    await submit(store, "late", user="u", standing=ONE_A_DAY, **WITHIN)
    await submit(store, "tomorrow", user="u")

    claimed = await one_claim(store, now=NOW + SPAN)
    assert (ids(claimed.leases), claimed.more) == ([], True)
    assert await line(store) == ["tomorrow"]

    assert ids(await claim(store, now=NOW + SPAN)) == ["tomorrow"]


async def test_a_hand_over_gives_quota_back_when_it_is_over(store: Store) -> None:
    await limit(store, "api", 1)
    await register(store, "w1", "work", capacity=3, lifetime_ms=HOUR)
    first = await acquire(store, "first", "api")
    await submit(store, "late", groups=("api",), user="u", standing=ONE_A_DAY, **WITHIN)
    await submit(store, "tomorrow", user="u", groups=("api",), priority=10)
    await acquire(store, "second", "api", wait_ms=HOUR)

    await at(store, NOW + SPAN).release([("first", first.token)])

    assert await line(store) == ["tomorrow"]
    assert [slot.holder for slot in (await group_status(store, "api")).slots] == ["second"]


async def test_a_retry_by_hand_is_charged_again_and_a_cancel_gives_it_back_once(store: Store) -> None:
    await submit(store, "late", user="u", standing=ONE_A_DAY, **WITHIN)
    await catch_up(store, now=NOW + SPAN)
    assert await used_today(store, now=NOW + SPAN) == 0

    await at(store, NOW + MINUTE).retry("late")
    assert await used_today(store, now=NOW + MINUTE) == 1
    await submit(store, "today", user="u", now=NOW + MINUTE)
    await at(store, NOW + MINUTE).cancel(job_id="late")

    assert await used_today(store, now=NOW + MINUTE) == 1, "the other one moved forward into it"
    assert (await store.usage("u")).deferred == 0


async def test_a_retry_on_a_later_day_costs_nothing_if_the_first_day_was_kept(store: Store) -> None:
    await submit(store, "late", user="u", standing=ONE_A_DAY, start_by_ms=MIDNIGHT + DAY, overdue_message=LATE)
    await catch_up(store, now=MIDNIGHT + DAY)

    await at(store, MIDNIGHT + DAY).retry("late")

    assert await used_today(store, now=MIDNIGHT + DAY) == 0
