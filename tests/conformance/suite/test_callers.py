"""Slots without a job: callers who take, wait, are handed what becomes free, and give back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from qo.job import moment
from qo.store.contract import HANDED_OVER_LEASE_MS, Store
from qo.values import Grant, Renewal
from tests.conformance.suite.harness import (
    LEASE,
    NOW,
    SECOND,
    acquire,
    active,
    at,
    catch_up,
    claim,
    events_of,
    group_status,
    held,
    kinds_of,
    limit,
    pass_time,
    start,
    submit,
    succeed,
    ticket,
)

pytestmark = pytest.mark.small_bounds

WAIT = 15 * SECOND


async def test_a_handed_over_lease_is_never_longer_than_the_one_that_was_asked_for(store: Store) -> None:
    await limit(store, "gpu", 1)
    await acquire(store, "a", "gpu")
    await acquire(store, "b", "gpu", lease_ms=2000)
    await at(store, NOW).release([("a", None)])

    (slot,) = (await group_status(store, "gpu")).slots
    assert (slot.holder, slot.expires_at) == ("b", moment(NOW + 2000))


async def test_a_caller_takes_a_slot_in_each_of_its_groups(store: Store) -> None:
    await limit(store, "provider:ollama", 4)
    await limit(store, "providers", 12)

    grant = await acquire(store, "h", "provider:ollama", "providers", worker="w1")

    assert grant.slots == {"provider:ollama": 0, "providers": 0}
    assert (grant.expires_at, grant.waiting) == (moment(NOW + LEASE), False)
    (slot,) = (await group_status(store, "providers")).slots
    assert (slot.holder, slot.worker_id, slot.token) == ("h", "w1", grant.token)


async def test_a_caller_is_recorded_in_an_unlimited_group_and_told_no_number_there(store: Store) -> None:
    await limit(store, "providers", 12)

    grant = await acquire(store, "h", "provider:free", "providers")

    assert grant.slots == {"providers": 0}
    assert await held(store, "provider:free") == {"provider:free": ["h"]}


async def test_all_or_nothing_holds_for_callers_too(store: Store) -> None:
    await limit(store, "provider:ollama", 5)
    await limit(store, "providers", 1)
    await acquire(store, "first", "providers")

    grant = await acquire(store, "second", "provider:ollama", "providers")

    assert grant == Grant(holder="second", waiting=True)
    assert await active(store, "provider:ollama") == 0


async def test_callers_who_wait_get_their_slots_in_the_order_they_came(store: Store) -> None:
    await limit(store, "gpu", 1)
    present = await acquire(store, "a", "gpu")
    for holder in "bcd":
        await acquire(store, holder, "gpu")

    order = []
    for _ in range(3):
        await at(store, NOW).release([(present.holder, present.token)])
        (holder,) = (await held(store, "gpu"))["gpu"]
        present = await acquire(store, holder, "gpu")
        order.append(holder)

    assert order == ["b", "c", "d"]


async def test_a_callers_priority_orders_it_among_the_others(store: Store) -> None:
    await limit(store, "gpu", 1)
    present = await acquire(store, "a", "gpu")
    await acquire(store, "low", "gpu", priority=70)
    await acquire(store, "normal", "gpu")
    await acquire(store, "urgent", "gpu", priority=10)

    await at(store, NOW).release([("a", present.token)])

    assert await held(store, "gpu") == {"gpu": ["urgent"]}


async def test_a_new_caller_does_not_get_past_those_who_wait(store: Store) -> None:
    """One slot is free, but the first in line needs it together with another group's."""
    await limit(store, "gpu", 1)
    await limit(store, "api", 1)
    gpu = await acquire(store, "a", "gpu")
    await acquire(store, "b", "gpu")

    await at(store, NOW).release([("a", gpu.token)])
    late = await acquire(store, "late", "gpu")

    assert late.waiting
    assert await held(store, "gpu") == {"gpu": ["b"]}


