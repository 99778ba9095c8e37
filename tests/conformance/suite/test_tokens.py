"""Fencing: only the present owner's token counts, and tokens only ever grow."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from qo.job import Progress, State
from qo.store.contract import Store
from qo.values import Advance, Finished, Held, Outcome, Renewal
from tests.conformance.suite.harness import (
    BROKEN,
    LEASE,
    NOW,
    acquire,
    ask_to_confirm,
    at,
    claim,
    hand_back,
    limit,
    retry_later,
    run,
    start,
    submit,
    submit_all,
    succeed,
)

OUTCOMES = [
    {"state": State.SUCCEEDED, "result": b"1"},
    {"state": State.FAILED, "error": BROKEN},
    {"state": State.SCHEDULED, "retry_after_ms": 1, "error": BROKEN},
    {"state": State.CONFIRMING, "message": "Go on?"},
    {"state": State.CANCELLED},
    {"state": State.QUEUED, "closed": {"gpu": 5000}},
]


async def test_a_token_is_the_time_in_microseconds_or_one_more_than_the_last(store: Store) -> None:
    await submit_all(store, "abc")
    a, b = await claim(store, capacity=2)
    (c,) = await claim(store, now=NOW + 1)

    assert [a.token, b.token, c.token] == [str(NOW * 1000), str(NOW * 1000 + 1), str((NOW + 1) * 1000)]


async def test_tokens_strictly_increase_also_when_the_clock_goes_back(store: Store) -> None:
    tokens = []
    for number, now in enumerate([NOW, NOW, NOW - 1000, NOW - 10**9, NOW + 5, NOW]):
        lease = await start(store, f"j{number}", now=now)
        tokens.append(int(lease.token))
    grant = await acquire(store, "h", "gpu", now=NOW - 1000)
    assert grant.token is not None
    tokens.append(int(grant.token))

    assert tokens == sorted(set(tokens))


async def test_one_owner_the_same_job_never_has_two_living_leases(store: Store) -> None:
    await submit(store, "a")
    tokens = []
    for _ in range(5):
        (lease,) = await claim(store)
        assert await claim(store) == []
        assert [one.token for one in await store.leases()] == [lease.token]
        tokens.append(int(lease.token))
        await hand_back(store, lease)

    assert tokens == sorted(set(tokens))


@pytest.mark.parametrize("fields", OUTCOMES, ids=lambda fields: str(fields["state"]))
async def test_fenced_finishing_with_a_stale_token_changes_nothing(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]], fields: dict[str, Any]
) -> None:
    await limit(store, "gpu", 1)
    await submit(store, "a", groups=("gpu",))
    (stale,) = await claim(store)
    await at(store, NOW).revoke("gpu", 0, force=True)
    (present,) = await claim(store)
    before = await snapshot()

    answers = await at(store, NOW + 1).finish([Outcome(job_id="a", token=stale.token, **fields)])

    assert answers == [Finished(job_id="a", token=stale.token, lost=True)]
    assert await snapshot() == before
    assert not (await succeed(store, present))[0].lost


async def test_fenced_a_stale_token_reports_and_renews_nothing(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]]
) -> None:
    await submit(store, "a")
    (stale,) = await claim(store)
    await hand_back(store, stale)
    await claim(store)
    before = await snapshot()

    reported = await at(store, NOW).advance([Advance(job_id="a", token=stale.token, stage="x", checkpoint=b"1")])
    renewed = (await at(store, NOW).renew([Renewal(holder="a", token=stale.token, extend_ms=LEASE)])).held

    assert reported == list(renewed) == [Held(holder="a", token=stale.token, lost=True)]
    assert await snapshot() == before


@pytest.mark.parametrize(
    "late",
    [
        {"progress": Progress(9.0, 9.0, "late")},
        {"checkpoint": b"late"},
        {"stage": "late"},
        {"iteration": 9},
        {"message": "late"},
    ],
    ids=lambda late: next(iter(late)),
)
async def test_fenced_a_stale_token_writes_nothing_into_a_job_that_runs(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]], late: dict[str, Any]
) -> None:
    await submit(store, "a")
    (stale,) = await claim(store)
    await hand_back(store, stale)
    (present,) = await claim(store)
    await run(store, present, progress=Progress(1.0, 9.0, "new"), checkpoint=b"new", stage="code", iteration=1)
    before = await snapshot()

    answers = await at(store, NOW + 1).advance([Advance(job_id="a", token=stale.token, **late)])

    assert answers == [Held(holder="a", token=stale.token, lost=True)]
    assert await snapshot() == before
    await hand_back(store, present)
    (next_one,) = await claim(store)
    assert next_one.checkpoint == b"new"


@pytest.mark.parametrize("token", ["0", "1", "999999999999999999999999", "not-a-number", "-1", "1.5", "٣"])
async def test_fenced_a_token_that_was_never_given_changes_nothing(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]], token: str
) -> None:
    await submit(store, "a")
    await claim(store)
    await acquire(store, "h", "gpu")
    before = await snapshot()

    finished = await at(store, NOW).finish([Outcome(job_id="a", token=token, state=State.SUCCEEDED)])
    reported = await at(store, NOW).advance([Advance(job_id="a", token=token)])
    renewed = (await at(store, NOW).renew([Renewal(holder=one, token=token, extend_ms=5) for one in ("a", "h")])).held
    released = await at(store, NOW).release([("h", token)])

    assert finished[0].lost
    assert all(held.lost for held in (*reported, *renewed))
    assert released == [False]
    assert await snapshot() == before


async def test_fenced_the_token_of_another_job_changes_nothing(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]]
) -> None:
    a, b = await start(store, "a"), await start(store, "b")
    before = await snapshot()

    crossed = [Outcome(job_id="a", token=b.token, state=State.SUCCEEDED)]
    finished = await at(store, NOW).finish(crossed)
    renewed = (await at(store, NOW).renew([Renewal(holder="b", token=a.token, extend_ms=5)])).held

    assert finished[0].lost
    assert renewed[0].lost
    assert await snapshot() == before


async def test_fenced_a_job_nobody_knows_is_lost_and_no_error(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]]
) -> None:
    before = await snapshot()

    finished = await at(store, NOW).finish([Outcome(job_id="nobody", token="1", state=State.SUCCEEDED)])
    reported = await at(store, NOW).advance([Advance(job_id="nobody", token="1")])

    assert (finished[0].lost, reported[0].lost) == (True, True)
    assert await snapshot() == before


async def test_in_a_list_the_stale_ones_are_told_and_the_others_count(store: Store) -> None:
    a, b = await start(store, "a", groups=("gpu",)), await start(store, "b")
    await at(store, NOW).revoke("gpu", 0, force=True)

    answers = await succeed(store, a, b)

    assert [(one.job_id, one.lost, one.state) for one in answers] == [
        ("a", True, None),
        ("b", False, State.SUCCEEDED),
    ]


async def test_only_the_last_token_that_finished_is_answered_as_then(store: Store) -> None:
    await submit(store, "a")
    (stale,) = await claim(store)
    await retry_later(store, stale, at=NOW + 1)
    (second,) = await claim(store, now=NOW + 1)
    await ask_to_confirm(store, second, now=NOW + 2)

    first_again = await succeed(store, stale, now=NOW + 3)
    second_again = await succeed(store, second, now=NOW + 3)

    assert first_again[0].lost
    assert (second_again[0].lost, second_again[0].state) == (False, State.CONFIRMING)
