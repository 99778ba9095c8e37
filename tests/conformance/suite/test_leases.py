"""A lease: the time-limited right to a job and all its slots."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from qo.job import JobError, State, moment
from qo.store.contract import Store
from qo.values import Renewal, TaskOptions, Unlimited
from tests.conformance.suite.harness import (
    BROKEN,
    LEASE,
    MINUTE,
    NOW,
    SECOND,
    active,
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
    numbered,
    pass_time,
    register,
    renew,
    retry_later,
    standing,
    start,
    state,
    submit,
    submit_all,
    succeed,
    without_history,
)

pytestmark = pytest.mark.small_bounds


async def test_a_claimed_job_is_starting_with_an_attempt_a_worker_and_a_lease(store: Store) -> None:
    await submit(store, "a", payload=b'{"n":1}')

    (lease,) = await claim(store, worker="w7")

    job = await store.job("a")
    assert (job.state, job.attempts, job.worker, job.token) == (State.STARTING, 1, "w7", lease.token)
    assert (job.started_at, job.position) == (moment(NOW), None)
    assert (lease.payload, lease.checkpoint, lease.expires_at) == (b'{"n":1}', None, moment(NOW + LEASE))
    assert lease.job == without_history(job)


async def test_a_lease_says_of_its_job_what_the_job_says(store: Store) -> None:
    lease = await start(store, "a", user="u", standing=standing("plain"), timeout_ms=1500)

    job = lease.job
    assert (lease.job_id, lease.task, lease.tier, lease.timeout_seconds) == ("a", "task-of-a", "plain", 1.5)
    assert (job.id, job.task, job.tier, job.timeout_seconds) == ("a", "task-of-a", "plain", 1.5)
    assert await store.leases() == (msgspec.structs.replace(lease, payload=b""),)


async def test_the_leases_of_a_worker_are_listed_by_token_without_payloads(store: Store) -> None:
    first = await start(store, "a", worker="w1", payload=b"[1]")
    other = await start(store, "b", worker="w2", payload=b"[2]")
    second = await start(store, "c", worker="w1", payload=b"[3]")

    everyone, mine = await store.leases(), await store.leases(worker="w1")

    assert [lease.token for lease in everyone] == [first.token, other.token, second.token]
    assert [lease.token for lease in mine] == [first.token, second.token]
    assert {lease.payload for lease in everyone} == {b""}


# --- renewing ---------------------------------------------------------------------------------------------------


async def test_a_renewed_lease_lives_on_from_then(store: Store) -> None:
    lease = await start(store, "a")

    (held,) = (await at(store, NOW + 100 * SECOND).renew([Renewal(holder="a", token=lease.token, lease_ms=LEASE)])).held

    assert (held.lost, held.cancel_wanted) == (False, False)
    assert held.expires_at == moment(NOW + 100 * SECOND + LEASE)


async def test_a_renewed_job_is_not_recovered(store: Store) -> None:
    lease = await start(store, "a")
    for minutes in range(1, 20):
        await renew(store, lease, now=NOW + minutes * MINUTE)
        assert await catch_up(store, now=NOW + minutes * MINUTE) == []

    assert await state(store, "a") is State.STARTING
    assert not (await succeed(store, lease, now=NOW + 20 * MINUTE))[0].lost


async def test_a_heartbeat_never_shortens_a_lease(store: Store) -> None:
    lease = await start(store, "a")
    long = Renewal(holder="a", token=lease.token, extend_ms=600 * SECOND)
    short = Renewal(holder="a", token=lease.token, lease_ms=LEASE)

    (extended,) = (await at(store, NOW).renew([long])).held
    (renewed,) = (await at(store, NOW + 100 * SECOND).renew([short])).held

    assert extended.expires_at == moment(NOW + LEASE + 600 * SECOND)
    assert renewed.expires_at == extended.expires_at


async def test_a_lease_past_its_end_that_nobody_has_ended_yet_is_renewed_like_any_other(store: Store) -> None:
    lease = await start(store, "a")

    held = await renew(store, lease, now=NOW + 2 * LEASE)
    back = await pass_time(store, since=NOW + 2 * LEASE, until=NOW + 3 * LEASE - 1)

    assert held == [True]
    assert back == []


async def test_renewals_are_answered_one_by_one_in_order(store: Store) -> None:
    a, b = await start(store, "a"), await start(store, "b")
    await succeed(store, a)
    await at(store, NOW).cancel(job_id="b")
    renewals = [Renewal(holder=lease.job.id, token=lease.token, lease_ms=LEASE) for lease in (b, a, b)]

    answers = (await at(store, NOW).renew(renewals)).held

    assert [(held.holder, held.lost, held.cancel_wanted) for held in answers] == [
        ("b", False, True),
        ("a", True, False),
        ("b", False, True),
    ]


async def test_a_lost_lease_is_never_added_back(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]]
) -> None:
    lease = await start(store, "a")
    await hand_back(store, lease)
    before = await snapshot()

    held = await renew(store, lease)

    after = await snapshot()
    assert held == [False]
    assert (after["leases"], after["jobs"]) == (before["leases"], before["jobs"]) == ({}, after["jobs"])


# --- running out ------------------------------------------------------------------------------------------------


async def test_reclaim_a_dead_holders_slots_are_usable_again_one_lease_later(store: Store) -> None:
    await limit(store, "gpu", 1)
    await start(store, "dead", groups=("gpu",))
    await submit(store, "next", groups=("gpu",))

    await pass_time(store, since=NOW, until=NOW + LEASE - 1)
    still_held = await active(store, "gpu")
    await pass_time(store, since=NOW + LEASE - 1, until=NOW + LEASE)

    assert still_held == 1
    assert await active(store, "gpu") == 0
    assert ids(await claim(store, now=NOW + LEASE)) == ["next"]


async def test_a_claim_recovers_expired_leases_by_itself(store: Store) -> None:
    await submit(store, "a")
    await claim(store, worker="dead")
    for now in (NOW + 150 * SECOND, NOW + 299 * SECOND):
        assert await claim(store, worker="alive", now=now) == []

    (lease,) = await claim(store, worker="alive", now=NOW + LEASE)

    assert (lease.job.id, lease.job.worker, lease.job.attempts) == ("a", "alive", 2)


async def test_a_lost_lease_names_the_limited_groups_whose_slots_it_freed(store: Store) -> None:
    for group in ("work", "gpu", "user:u1", "gone"):
        await limit(store, group, 2)
    await submit_all(store, "ab", user="u1", groups=("gpu", "gone", "unlimited"))
    first, second = await claim(store, capacity=2)
    await at(store, NOW).set_limits([Unlimited(group="gone")])
    await limit(store, "global", 5)

    await at(store, NOW).revoke("gpu", first.slots["gpu"], force=True)
    await pass_time(store, since=NOW, until=NOW + LEASE)

    freed = ["global", "gpu", "user:u1", "work"]
    assert [event for event in await events_of(store, "a") if event[0] == "lease_lost"] == [
        ("lease_lost", {"token": first.token, "reason": "revoked", "groups": freed})
    ]
    assert [event for event in await events_of(store, "b") if event[0] == "lease_lost"] == [
        ("lease_lost", {"token": second.token, "reason": "expired", "groups": freed})
    ]


async def test_an_expired_job_goes_back_with_its_attempt_spent(store: Store) -> None:
    lease = await start(store, "a")

    back = await pass_time(store, since=NOW, until=NOW + LEASE)

    job = await store.job("a")
    assert back == ["a"]
    assert (job.state, job.attempts, job.worker, job.token) == (State.QUEUED, 1, None, None)
    assert job.started_at == moment(NOW)
    assert await events_of(store, "a") == [
        ("queued", {"position": 1}),
        ("starting", {"worker": "w1", "attempt": 1}),
        ("lease_lost", {"token": lease.token, "reason": "expired"}),
        ("queued", {"reason": "expired"}),
    ]


async def test_bounded_attempts_a_job_that_kills_its_workers_ends_as_failed(store: Store) -> None:
    await submit(store, "deadly", max_attempts=3)
    now = NOW
    starts = 0
    while await claim(store, now=now):
        starts += 1
        await pass_time(store, since=now, until=now + LEASE)
        now += LEASE

    job = await store.job("deadly")
    assert (starts, job.attempts, job.state) == (3, 3, State.FAILED)
    assert job.error == JobError(message="The worker stopped responding, and all 3 attempts are used.")
    assert job.finished_at == moment(now)
    assert await claim(store, now=now) == []
    assert (await at(store, now).retry("deadly")).attempts == 0


async def test_a_job_without_attempts_of_its_own_gets_its_tasks_when_it_first_starts(store: Store) -> None:
    await submit(store, "own", max_attempts=5)
    await submit(store, "tasks")
    await submit(store, "default", task="other")
    before = [(await store.job(job_id)).max_attempts for job_id in ("own", "tasks", "default")]
    await register(store, "w1", TaskOptions(name="work", max_attempts=1), "other")

    leases = await claim(store, capacity=3, tasks=["work", "other"])

    assert before == [5, None, None]
    assert [(lease.job.id, lease.job.max_attempts) for lease in leases] == [("own", 5), ("tasks", 1), ("default", 3)]


async def test_a_workers_word_counts_for_jobs_that_start_later_not_for_those_that_have(store: Store) -> None:
    await register(store, "w1", TaskOptions(name="work", max_attempts=2))
    first = await start(store, "first", task="work")
    await register(store, "w2", TaskOptions(name="work", max_attempts=1))
    second = await start(store, "second", task="work")

    for lease in (first, second):
        await retry_later(store, lease, at=NOW + SECOND)

    assert [(await store.job(job_id)).state for job_id in ("first", "second")] == [State.SCHEDULED, State.FAILED]


async def test_bounded_attempts_retries_end_when_all_are_spent(store: Store) -> None:
    await submit(store, "fragile", max_attempts=2)
    states = []
    for attempt in range(2):
        now = NOW + attempt * MINUTE
        (lease,) = await claim(store, now=now)
        states.append((await retry_later(store, lease, at=now + 1, now=now)).state)

    job = await store.job("fragile")
    assert states == [State.SCHEDULED, State.FAILED]
    assert (job.state, job.attempts, job.error) == (State.FAILED, 2, BROKEN)


async def test_an_expired_job_that_was_to_be_cancelled_is_cancelled(store: Store) -> None:
    await start(store, "a")
    await at(store, NOW).cancel(job_id="a", message="Not needed.")

    await pass_time(store, since=NOW, until=NOW + LEASE)

    job = await store.job("a")
    assert (job.state, job.cancel_wanted, job.message) == (State.CANCELLED, False, "Not needed.")
    assert await kinds_of(store, "a") == ["queued", "starting", "cancel_wanted", "lease_lost", "cancelled"]


async def test_leases_end_in_the_order_of_their_ends(store: Store) -> None:
    await submit_all(store, "abc")
    for lease_ms in (LEASE, LEASE - 2000, LEASE - 1000):
        await claim(store, lease_ms=lease_ms)

    back = await pass_time(store, since=NOW, until=NOW + LEASE)

    assert back == ["b", "c", "a"]
    assert await line(store) == ["a", "b", "c"]


async def test_jobs_come_back_after_all_slots_are_free_so_none_is_put_aside_for_another_that_is_over(
    store: Store,
) -> None:
    await limit(store, "gpu", 2)
    await submit_all(store, ["a", "b"], groups=("gpu",))
    await claim(store, capacity=2)

    await pass_time(store, since=NOW, until=NOW + LEASE)

    assert (await group_status(store, "gpu")).waiting == 0
    assert ids(await claim(store, capacity=2, now=NOW + LEASE)) == ["a", "b"]


async def test_a_job_whose_worker_died_can_be_claimed_by_another_while_the_dead_one_is_fenced(store: Store) -> None:
    await submit(store, "a")
    (dead,) = await claim(store, worker="dead")
    await pass_time(store, since=NOW, until=NOW + LEASE)
    (alive,) = await claim(store, worker="alive", now=NOW + LEASE)

    late = await succeed(store, dead, now=NOW + LEASE)

    assert late[0].lost
    assert (await store.job("a")).worker == "alive"
    assert not (await succeed(store, alive, now=NOW + LEASE))[0].lost


async def test_many_leases_that_ran_out_are_recovered_in_portions_until_none_is_left(store: Store) -> None:
    await submit_all(store, numbered("j", 20))
    await claim(store, capacity=20)

    back = await pass_time(store, since=NOW, until=NOW + LEASE)

    assert sorted(back) == numbered("j", 20)
    assert await line(store) == numbered("j", 20)