async def test_a_caller_who_cannot_go_does_not_hold_up_one_who_can(store: Store) -> None:
    await limit(store, "gpu", 1)
    await limit(store, "api", 1)
    await acquire(store, "a", "api")
    both = await acquire(store, "both", "gpu", "api")

    only_gpu = await acquire(store, "gpu-only", "gpu")

    assert both.waiting
    assert only_gpu.slots == {"gpu": 0}


async def test_a_slot_handed_over_later_is_a_short_lease_and_told(store: Store) -> None:
    await limit(store, "gpu", 1)
    first = await acquire(store, "a", "gpu")
    await acquire(store, "b", "gpu")

    await at(store, NOW + 1000).release([("a", first.token)])

    (slot,) = (await group_status(store, "gpu")).slots
    assert (slot.holder, slot.expires_at) == ("b", moment(NOW + 1000 + HANDED_OVER_LEASE_MS))
    told = {"token": slot.token, "slots": {"gpu": 0}, "expires_at": NOW + 1000 + HANDED_OVER_LEASE_MS}
    assert await events_of(store, "b") == [("granted", told)]
    assert await events_of(store, "a") == []


async def test_the_first_renewal_makes_a_handed_over_slot_a_full_lease(store: Store) -> None:
    await limit(store, "gpu", 1)
    first = await acquire(store, "a", "gpu")
    await acquire(store, "b", "gpu")
    await at(store, NOW).release([("a", first.token)])
    grant = await acquire(store, "b", "gpu")

    assert grant.token is not None
    (renewed,) = (await at(store, NOW + 5000).renew([Renewal(holder="b", token=grant.token, lease_ms=LEASE)])).held

    assert grant.expires_at == moment(NOW + HANDED_OVER_LEASE_MS)
    assert renewed.expires_at == moment(NOW + 5000 + LEASE)


async def test_a_handed_over_slot_that_nobody_notices_goes_to_the_next(store: Store) -> None:
    await limit(store, "gpu", 1)
    first = await acquire(store, "a", "gpu")
    await acquire(store, "dead", "gpu")
    await acquire(store, "alive", "gpu", wait_ms=60 * SECOND)
    await at(store, NOW).release([("a", first.token)])

    await catch_up(store, now=NOW + HANDED_OVER_LEASE_MS)

    assert await held(store, "gpu") == {"gpu": ["alive"]}
    assert await kinds_of(store, "dead") == ["granted", "lease_lost"]


async def test_a_waiting_caller_lives_as_long_as_it_asks_or_renews(store: Store) -> None:
    await limit(store, "gpu", 1)
    first = await acquire(store, "a", "gpu")
    await acquire(store, "asks", "gpu", wait_ms=WAIT)
    await acquire(store, "renews", "gpu", wait_ms=WAIT)
    await acquire(store, "dies", "gpu", wait_ms=WAIT)

    await acquire(store, "asks", "gpu", wait_ms=WAIT, now=NOW + 10 * SECOND)
    await at(store, NOW + 10 * SECOND).renew([], tickets=["renews"])
    await catch_up(store, now=NOW + WAIT)
    waiting = (await group_status(store, "gpu")).waiting
    await at(store, NOW + 16 * SECOND).release([("a", first.token)])

    assert waiting == 2
    assert await held(store, "gpu") == {"gpu": ["asks"]}


async def test_a_dead_caller_is_passed_over_by_a_hand_over(store: Store) -> None:
    await limit(store, "gpu", 1)
    first = await acquire(store, "a", "gpu")
    await acquire(store, "dead", "gpu", wait_ms=WAIT)
    await acquire(store, "alive", "gpu", wait_ms=2 * WAIT)

    await at(store, NOW + WAIT).release([("a", first.token)])

    assert await held(store, "gpu") == {"gpu": ["alive"]}
    assert await kinds_of(store, "dead") == []


async def test_without_a_wait_a_caller_is_answered_now_and_forgotten(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]]
) -> None:
    await limit(store, "gpu", 1)
    first = await acquire(store, "a", "gpu", wait_ms=0)

    refused = await acquire(store, "b", "gpu", wait_ms=0)

    assert first.slots == {"gpu": 0}
    assert refused == Grant(holder="b")
    assert (await snapshot())["tickets"] == {}


