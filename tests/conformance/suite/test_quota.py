"""The daily quota: nobody is refused, what is over it waits for a day with room."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from qo.job import Job, State, moment
from qo.store.contract import Store
from tests.conformance.suite.harness import (
    DAY,
    HOUR,
    LEASE,
    MIDNIGHT,
    MINUTE,
    NOW,
    TODAY,
    accepted,
    ask_to_confirm,
    at,
    catch_up,
    claim,
    events_of,
    fail,
    group_status,
    hand_back,
    ids,
    line,
    pass_time,
    retry_later,
    standing,
    start,
    state,
    submission,
    submit,
    submit_all,
    succeed,
)

pytestmark = pytest.mark.small_bounds

TWO_A_DAY = standing(daily_quota=2)


async def submit_jobs(store: Store, job_ids: str, *, now: int = NOW, user: str = "u1", **fields: Any) -> list[Job]:
    fields.setdefault("standing", TWO_A_DAY)
    return await submit_all(store, job_ids.split(), user=user, now=now, **fields)


async def run_ats(store: Store, *job_ids: str) -> list[datetime | None]:
    return [(await store.job(job_id)).run_at for job_id in job_ids]


async def test_over_the_quota_a_job_is_scheduled_for_the_next_midnight(store: Store) -> None:
    a, b, c = await submit_jobs(store, "a b c")

    assert [job.state for job in (a, b, c)] == [State.QUEUED, State.QUEUED, State.SCHEDULED]
    assert c.run_at == moment(MIDNIGHT + DAY)
    usage = await at(store, NOW).usage("u1")
    assert (usage.tier, usage.daily_quota, usage.used_today, usage.deferred) == ("partner", 2, 2, 1)


async def test_the_jitter_is_added_to_the_midnight(store: Store) -> None:
    await submit_jobs(store, "a b")

    (job,) = await submit_jobs(store, "c", quota_jitter_ms=1234)

    assert job.run_at == moment(MIDNIGHT + DAY + 1234)


async def test_what_is_scheduled_into_a_day_uses_up_that_days_quota(store: Store) -> None:
    jobs = await submit_jobs(store, "a b c d e f g")

    days = [(job.run_at.timestamp() * 1000 // DAY) - TODAY if job.run_at else 0 for job in jobs]

    assert days == [0, 0, 1, 1, 2, 2, 3]
    assert (await at(store, NOW).usage("u1")).deferred == 5


async def test_quotas_roll_over_several_days(store: Store) -> None:
    await submit_jobs(store, "a b c d e f g")
    started = {}
    for day in range(5):
        now = MIDNIGHT + day * DAY + 12 * HOUR
        await catch_up(store, now=now)
        leases = await claim(store, capacity=9, now=now)
        started[day] = ids(leases)
        await succeed(store, *leases, now=now)
        await submit_jobs(store, f"more{day}", now=now)

    assert started == {0: ["a", "b"], 1: ["c", "d"], 2: ["e", "f"], 3: ["g", "more0"], 4: ["more1", "more2"]}


async def test_a_new_day_has_room_again(store: Store) -> None:
    await submit_jobs(store, "a b")

    (job,) = await submit_jobs(store, "c", now=MIDNIGHT + DAY)

    assert job.state is State.QUEUED
    assert (await at(store, MIDNIGHT + DAY).usage("u1")).used_today == 1


async def test_one_users_deferred_jobs_keep_their_order_whatever_their_jitter(store: Store) -> None:
    three = standing(daily_quota=3)
    await submit_jobs(store, "a b c", standing=three)
    for job_id, jitter in (("d", 3_000_000), ("e", 10), ("f", 10)):
        await submit(store, job_id, user="u1", quota_jitter_ms=jitter)

    await catch_up(store, now=MIDNIGHT + DAY + HOUR)

    assert await line(store) == ["a", "b", "c", "d", "e", "f"]
    assert await run_ats(store, "d", "e", "f") == [moment(MIDNIGHT + DAY + at) for at in (10, 11, 3_000_000)]


async def test_due_times_of_a_day_are_dealt_out_in_order_of_submission(store: Store) -> None:
    quota = standing(daily_quota=4)
    await submit_jobs(store, "1 2 3 4", standing=quota)
    for job_id, jitter in (("a", 5000), ("b", 1000), ("c", 3000)):
        await submit(store, job_id, user="u1", quota_jitter_ms=jitter)

    midnight = MIDNIGHT + DAY
    assert await run_ats(store, "a", "b", "c") == [moment(midnight + at) for at in (1000, 3000, 5000)]


async def test_jobs_of_different_users_do_not_share_a_quota(store: Store) -> None:
    await submit_jobs(store, "a b", user="u1")

    (job,) = await submit_jobs(store, "c", user="u2")

    assert job.state is State.QUEUED


async def test_without_a_quota_jobs_are_counted_and_never_deferred(store: Store) -> None:
    jobs = await submit_jobs(store, "a b c d", standing=None)

    assert {job.state for job in jobs} == {State.QUEUED}
    assert (await at(store, NOW).usage("u1")).used_today == 4


async def test_a_job_without_a_user_has_no_quota(store: Store) -> None:
    jobs = await submit_all(store, "abc", standing=standing(daily_quota=1))

    assert {job.state for job in jobs} == {State.QUEUED}


async def test_a_delayed_job_counts_on_the_day_it_is_due(store: Store) -> None:
    tomorrow = MIDNIGHT + DAY + 5 * HOUR
    await submit_jobs(store, "t1 t2", run_at_ms=tomorrow)

    today = await submit_jobs(store, "a b")
    (over,) = await submit_jobs(store, "t3", run_at_ms=tomorrow)

    assert {job.state for job in today} == {State.QUEUED}
    assert over.run_at == moment(MIDNIGHT + 2 * DAY)
    assert (await at(store, tomorrow).usage("u1")).used_today == 2


async def test_a_delayed_job_on_a_day_with_room_keeps_its_time(store: Store) -> None:
    await submit_jobs(store, "a b")
    tomorrow = MIDNIGHT + DAY + 5 * HOUR

    (job,) = await submit_jobs(store, "t", run_at_ms=tomorrow)

    assert job.run_at == moment(tomorrow)
    assert (await at(store, NOW).usage("u1")).deferred == 0


async def test_a_repeated_id_is_not_charged_again(store: Store) -> None:
    await submit_jobs(store, "a a a")

    assert (await at(store, NOW).usage("u1")).used_today == 1


async def test_retries_and_confirmations_cost_nothing(store: Store) -> None:
    lease = await start(store, "a", user="u1", standing=TWO_A_DAY)
    await retry_later(store, lease, at=NOW + 1)
    (lease,) = await claim(store, tasks=[lease.job.task], now=NOW + 1)
    await ask_to_confirm(store, lease, now=NOW + 1)
    await at(store, NOW + 1).confirm("a")
    (lease,) = await claim(store, tasks=[lease.job.task], now=NOW + 1)
    await fail(store, lease, now=NOW + 1)
    await at(store, NOW + 1).retry("a")

    assert (await at(store, NOW).usage("u1")).used_today == 1


async def test_free_deferral_a_deferred_job_holds_no_slot_and_spends_no_attempt(store: Store) -> None:
    await submit_jobs(store, "a b c", groups=("gpu",))
    await claim(store, capacity=9)

    job = await store.job("c")

    assert (job.state, job.attempts, job.position) == (State.SCHEDULED, 0, None)
    assert (await group_status(store, "gpu")).active == 2


async def test_a_deferred_job_joins_the_line_when_its_time_has_come(store: Store) -> None:
    await submit_jobs(store, "a b c")

    early = await catch_up(store, now=MIDNIGHT + DAY - 1)
    due = await catch_up(store, now=MIDNIGHT + DAY)

    assert (early, due) == ([], ["c"])
    assert (await at(store, MIDNIGHT + DAY).usage("u1")).deferred == 0
    assert await events_of(store, "c") == [
        ("scheduled", {"run_at": MIDNIGHT + DAY}),
        ("queued", {"position": 3}),
    ]


# --- refunds ----------------------------------------------------------------------------------------------------


async def test_a_job_cancelled_before_it_started_gives_its_quota_back(store: Store) -> None:
    await submit_jobs(store, "a b")

    await at(store, NOW).cancel(job_id="a")

    assert (await at(store, NOW).usage("u1")).used_today == 1
    (job,) = await submit_jobs(store, "c")
    assert job.state is State.QUEUED


async def test_the_earliest_deferred_job_moves_forward_into_a_refund(store: Store) -> None:
    await submit_jobs(store, "a b c d e")

    await at(store, NOW + MINUTE).cancel(job_id="a")

    c = await store.job("c")
    assert (c.state, c.run_at, c.joined_at) == (State.QUEUED, moment(NOW + MINUTE), moment(NOW + MINUTE))
    assert await line(store) == ["b", "c"]
    assert [(await store.job(job_id)).run_at for job_id in ("d", "e")] == [
        moment(MIDNIGHT + DAY),
        moment(MIDNIGHT + DAY + 1),
    ]
    usage = await at(store, NOW).usage("u1")
    assert (usage.used_today, usage.deferred) == (2, 2)


async def test_moving_forward_fills_every_day_that_has_room_at_the_jobs_own_time_of_day(store: Store) -> None:
    one = standing(daily_quota=1)
    await submit_jobs(store, "a", standing=one)
    for number, jitter in enumerate([1000, 2000, 3000]):
        await submit(store, f"d{number}", user="u1", quota_jitter_ms=jitter)

    await at(store, NOW).cancel(job_id="a")

    assert await state(store, "d0") is State.QUEUED
    assert await run_ats(store, "d1", "d2") == [moment(MIDNIGHT + DAY + 2000), moment(MIDNIGHT + 2 * DAY + 3000)]
    assert ("rescheduled", {"run_at": MIDNIGHT + DAY + 2000}) in await events_of(store, "d1")


async def test_a_cancelled_deferred_job_gives_back_its_own_day(store: Store) -> None:
    one = standing(daily_quota=1)
    await submit_jobs(store, "a b c", standing=one)

    await at(store, NOW).cancel(job_id="b")

    assert await state(store, "c") is State.SCHEDULED
    assert await run_ats(store, "c") == [moment(MIDNIGHT + DAY)]
    assert (await at(store, NOW).usage("u1")).used_today == 1


async def test_a_job_that_had_started_gives_nothing_back(store: Store) -> None:
    await submit_jobs(store, "a b c")
    (lease,) = await claim(store)
    await retry_later(store, lease, at=NOW + HOUR)

    await at(store, NOW).cancel(job_id="a")

    assert (await at(store, NOW).usage("u1")).used_today == 2
    assert await state(store, "c") is State.SCHEDULED


async def test_a_job_handed_back_counts_as_never_started_and_gives_its_quota_back(store: Store) -> None:
    await submit_jobs(store, "a b c")
    (lease,) = await claim(store)
    await hand_back(store, lease)

    await at(store, NOW).cancel(job_id="a")

    assert await state(store, "c") is State.QUEUED


async def test_a_day_that_is_over_gives_nothing_back(store: Store) -> None:
    await submit_jobs(store, "a b c")

    await at(store, MIDNIGHT + DAY).cancel(job_id="a")

    assert await state(store, "c") is State.SCHEDULED
    assert (await at(store, NOW).usage("u1")).used_today == 2


async def test_a_running_job_cancelled_by_its_worker_gives_nothing_back(store: Store) -> None:
    await submit_jobs(store, "a b c")
    (lease,) = await claim(store)
    await at(store, NOW).cancel(job_id="a")
    await hand_back(store, lease)

    assert await state(store, "a") is State.CANCELLED
    assert (await at(store, NOW).usage("u1")).used_today == 2


async def test_cancelling_a_parent_refunds_each_of_its_waiting_jobs(store: Store) -> None:
    await submit_jobs(store, "p1", parent="app", phase=1)
    await submit_jobs(store, "p2", parent="app", phase=2)
    await submit_jobs(store, "c d")

    await at(store, NOW).cancel(parent="app")

    assert await line(store) == ["c", "d"]
    assert (await at(store, NOW).usage("u1")).used_today == 2


async def test_a_deferred_phase_that_moves_forward_still_waits_for_the_phase_before(store: Store) -> None:
    one = standing(daily_quota=1)
    await submit_jobs(store, "a", standing=one)
    await submit(store, "p2", user="u1", parent="app", phase=2)

    await at(store, NOW).cancel(job_id="a")

    p2 = await store.job("p2")
    assert (p2.state, p2.run_at) == (State.WAITING, moment(NOW))
    assert await events_of(store, "p2") == [("waiting", {}), ("rescheduled", {"run_at": NOW})]
    lease = await start(store, "p1", parent="app", phase=1)
    await succeed(store, lease)
    assert await state(store, "p2") is State.QUEUED


async def test_two_submits_in_one_call_share_the_quota(store: Store) -> None:
    answers = await at(store, NOW).submit(
        [submission(job_id, user="u1", standing=TWO_A_DAY) for job_id in ("a", "b", "c")]
    )

    assert [accepted(answer).job.state for answer in answers] == [State.QUEUED, State.QUEUED, State.SCHEDULED]


async def test_a_lease_that_runs_out_costs_no_quota(store: Store) -> None:
    await start(store, "a", user="u1", standing=TWO_A_DAY)

    await pass_time(store, since=NOW, until=NOW + LEASE)

    assert (await at(store, NOW).usage("u1")).used_today == 1


# --- midnight, to the millisecond -------------------------------------------------------------------------------


async def test_the_last_millisecond_belongs_to_its_day_and_midnight_to_the_next(store: Store) -> None:
    last, midnight = MIDNIGHT + DAY - 1, MIDNIGHT + DAY
    (first,) = await submit_jobs(store, "a", now=MIDNIGHT)
    (second,) = await submit_jobs(store, "b", now=last)
    (over,) = await submit_jobs(store, "c", now=last)
    (at_midnight,) = await submit_jobs(store, "d", now=midnight)
    (over_again,) = await submit_jobs(store, "e", now=midnight)

    assert [job.state for job in (first, second, at_midnight)] == [State.QUEUED] * 3
    assert (over.state, over.run_at) == (State.SCHEDULED, moment(midnight))
    assert (over_again.state, over_again.run_at) == (State.SCHEDULED, moment(midnight + DAY))
    assert [(await at(store, now).usage("u1")).used_today for now in (MIDNIGHT, last, midnight)] == [2, 2, 2]


async def test_the_day_before_ends_a_millisecond_before_midnight(store: Store) -> None:
    await submit_jobs(store, "a b", now=MIDNIGHT - 1)

    (today,) = await submit_jobs(store, "c", now=MIDNIGHT)

    assert today.state is State.QUEUED
    assert [(await at(store, now).usage("u1")).used_today for now in (MIDNIGHT - 1, MIDNIGHT)] == [2, 1]


async def test_a_deferred_job_joins_at_midnight_and_not_a_millisecond_earlier(store: Store) -> None:
    await submit_jobs(store, "a b c")

    early = await catch_up(store, now=MIDNIGHT + DAY - 1)
    deferred = (await at(store, MIDNIGHT + DAY - 1).usage("u1")).deferred
    due = await catch_up(store, now=MIDNIGHT + DAY)

    assert (early, deferred, due) == ([], 1, ["c"])
    assert (await at(store, MIDNIGHT + DAY).usage("u1")).used_today == 1
    assert await line(store) == ["a", "b", "c"]
