"""The same operation sent twice, because a reply was lost, has one effect."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from qo.errors import InvalidTransition
from qo.job import State
from qo.store.contract import Store
from qo.values import Advance, Record, Renewal
from tests.conformance.suite.harness import (
    BROKEN,
    HOUR,
    LEASE,
    MINUTE,
    NOW,
    ClaimArguments,
    accepted,
    acquire,
    ask_to_confirm,
    at,
    fail,
    group_status,
    ids,
    limit,
    outcome,
    register,
    standing,
    start,
    submission,
    submit,
    submit_all,
    succeed,
    ticket,
    try_submit,
)


async def test_submitting_a_known_id_returns_that_job_and_changes_nothing(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]]
) -> None:
    first = accepted(await try_submit(store, "a", user="u1", standing=standing(daily_quota=5), by="u1"))
    before = await snapshot()

    again = accepted(await try_submit(store, "a", user="u1", standing=standing(daily_quota=5), by="u1"))

    assert (first.known, again.known) == (False, True)
    assert again.job == first.job
    assert await snapshot() == before


async def test_a_known_id_is_that_job_whatever_else_is_asked(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]]
) -> None:
    job = await submit(store, "a", task="x", user="u1")
    await submit(store, "b", parent="p", phase=1)
    before = await snapshot()

    answer = await try_submit(
        store, "a", task="y", user="u2", standing=standing("other"), parent="p", phase=1, cap=0, priority=10
    )

    again = accepted(answer)
    assert (again.known, again.job) == (True, job)
    assert await snapshot() == before


async def test_a_known_id_within_one_submit_is_that_job(store: Store) -> None:
    first, second = map(accepted, await at(store, NOW).submit([submission("a"), submission("a")]))

    assert (first.known, second.known) == (False, True)
    assert (await store.line(limit=0)).queued == 1


@pytest.mark.parametrize("ended", [State.SUCCEEDED, State.FAILED, State.CANCELLED])
async def test_a_known_id_stays_known_when_the_job_has_ended(store: Store, ended: State) -> None:
    lease = await start(store, "a")
    await at(store, NOW).finish([outcome(lease, ended, error=BROKEN)])

    again = accepted(await try_submit(store, "a"))

    assert (again.known, again.job.state) == (True, ended)


async def test_repeating_a_claim_returns_that_claims_living_leases(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]]
) -> None:
    await submit_all(store, "abcd")
    asked: ClaimArguments = {"worker": "w1", "tasks": ["work"], "capacity": 2, "lease_ms": LEASE, "claim_id": "c1"}
    first = await at(store, NOW).claim(**asked)
    before = await snapshot()

    again = await at(store, NOW + 1).claim(**asked)

    assert ids(first.leases) == ["a", "b"]
    assert again.leases == first.leases
    assert await snapshot() == before


async def test_repeating_a_claim_does_not_return_what_has_ended_since(store: Store) -> None:
    await submit_all(store, "abc")
    asked: ClaimArguments = {"worker": "w1", "tasks": ["work"], "capacity": 2, "lease_ms": LEASE, "claim_id": "c1"}
    first = await at(store, NOW).claim(**asked)
    await succeed(store, first.leases[0])

    again = await at(store, NOW).claim(**asked)

    assert ids(again.leases) == ["b"]


@pytest.mark.parametrize(
    "fields",
    [
        {"state": State.SUCCEEDED, "result": b"1"},
        {"state": State.FAILED, "error": BROKEN},
        {"state": State.SCHEDULED, "retry_after_ms": HOUR, "error": BROKEN},
        {"state": State.CONFIRMING, "message": "Go on?"},
        {"state": State.CANCELLED, "message": "As you wish."},
        {"state": State.QUEUED},
    ],
    ids=lambda fields: str(fields["state"]),
)
async def test_finishing_again_with_the_token_that_finished_is_answered_as_then(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]], fields: dict[str, Any]
) -> None:
    lease = await start(store, "a", user="u1", groups=("gpu",))
    first = await at(store, NOW).finish([outcome(lease, **fields)])
    before = await snapshot()

    again = await at(store, NOW + MINUTE).finish([outcome(lease, **fields)])

    assert again == first
    assert (first[0].state, first[0].lost) == (fields["state"], False)
    assert await snapshot() == before


async def test_finishing_twice_in_one_call_has_one_effect(store: Store) -> None:
    lease = await start(store, "a")

    answers = await succeed(store, lease, lease)

    assert [(one.lost, one.state) for one in answers] == [(False, State.SUCCEEDED)] * 2
    assert [event.kind for event in (await store.events(0)).events].count("succeeded") == 1


async def test_a_repeated_finish_is_answered_as_then_also_after_a_retry_by_hand(store: Store) -> None:
    lease = await start(store, "a")
    await fail(store, lease)
    await at(store, NOW).retry("a")

    again = await fail(store, lease)

    assert (again.lost, again.state) == (False, State.FAILED)
    assert (await store.job("a")).state is State.QUEUED


async def test_reporting_again_changes_nothing_but_the_feed(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]]
) -> None:
    lease = await start(store, "a")
    report = Advance(job_id="a", token=lease.token, stage="code", iteration=1, checkpoint=b"1", message="m")
    first = await at(store, NOW).advance([report])
    before = await snapshot()

    again = await at(store, NOW).advance([report])

    after = await snapshot()
    assert again == first
    assert {**after, "events": None} == {**before, "events": None}
    assert [event.kind for event in after["events"][len(before["events"]) :]] == ["stage"]


async def test_renewing_again_changes_nothing(store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]]) -> None:
    lease = await start(store, "a")
    renewal = Renewal(holder="a", token=lease.token, lease_ms=LEASE)
    first = await at(store, NOW + 5).renew([renewal])
    before = await snapshot()

    assert await at(store, NOW + 5).renew([renewal]) == first
    assert await snapshot() == before


async def test_acquiring_again_gives_what_is_held_and_no_second_slot(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]]
) -> None:
    await limit(store, "gpu", 2)
    first = await acquire(store, "h", "gpu")
    before = await snapshot()

    again = await acquire(store, "h", "gpu")

    assert again == first
    assert first.slots == {"gpu": 0}
    assert await snapshot() == before


async def test_asking_again_while_waiting_keeps_the_one_place(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]]
) -> None:
    await limit(store, "gpu", 0)
    first = await acquire(store, "h", "gpu")
    before = await snapshot()

    again = await acquire(store, "h", "gpu")

    assert (first.waiting, again) == (True, first)
    assert await snapshot() == before


async def test_the_same_holder_twice_in_one_call_takes_one_slot(store: Store) -> None:
    await limit(store, "gpu", 2)

    first, second = await at(store, NOW).acquire([ticket("h", "gpu"), ticket("h", "gpu")])

    assert first == second
    assert (await group_status(store, "gpu")).active == 1


async def test_releasing_twice_is_harmless(store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]]) -> None:
    grant = await acquire(store, "h", "gpu")
    await acquire(store, "other", "gpu")
    first = await at(store, NOW).release([("h", grant.token)])
    before = await snapshot()

    again = await at(store, NOW).release([("h", grant.token)])

    assert (first, again) == ([True], [False])
    assert await snapshot() == before


async def test_cancelling_again_leaves_a_cancelled_job_as_it_is(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]]
) -> None:
    await submit(store, "a", user="u1", standing=standing(daily_quota=1))
    await submit(store, "deferred", user="u1")
    first = await at(store, NOW).cancel(job_id="a", message="First.", by="ops")
    before = await snapshot()

    again = await at(store, NOW + 1).cancel(job_id="a", message="Second.", by="ops")

    assert again == first
    assert await snapshot() == before


async def test_confirming_again_is_refused_and_grants_nothing_more(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]]
) -> None:
    lease = await start(store, "a", user="u1", standing=standing(iterations_batch=2, iterations_max=6))
    await ask_to_confirm(store, lease)
    await at(store, NOW).confirm("a")
    before = await snapshot()

    with pytest.raises(InvalidTransition, match="queued"):
        await at(store, NOW).confirm("a")

    assert (await store.job("a")).iterations_granted == 4
    assert await snapshot() == before


async def test_retrying_again_is_refused_and_draws_no_second_place(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]]
) -> None:
    lease = await start(store, "a")
    await fail(store, lease)
    await at(store, NOW).retry("a")
    before = await snapshot()

    with pytest.raises(InvalidTransition, match="queued"):
        await at(store, NOW).retry("a")

    assert await snapshot() == before


async def test_registering_again_is_the_same_worker(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]]
) -> None:
    await register(store, "w1", "work", "mail", capacity=3)
    before = await snapshot()

    await register(store, "w1", "work", "mail", capacity=3)

    assert await snapshot() == before


async def test_catching_up_again_finds_nothing_more_to_do(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]]
) -> None:
    await submit(store, "a", run_at_ms=NOW + 1)
    first = await at(store, NOW + 1).catch_up()
    before = await snapshot()

    again = await at(store, NOW + 1).catch_up()

    assert (first.ids, again.ids, again.more) == (("a",), (), False)
    assert await snapshot() == before


async def test_writing_a_record_again_with_the_same_version_is_refused(store: Store) -> None:
    first = await store.put_record("key", {"n": 1}, version=0)
    again = await store.put_record("key", {"n": 1}, version=0)

    assert (first, again) == (True, False)
    assert (await store.records("key")).get("key", Record()).version == 1