async def test_many_callers_at_once_never_have_more_than_the_limit(store: Store) -> None:
    await limit(store, "gpu", 3)

    grants = await asyncio.gather(*(acquire(store, f"h{number}", "gpu") for number in range(30)))

    assert sum(grant.token is not None for grant in grants) == 3
    assert sorted(grant.slots["gpu"] for grant in grants if grant.token) == [0, 1, 2]
    assert (await group_status(store, "gpu")).active == 3


async def test_several_tickets_in_one_call_are_served_in_order(store: Store) -> None:
    await limit(store, "gpu", 2)

    grants = await at(store, NOW).acquire([ticket(holder, "gpu") for holder in "abc"])

    assert [(grant.holder, grant.slots, grant.waiting) for grant in grants] == [
        ("a", {"gpu": 0}, False),
        ("b", {"gpu": 1}, False),
        ("c", {}, True),
    ]


# --- giving back ------------------------------------------------------------------------------------------------


async def test_a_release_needs_the_right_token(store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]]) -> None:
    await acquire(store, "a", "gpu")
    other = await acquire(store, "b", "gpu")
    before = await snapshot()

    answers = await at(store, NOW).release([("a", other.token), ("a", "1"), ("nobody", other.token)])

    assert answers == [False, False, False]
    assert await snapshot() == before


async def test_without_a_token_a_release_gives_back_whatever_that_holder_has(store: Store) -> None:
    await limit(store, "gpu", 1)
    await acquire(store, "holds", "gpu")
    await acquire(store, "waits", "gpu")

    answers = await at(store, NOW).release([("waits", None), ("holds", None), ("nobody", None)])

    status = await group_status(store, "gpu")
    assert answers == [True, True, False]
    assert (status.active, status.waiting) == (0, 0)


async def test_a_release_never_touches_a_jobs_lease(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]]
) -> None:
    lease = await start(store, "a", groups=("gpu",))
    before = await snapshot()

    answers = await at(store, NOW).release([("a", lease.token), ("a", None)])

    assert answers == [False, False]
    assert await snapshot() == before


async def test_a_finish_never_touches_a_callers_lease(store: Store) -> None:
    await submit(store, "a", groups=("gpu",))
    grant = await acquire(store, "a", "gpu")
    (lease,) = await claim(store)

    await succeed(store, lease)

    assert await held(store, "gpu") == {"gpu": ["a"]}
    assert grant.token != lease.token


async def test_a_callers_lease_that_ran_out_frees_its_slots_and_it_is_told(store: Store) -> None:
    await limit(store, "gpu", 1)
    grant = await acquire(store, "a", "gpu")

    await pass_time(store, since=NOW, until=NOW + LEASE)

    assert await active(store, "gpu") == 0
    assert await events_of(store, "a") == [
        ("lease_lost", {"token": grant.token, "reason": "expired", "groups": ["gpu"]})
    ]
    assert grant.token is not None
    (late,) = (await at(store, NOW + LEASE).renew([Renewal(holder="a", token=grant.token, lease_ms=LEASE)])).held
    assert late.lost


async def test_a_callers_slot_can_be_revoked(store: Store) -> None:
    grant = await acquire(store, "a", "gpu", "api")

    who = await at(store, NOW).revoke("gpu", 0, force=True, by="ops")

    assert who == "a"
    assert (await active(store, "gpu"), await active(store, "api")) == (0, 0)
    assert await at(store, NOW).release([("a", grant.token)]) == [False]


async def test_a_renewed_caller_keeps_its_slot(store: Store) -> None:
    grant = await acquire(store, "a", "gpu")
    assert grant.token is not None
    for step in range(1, 10):
        now = NOW + step * 100 * SECOND
        (renewed,) = (await at(store, now).renew([Renewal(holder="a", token=grant.token, lease_ms=LEASE)])).held
        await catch_up(store, now=now)
        assert not renewed.lost

    assert await held(store, "gpu") == {"gpu": ["a"]}
