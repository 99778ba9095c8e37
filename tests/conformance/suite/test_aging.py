"""Whoever has waited an hour moves up one named level, never above high."""

from __future__ import annotations

import pytest

from qo.store.contract import Store
from tests.conformance.suite.harness import (
    HOUR,
    LEASE,
    MINUTE,
    NOW,
    age,
    at,
    claim,
    events_of,
    hand_back,
    ids,
    line,
    pass_time,
    submit,
)

pytestmark = pytest.mark.small_bounds


async def test_an_hour_in_line_moves_a_job_up_one_level(store: Store) -> None:
    await submit(store, "low", priority=70)
    await submit(store, "normal", priority=51, now=NOW + HOUR)

    aged = await age(store, now=NOW + HOUR)

    assert aged == ["low"]
    assert await line(store) == ["low", "normal"]


async def test_less_than_the_period_changes_nothing(store: Store) -> None:
    await submit(store, "low", priority=70)
    await submit(store, "normal", priority=51)

    aged = await age(store, now=NOW + HOUR - 1)

    assert aged == []
    assert await line(store) == ["normal", "low"]


async def test_each_further_hour_moves_it_up_again_until_high(store: Store) -> None:
    await submit(store, "last", priority=99)
    levels = []
    for hour in range(1, 8):
        for job_id in await age(store, now=NOW + hour * HOUR):
            assert job_id == "last"
        levels = [detail["priority"] for kind, detail in await events_of(store, "last") if kind == "aged"]

    assert levels == [90, 70, 50, 20]


@pytest.mark.parametrize("priority", [0, 10, 20])
async def test_high_and_urgent_jobs_do_not_age(store: Store, priority: int) -> None:
    await submit(store, "a", priority=priority)

    assert await age(store, now=NOW + HOUR) == []
    assert await age(store, now=NOW + 5 * HOUR) == []


async def test_an_aged_job_never_passes_an_urgent_one(store: Store) -> None:
    await submit(store, "old", priority=50)
    for hour in range(1, 6):
        await age(store, now=NOW + hour * HOUR)
    await submit(store, "urgent", priority=10, now=NOW + 6 * HOUR)

    assert await line(store) == ["urgent", "old"]


async def test_aging_twice_within_the_period_counts_once(store: Store) -> None:
    await submit(store, "low", priority=70)

    first = await age(store, now=NOW + HOUR)
    second = await age(store, now=NOW + HOUR + MINUTE)

    assert (first, second) == (["low"], [])


async def test_an_aged_job_keeps_its_place_among_those_of_its_new_level(store: Store) -> None:
    await submit(store, "low", priority=70)
    await submit(store, "before", priority=50, now=NOW + MINUTE)

    await age(store, now=NOW + HOUR)

    assert await line(store) == ["low", "before"]


async def test_the_longest_in_line_age_first(store: Store) -> None:
    await submit(store, "b", priority=70, now=NOW)
    await submit(store, "a", priority=90, now=NOW + MINUTE)
    await submit(store, "c", priority=70, now=NOW + 2 * MINUTE)

    assert await age(store, now=NOW + 2 * HOUR) == ["b", "a", "c"]


async def test_aging_changes_the_order_only(store: Store) -> None:
    await submit(store, "low", priority=70)

    await age(store, now=NOW + HOUR)

    job = await store.job("low")
    assert job.priority == 70
    assert "priority:70" in job.groups


async def test_a_paused_background_job_that_ages_does_not_slip_out(store: Store) -> None:
    await at(store, NOW).set_paused("priority:90", True)
    await submit(store, "background", priority=90)
    await submit(store, "normal", priority=50)

    for hour in range(1, 6):
        await age(store, now=NOW + hour * HOUR)

    assert await line(store) == ["background", "normal"]
    assert ids(await claim(store, capacity=5, now=NOW + 6 * HOUR)) == ["normal"]
    await at(store, NOW + 6 * HOUR).set_paused("priority:90", False)
    assert ids(await claim(store, capacity=5, now=NOW + 6 * HOUR)) == ["background"]


async def test_a_priority_set_by_a_person_replaces_what_aging_did(store: Store) -> None:
    await submit(store, "low", priority=70)
    await submit(store, "normal", priority=60)
    await age(store, now=NOW + HOUR)

    await at(store, NOW + HOUR).set_priority(90, job_id="low")

    assert await line(store) == ["normal", "low"]


async def test_an_aged_job_that_comes_back_keeps_its_key_and_waits_anew(store: Store) -> None:
    await submit(store, "low", priority=70)
    await age(store, now=NOW + HOUR)
    (lease,) = await claim(store, now=NOW + HOUR)
    await submit(store, "normal", priority=50, now=NOW + HOUR)

    await hand_back(store, lease, now=NOW + HOUR + MINUTE)
    aged_too_soon = await age(store, now=NOW + 2 * HOUR)

    assert aged_too_soon == ["normal"]
    await at(store, NOW + 2 * HOUR).set_priority(50, job_id="normal")
    assert await line(store) == ["low", "normal"]


async def test_only_jobs_in_line_age(store: Store) -> None:
    await submit(store, "runs", priority=70)
    await claim(store)
    await submit(store, "scheduled", priority=70, run_at_ms=NOW + 9 * HOUR)
    await submit(store, "waits", priority=70, parent="p", phase=2)

    assert await age(store, now=NOW + HOUR) == []


async def test_time_before_joining_the_line_does_not_count(store: Store) -> None:
    await submit(store, "later", priority=70, run_at_ms=NOW + 50 * MINUTE)
    await pass_time(store, since=NOW, until=NOW + 50 * MINUTE)

    assert await age(store, now=NOW + HOUR) == []
    assert await age(store, now=NOW + HOUR + 50 * MINUTE) == ["later"]


async def test_an_expired_lease_begins_the_wait_anew(store: Store) -> None:
    await submit(store, "low", priority=70)
    await claim(store)
    await pass_time(store, since=NOW, until=NOW + LEASE)

    assert await age(store, now=NOW + HOUR) == []
    assert await age(store, now=NOW + LEASE + HOUR) == ["low"]
