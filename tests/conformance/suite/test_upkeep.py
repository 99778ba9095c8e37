"""What time does: due jobs, confirmations that nobody gives, reminders."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from qo.job import JobError, State, moment
from qo.store.contract import Store
from qo.values import Reminder
from tests.conformance.suite.harness import (
    HOUR,
    LEASE,
    MINUTE,
    NOW,
    ask_to_confirm,
    at,
    catch_up,
    claim,
    events_of,
    group_status,
    ids,
    line,
    numbered,
    retry_later,
    start,
    state,
    submission,
    submit,
    submit_all,
    upkeep,
    whole_upkeep,
)

pytestmark = pytest.mark.small_bounds

TOO_LATE = JobError(message="Nobody confirmed it within 24 hours.")


async def confirming(store: Store, *job_ids: str, now: int = NOW) -> None:
    for job_id in job_ids:
        await ask_to_confirm(store, await start(store, job_id, now=now), now=now)


async def fail_unconfirmed(store: Store, *, now: int, after_ms: int = 24 * HOUR) -> list[str]:
    done = await whole_upkeep(store, now=now, unconfirmed_after_ms=after_ms, unconfirmed_error=TOO_LATE)
    return list(done.failed)


async def all_reminders(store: Store, *, now: int, ages_ms: tuple[int, ...] = (12 * HOUR, 23 * HOUR)) -> list[Reminder]:
    found: list[Reminder] = []
    while reminders := (await upkeep(store, now=now, reminder_ages_ms=ages_ms)).reminders:
        assert len(reminders) <= store.bounds.portion
        found += reminders
    return found


# --- due jobs ---------------------------------------------------------------------------------------------------


async def test_a_delayed_job_joins_the_line_when_it_is_due_and_not_before(store: Store) -> None:
    job = await submit(store, "a", run_at_ms=NOW + HOUR)

    early = await catch_up(store, now=NOW + HOUR - 1)
    due = await catch_up(store, now=NOW + HOUR)

    assert (job.state, early, due) == (State.SCHEDULED, [], ["a"])
    joined = await store.job("a")
    assert (joined.joined_at, joined.run_at, joined.position) == (moment(NOW + HOUR), moment(NOW + HOUR), 1)
    assert await events_of(store, "a") == [("scheduled", {"run_at": NOW + HOUR}), ("queued", {"position": 1})]


@pytest.mark.parametrize("run_at", [NOW, NOW - 1, 0])
async def test_a_time_that_has_passed_counts_as_now(store: Store, run_at: int) -> None:
    job = await submit(store, "a", run_at_ms=run_at)

    assert (job.state, job.run_at, job.joined_at) == (State.QUEUED, moment(run_at), moment(NOW))


async def test_due_jobs_join_at_the_start_of_a_submit(store: Store) -> None:
    await submit(store, "due", run_at_ms=NOW + 1)

    await submit(store, "new", now=NOW + 1)

    assert await line(store) == ["due", "new"]


async def test_due_jobs_join_at_the_start_of_a_claim(store: Store) -> None:
    await submit(store, "due", run_at_ms=NOW + 1)

    assert ids(await claim(store, now=NOW + 1)) == ["due"]


async def test_due_jobs_join_by_their_time_in_portions_until_none_is_left(store: Store) -> None:
    delays = [7, 3, 9, 1, 8, 2, 6, 4, 5]
    await at(store, NOW).submit([submission(f"d{at}", run_at_ms=NOW + at) for at in delays])

    joined = await catch_up(store, now=NOW + 9)

    assert joined == [f"d{at}" for at in sorted(delays)]
    assert await line(store) == joined


async def test_one_portion_is_no_more_than_its_bound_and_says_that_there_is_more(store: Store) -> None:
    amount = store.bounds.portion + 1
    await submit_all(store, numbered("d", amount), run_at_ms=NOW + 1)

    first = await at(store, NOW + 1).catch_up()
    second = await at(store, NOW + 1).catch_up()

    assert (len(first.ids), first.more) == (amount - 1, True)
    assert (len(second.ids), second.more) == (1, False)


async def test_a_claim_says_that_there_is_more_while_due_jobs_have_not_all_joined(store: Store) -> None:
    amount = store.bounds.portion + 1
    await submit_all(store, numbered("d", amount), run_at_ms=NOW + 1)

    leases = await claim(store, capacity=amount, now=NOW + 1)

    assert ids(leases) == numbered("d", amount)


async def test_jobs_come_back_before_any_due_one_joins(store: Store) -> None:
    await submit(store, "expires")
    await claim(store, lease_ms=LEASE)
    await submit(store, "due", run_at_ms=NOW + LEASE)
    await catch_up(store, now=NOW + LEASE // 2)

    answered = await catch_up(store, now=NOW + LEASE)

    assert answered == ["expires", "due"]
    kinds = [(event.kind, event.subject) for event in (await store.events(0)).events][-3:]
    assert kinds == [("lease_lost", "expires"), ("queued", "expires"), ("queued", "due")]


async def test_a_retry_whose_wait_is_over_joins_again(store: Store) -> None:
    lease = await start(store, "a")
    await retry_later(store, lease, at=NOW + MINUTE)
    waiting = await store.job("a")

    await catch_up(store, now=NOW + MINUTE)

    assert (waiting.state, waiting.run_at, waiting.position) == (State.SCHEDULED, moment(NOW + MINUTE), None)
    assert await state(store, "a") is State.QUEUED


async def test_a_retry_at_once_joins_with_the_next_step(store: Store) -> None:
    await submit_all(store, "ab")
    (lease,) = await claim(store)
    await retry_later(store, lease, at=NOW)

    assert ids(await claim(store, capacity=5)) == ["b", "a"]


# --- confirmations ----------------------------------------------------------------------------------------------


async def test_a_confirming_job_waits_for_a_person_without_slots(store: Store) -> None:
    lease = await start(store, "a", groups=("gpu",))

    await ask_to_confirm(store, lease, message="Continue for 2 more iterations?", now=NOW + 5)

    job = await store.job("a")
    assert (job.state, job.message) == (State.CONFIRMING, "Continue for 2 more iterations?")
    assert (job.confirmation_required_at, job.worker, job.token) == (moment(NOW + 5), None, None)
    assert (await group_status(store, "gpu")).active == 0
    assert await claim(store, tasks=[job.task]) == []


async def test_a_confirmed_job_joins_again_with_all_its_attempts(store: Store) -> None:
    await submit(store, "a", max_attempts=1)
    (lease,) = await claim(store)
    await ask_to_confirm(store, lease)
    await submit(store, "b")

    job = await at(store, NOW + 7).confirm("a", by="u1")

    assert (job.state, job.attempts, job.position, job.joined_at) == (State.QUEUED, 0, 2, moment(NOW + 7))
    assert (job.confirmation_required_at, job.message) == (None, None)
    assert ids(await claim(store, capacity=5)) == ["b", "a"]


async def test_what_nobody_confirms_fails_longest_waiting_first(store: Store) -> None:
    await confirming(store, "b", now=NOW)
    await confirming(store, "a", now=NOW + 1)
    await confirming(store, "c", now=NOW + HOUR)

    early = await fail_unconfirmed(store, now=NOW + 24 * HOUR - 1)
    late = await fail_unconfirmed(store, now=NOW + 24 * HOUR + 1)

    job = await store.job("a")
    assert (early, late) == ([], ["b", "a"])
    assert (job.state, job.error, job.confirmation_required_at) == (State.FAILED, TOO_LATE, None)
    assert job.finished_at == moment(NOW + 24 * HOUR + 1)
    assert await state(store, "c") is State.CONFIRMING
    assert (await events_of(store, "a"))[-1] == ("failed", {"message": TOO_LATE.message})


async def test_a_job_that_failed_unconfirmed_can_be_retried(store: Store) -> None:
    await confirming(store, "a")
    await fail_unconfirmed(store, now=NOW + 24 * HOUR)

    job = await at(store, NOW + 25 * HOUR).retry("a")

    assert (job.state, job.error, job.finished_at) == (State.QUEUED, None, None)


async def test_reminders_come_once_each_at_their_age(store: Store) -> None:
    await confirming(store, "a")

    numbers = []
    for hours in (11, 12, 13, 22, 23, 23.5):
        reminders = await all_reminders(store, now=NOW + int(hours * HOUR))
        numbers.append([one.number for one in reminders])

    assert numbers == [[], [1], [], [], [2], []]


async def test_a_reminder_tells_the_job_and_since_when_it_waits(store: Store) -> None:
    await confirming(store, "a")

    reminders = await all_reminders(store, now=NOW + 12 * HOUR)

    assert reminders == [Reminder(job_id="a", number=1, confirmation_required_at=moment(NOW))]


async def test_a_reminder_brings_the_contact_of_its_job_and_nothing_else_does(store: Store) -> None:
    await ask_to_confirm(store, await start(store, "a", contact="ann@example.com"))
    await confirming(store, "b")

    reminders = await all_reminders(store, now=NOW + 12 * HOUR)

    assert [(one.job_id, one.contact) for one in reminders] == [("a", "ann@example.com"), ("b", None)]
    read = [await store.job("a"), await store.blockers("a"), await store.events(0), await store.audit()]
    assert "ann@" not in repr(read)


@pytest.mark.parametrize("end", ["cancel", "unconfirmed"])
async def test_the_contact_is_deleted_when_the_job_ends(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]], end: str
) -> None:
    await ask_to_confirm(store, await start(store, "a", contact="ann@example.com"))

    if end == "cancel":
        await at(store, NOW).cancel(job_id="a")
    else:
        await fail_unconfirmed(store, now=NOW + 24 * HOUR)
        await at(store, NOW + 24 * HOUR).retry("a")

    assert (await snapshot())["jobs"]["a"]["contact"] is None


async def test_reminders_that_are_due_together_are_given_once_each_in_order(store: Store) -> None:
    await confirming(store, "b", now=NOW)
    await confirming(store, "a", now=NOW + 1)

    first = await all_reminders(store, now=NOW + 23 * HOUR)
    again = await all_reminders(store, now=NOW + 23 * HOUR)

    assert [(one.job_id, one.number) for one in first] == [("b", 1), ("b", 2), ("a", 1)]
    assert again == []


async def test_a_job_that_had_its_first_reminder_gets_the_others_when_they_are_due(store: Store) -> None:
    await confirming(store, "a")
    ages_ms = (HOUR, 2 * HOUR, 3 * HOUR)

    early = await all_reminders(store, now=NOW + HOUR, ages_ms=ages_ms)
    late = await all_reminders(store, now=NOW + 3 * HOUR, ages_ms=ages_ms)

    assert [[one.number for one in each] for each in (early, late)] == [[1], [2, 3]]


async def test_reminders_go_to_the_longest_waiting_first_in_portions(store: Store) -> None:
    await confirming(store, "c", now=NOW)
    await confirming(store, "a", now=NOW + 1)
    await confirming(store, "d", "b", now=NOW + 2)

    reminders = await all_reminders(store, now=NOW + 13 * HOUR)

    assert [one.job_id for one in reminders] == ["c", "a", "d", "b"]


async def test_a_job_that_asks_again_is_reminded_again(store: Store) -> None:
    await confirming(store, "a")
    await all_reminders(store, now=NOW + 13 * HOUR)
    await at(store, NOW + 13 * HOUR).confirm("a")
    (lease,) = await claim(store, tasks=["task-of-a"], now=NOW + 13 * HOUR)
    await ask_to_confirm(store, lease, now=NOW + 13 * HOUR)

    soon = await all_reminders(store, now=NOW + 14 * HOUR)
    later = await all_reminders(store, now=NOW + 25 * HOUR)

    assert (soon, [one.number for one in later]) == ([], [1])


async def test_nobody_is_reminded_of_what_was_confirmed_or_cancelled(store: Store) -> None:
    await confirming(store, "a", "b")
    await at(store, NOW).confirm("a")
    await at(store, NOW).cancel(job_id="b")

    assert await all_reminders(store, now=NOW + 13 * HOUR) == []
