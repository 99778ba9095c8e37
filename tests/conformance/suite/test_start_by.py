"""`start_by`: a job that has not started by then fails and spends no attempt."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from qo.errors import InvalidTransition
from qo.job import JobError, State, moment
from qo.store.contract import Store
from qo.values import Refusal, RefusalReason
from tests.conformance.suite.harness import (
    DAY,
    HOUR,
    MINUTE,
    NOW,
    SECOND,
    TODAY,
    acquire,
    ask_to_confirm,
    at,
    catch_up,
    claim,
    events_of,
    group_status,
    hand_back,
    ids,
    kinds_of,
    limit,
    line,
    register,
    retry_later,
    start,
    state,
    submit,
    submit_all,
    succeed,
    try_submit,
)
from tests.conformance.suite.overdue_jobs import BY, LATE, ONE_A_DAY, SPAN, WITHIN, given_either_way, one_claim

small_bounds = pytest.mark.small_bounds

Snapshot = Callable[[], Awaitable[dict[str, Any]]]


# --- when it fails ----------------------------------------------------------------------------------------------


@given_either_way
async def test_a_job_that_has_not_started_by_then_fails_with_its_message(
    store: Store, start_by: dict[str, Any]
) -> None:
    await submit(store, "a", **start_by)

    assert await catch_up(store, now=NOW + SPAN - 1) == []
    assert await catch_up(store, now=NOW + SPAN) == ["a"]

    job = await store.job("a")
    assert (job.state, job.attempts, job.error) == (State.FAILED, 0, JobError(message=LATE))
    assert (job.finished_at, job.started_at) == (moment(NOW + SPAN), None)
    assert (await events_of(store, "a"))[-1] == ("failed", {"message": LATE})


@given_either_way
async def test_a_job_that_starts_in_time_runs_on(store: Store, start_by: dict[str, Any]) -> None:
    await submit(store, "a", **start_by)
    (lease,) = await claim(store, now=NOW + SPAN - 1)

    assert await catch_up(store, now=NOW + SPAN) == []
    await succeed(store, lease, now=NOW + MINUTE)

    assert await state(store, "a") is State.SUCCEEDED


async def test_it_fails_in_whatever_state_it_waits(store: Store) -> None:
    await submit(store, "queued", **WITHIN)
    await submit(store, "delayed", delay_ms=SPAN - 1, **WITHIN)
    await submit(store, "phase", parent="p", phase=2, **WITHIN)
    await submit(store, "today", user="u", standing=ONE_A_DAY)
    await submit(store, "deferred", user="u", **WITHIN)

    assert await catch_up(store, now=NOW + SPAN) == ["queued", "delayed", "phase", "deferred"]

    failed = [await state(store, job_id) for job_id in ("queued", "delayed", "phase", "deferred")]
    assert failed == [State.FAILED] * 4
    assert await kinds_of(store, "delayed") == ["scheduled", "failed"], "it does not join first"


async def test_overdue_jobs_fail_in_the_order_of_their_times_whichever_way_they_were_given(store: Store) -> None:
    await submit(store, "second", start_within_ms=2 * SECOND, overdue_message=LATE)
    await submit(store, "third", start_by_ms=NOW + 2 * SECOND, overdue_message=LATE)
    await submit(store, "first", start_by_ms=NOW + SECOND, overdue_message=LATE)

    assert await catch_up(store, now=NOW + MINUTE) == ["first", "second", "third"]


@pytest.mark.bounded_by(portion=2, examine=256)
async def test_overdue_jobs_fail_in_portions(store: Store) -> None:
    await submit_all(store, ["a", "b", "c"], **WITHIN)

    first = await at(store, NOW + SPAN).catch_up()
    assert (first.ids, first.more) == (("a", "b"), True)
    second = await at(store, NOW + SPAN).catch_up()
    assert (second.ids, second.more) == (("c",), False)


async def test_a_submit_fails_overdue_jobs_before_it_looks_at_the_cap(store: Store) -> None:
    await submit(store, "late", **WITHIN)

    await submit(store, "next", cap=1, now=NOW + SPAN)

    assert await line(store) == ["next"]


async def test_a_span_moves_with_a_clock_that_falls_back_and_a_time_does_not(store: Store) -> None:
    await catch_up(store)
    await submit(store, "span", start_within_ms=MINUTE, overdue_message=LATE)
    await submit(store, "time", start_by_ms=NOW + MINUTE, overdue_message=LATE)
    await catch_up(store, now=NOW - HOUR)

    assert await catch_up(store, now=NOW - HOUR + MINUTE) == ["span"]
    assert await state(store, "time") is State.QUEUED


# --- none starts late -------------------------------------------------------------------------------------------


@small_bounds
async def test_no_claim_takes_an_overdue_job(store: Store) -> None:
    await submit_all(store, ["a", "b", "c", "d", "e"], **WITHIN)
    await submit(store, "fresh")

    assert ids(await claim(store, capacity=9, now=NOW + SPAN)) == ["fresh"]


@pytest.mark.bounded_by(portion=1, examine=256)
async def test_a_claim_that_meets_an_overdue_job_fails_it_and_goes_on(store: Store) -> None:
    await submit_all(store, ["a", "b", "c"], **WITHIN)
    await submit(store, "fresh")

    claimed = await one_claim(store, now=NOW + SPAN)

    assert ids(claimed.leases) == ["fresh"]
    assert [await state(store, job_id) for job_id in "abc"] == [State.FAILED] * 3


@pytest.mark.bounded_by(portion=1, examine=2)
async def test_an_overdue_job_counts_as_examined(store: Store) -> None:
    await submit_all(store, ["a", "b", "c", "d"], **WITHIN)
    await submit(store, "fresh")

    claimed = await one_claim(store, now=NOW + SPAN)

    assert (ids(claimed.leases), claimed.more) == ([], True)
    assert await line(store) == ["d", "fresh"]


@pytest.mark.bounded_by(portion=1, examine=256)
async def test_a_claim_fails_an_overdue_job_also_when_its_group_is_full(store: Store) -> None:
    await limit(store, "gpu", 1)
    await submit(store, "first", task="other", **WITHIN)
    await submit(store, "late", groups=("gpu",), **WITHIN)
    await submit(store, "next", groups=("gpu",))
    await start(store, "holder", groups=("gpu",))

    assert ids((await one_claim(store, now=NOW + SPAN)).leases) == []

    assert await state(store, "late") is State.FAILED
    assert (await group_status(store, "gpu")).waiting == 1


async def test_a_hand_over_that_meets_an_overdue_job_fails_it_and_goes_on(store: Store) -> None:
    await limit(store, "api", 1)
    await register(store, "w1", "work", capacity=3, lifetime_ms=HOUR)
    first = await acquire(store, "first", "api")
    await submit(store, "late", groups=("api",), **WITHIN)
    await acquire(store, "second", "api", wait_ms=HOUR)

    await at(store, NOW + SPAN).release([("first", first.token)])

    assert await state(store, "late") is State.FAILED
    assert [slot.holder for slot in (await group_status(store, "api")).slots] == ["second"]


async def test_a_job_behind_an_overdue_one_of_its_lane_keeps_the_slot_from_a_caller(store: Store) -> None:
    await limit(store, "api", 1)
    await register(store, "w1", "work", capacity=3, lifetime_ms=HOUR)
    first = await acquire(store, "first", "api")
    await submit(store, "late", groups=("api",), **WITHIN)
    await submit(store, "fresh", groups=("api",))
    await acquire(store, "second", "api", wait_ms=HOUR)

    await at(store, NOW + SPAN).release([("first", first.token)])

    assert await state(store, "late") is State.FAILED
    assert (await group_status(store, "api")).active == 0
    assert ids(await claim(store, capacity=3, now=NOW + SPAN)) == ["fresh"]


# --- once it has started ----------------------------------------------------------------------------------------


async def test_it_is_void_once_claimed_also_when_the_lease_is_lost(store: Store) -> None:
    await submit(store, "a", **WITHIN)
    await claim(store, lease_ms=SECOND)
    await catch_up(store, now=NOW + 2 * SECOND)
    assert await state(store, "a") is State.QUEUED

    assert ids(await claim(store, now=NOW + MINUTE)) == ["a"]


async def test_a_retrys_wait_does_not_make_it_overdue(store: Store) -> None:
    await submit(store, "a", **WITHIN)
    (lease,) = await claim(store)
    await retry_later(store, lease, at=NOW + MINUTE)

    assert ids(await claim(store, now=NOW + MINUTE)) == ["a"]


@given_either_way
async def test_a_job_that_is_handed_back_as_never_started_has_it_again(store: Store, start_by: dict[str, Any]) -> None:
    await submit(store, "a", **start_by)
    (lease,) = await claim(store)
    await hand_back(store, lease, now=NOW + SPAN - 1)
    assert await state(store, "a") is State.QUEUED

    assert await catch_up(store, now=NOW + SPAN) == ["a"]
    assert (await store.job("a")).error == JobError(message=LATE)


async def test_a_job_that_is_handed_back_too_late_fails(store: Store) -> None:
    await submit(store, "a", **WITHIN)
    (lease,) = await claim(store)
    await hand_back(store, lease, now=NOW + MINUTE)

    assert await claim(store, now=NOW + MINUTE) == []
    assert await state(store, "a") is State.FAILED


async def test_a_job_that_was_handed_back_after_a_later_attempt_is_not_overdue(store: Store) -> None:
    await submit(store, "a", **WITHIN)
    (first,) = await claim(store)
    await retry_later(store, first, at=NOW + SECOND)
    (second,) = await claim(store, now=NOW + SECOND)
    await hand_back(store, second, now=NOW + 2 * SECOND)

    assert ids(await claim(store, now=NOW + MINUTE)) == ["a"]


async def test_a_retry_by_hand_drops_it(store: Store) -> None:
    await submit(store, "a", **WITHIN)
    await catch_up(store, now=NOW + SPAN)

    await at(store, NOW + MINUTE).retry("a")
    (lease,) = await claim(store, now=NOW + HOUR)
    await hand_back(store, lease, now=NOW + HOUR)

    assert ids(await claim(store, now=NOW + DAY)) == ["a"]


async def test_a_confirmation_drops_it(store: Store) -> None:
    await submit(store, "a", **WITHIN)
    (lease,) = await claim(store)
    await ask_to_confirm(store, lease)
    await at(store, NOW + MINUTE).confirm("a")
    (lease,) = await claim(store, now=NOW + MINUTE)
    await hand_back(store, lease, now=NOW + MINUTE)

    assert ids(await claim(store, now=NOW + HOUR)) == ["a"]


# --- phases -----------------------------------------------------------------------------------------------------


async def test_the_phase_after_an_overdue_one_stays_waiting_until_it_is_retried(store: Store) -> None:
    await submit(store, "one", parent="p", phase=1, **WITHIN)
    await submit(store, "two", parent="p", phase=2)
    await catch_up(store, now=NOW + SPAN)
    assert await state(store, "two") is State.WAITING

    await at(store, NOW + SPAN).retry("one")
    await succeed(store, *await claim(store, now=NOW + SPAN), now=NOW + SPAN)

    assert await line(store) == ["two"]


async def test_a_phase_that_failed_while_it_waited_is_not_retried_before_its_turn(store: Store) -> None:
    await submit(store, "one", parent="p", phase=1)
    await submit(store, "two", parent="p", phase=2, **WITHIN)
    await catch_up(store, now=NOW + SPAN)

    with pytest.raises(InvalidTransition, match="phase"):
        await at(store, NOW + SPAN).retry("two")
    await succeed(store, *await claim(store, now=NOW + SPAN), now=NOW + SPAN)
    await at(store, NOW + SPAN).retry("two")

    assert await line(store) == ["two"]


# --- refused ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "waits",
    [
        {"start_by_ms": NOW},
        {"start_by_ms": NOW - 1},
        {"start_by_ms": NOW + SPAN, "run_at_ms": NOW + SPAN},
        {"start_by_ms": NOW + SPAN, "delay_ms": SPAN},
        {"start_within_ms": SPAN, "delay_ms": SPAN},
        {"start_within_ms": SPAN, "run_at_ms": NOW + HOUR},
    ],
    ids=lambda waits: "-".join(waits),
)
async def test_a_job_that_could_not_start_in_time_is_refused(
    store: Store, waits: dict[str, int], snapshot: Snapshot
) -> None:
    await submit(store, "other")
    before = await snapshot()

    answer = await try_submit(store, "a", user="u", standing=ONE_A_DAY, overdue_message=LATE, **waits)

    assert answer == Refusal(id="a", reason=RefusalReason.OVERDUE)
    assert await snapshot() == before


async def test_a_wait_that_ends_just_in_time_is_accepted(store: Store) -> None:
    await submit(store, "a", delay_ms=SPAN - 1, **BY)
    await submit(store, "b", run_at_ms=NOW + SPAN - 1, **WITHIN)

    assert ids(await claim(store, capacity=2, now=NOW + SPAN - 1)) == ["a", "b"]


async def test_a_known_id_is_returned_whatever_its_start_by_is_now(store: Store) -> None:
    await submit(store, "a", **BY)

    again = await submit(store, "a", now=NOW + HOUR, **BY)

    assert again.state is State.FAILED


async def test_a_job_that_the_quota_defers_beyond_it_is_accepted(store: Store) -> None:
    await submit(store, "today", user="u", standing=ONE_A_DAY)
    job = await submit(store, "a", user="u", quota_jitter_ms=5, **WITHIN)

    assert (job.state, job.run_at) == (State.SCHEDULED, moment((TODAY + 1) * DAY + 5))


# --- seen by people ---------------------------------------------------------------------------------------------


@given_either_way
async def test_blockers_tell_until_when_a_job_has_to_start(store: Store, start_by: dict[str, Any]) -> None:
    await submit(store, "a", **start_by)
    await submit(store, "b")
    assert (await store.blockers("a")).start_by == moment(NOW + SPAN)
    assert (await store.blockers("b")).start_by is None

    await claim(store)

    assert (await store.blockers("a")).start_by is None
