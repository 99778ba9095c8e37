"""When a slot on a bucket changes hands although nobody gave it back: by what was seen, never by a clock on a wall."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from qo.errors import StoreUnavailable
from qo.store.bucket import SlotLease
from qo.store.bucket.objects import ATTEMPTS
from tests.store.bucket.proxy import LOST_REPLY, Proxy, arrives_late, refused
from tests.store.bucket.staging import (
    LEASE,
    Clock,
    Place,
    acquire,
    holders,
    place_fixture,
    proxy_fixture,
    slots_fixture,
)

__all__ = ["place_fixture", "proxy_fixture", "slots_fixture"]

SKEWS = [timedelta(), timedelta(minutes=10), timedelta(minutes=-10), timedelta(days=400)]


async def test_a_dead_holders_slot_is_taken_by_who_has_seen_it_unchanged_for_a_lease(place: Place) -> None:
    clock = Clock()
    dead, contender = await place.slots(), await place.slots(clock)
    await acquire(dead, "dead")
    assert await acquire(contender, "next") is None

    clock.elapsed += LEASE - 0.001
    assert await acquire(contender, "next") is None
    clock.elapsed += 0.001
    assert await acquire(contender, "next") == 0

    assert not await dead.renew("api", 0, "dead")
    assert not dead.still_held("api", 0, "dead")


async def test_who_has_just_come_has_seen_nothing_yet(place: Place) -> None:
    clock = Clock()
    await acquire(await place.slots(clock), "dead")
    clock.elapsed += 10 * LEASE

    newcomer = await place.slots(clock)

    assert await acquire(newcomer, "next") is None
    clock.elapsed += LEASE
    assert await acquire(newcomer, "next") == 0


@pytest.mark.parametrize("skew", SKEWS)
async def test_a_living_holder_keeps_its_slot_however_wrong_the_clocks_are(place: Place, skew: timedelta) -> None:
    holders_clock, contenders_clock = Clock(), Clock(elapsed=9_000_000.0, wrong_by=skew)
    holder, contender = await place.slots(holders_clock), await place.slots(contenders_clock)
    await acquire(holder, "living")

    for _ in range(10):
        assert await acquire(contender, "next") is None
        for clock in (holders_clock, contenders_clock):
            clock.elapsed += LEASE / 3
        assert await holder.renew("api", 0, "living")

    assert holder.still_held("api", 0, "living")


@pytest.mark.parametrize("skew", SKEWS)
async def test_the_holder_gives_up_before_anybody_may_take_over(place: Place, skew: timedelta) -> None:
    """Time passes for both in small steps; at no step do both hold the slot."""
    clocks = [Clock(), Clock(elapsed=5.0, wrong_by=skew)]
    holder, contender = [await place.slots(clock) for clock in clocks]
    await acquire(holder, "cut off")

    gave_up_at = taken_at = None
    for second in range(0, 2 * int(LEASE), 2):
        if gave_up_at is None and not holder.still_held("api", 0, "cut off"):
            gave_up_at = second
        if await acquire(contender, "next") is not None:
            taken_at = second
            break
        for clock in clocks:
            clock.elapsed += 2

    assert taken_at == LEASE
    assert gave_up_at is not None
    assert gave_up_at < taken_at


async def test_two_contenders_who_both_saw_it_run_out_do_not_both_get_it(place: Place) -> None:
    clock = Clock()
    await acquire(await place.slots(clock), "dead")
    contenders = [await place.slots(clock) for _ in range(4)]
    for n, contender in enumerate(contenders):
        assert await acquire(contender, f"h{n}") is None
    clock.elapsed += LEASE

    taken = await asyncio.gather(*(acquire(contender, f"h{n}") for n, contender in enumerate(contenders)))

    assert sorted(taken, key=str) == [0, None, None, None]


async def test_a_renewal_at_the_last_moment_wins_over_a_takeover(place: Place, proxy: Proxy) -> None:
    """The contender has decided and its write is under way when the holder, by a slower clock, renews."""
    clock, on_its_way = Clock(), asyncio.Event()
    holder, contender = await place.slots(Clock()), await place.slots(clock, through=proxy)
    await acquire(holder, "slow")
    assert await acquire(contender, "next") is None
    clock.elapsed += LEASE
    proxy.plan("PUT", arrives_late(on_its_way))
    proxy.plan("GET", *[refused(503)] * ATTEMPTS)
    proxy.plan("PUT", *[refused(503)] * (ATTEMPTS - 1))

    with pytest.raises(StoreUnavailable):
        await acquire(contender, "next")
    assert await holder.renew("api", 0, "slow")
    on_its_way.set()
    await asyncio.gather(*proxy.late)

    assert proxy.all_happened
    assert await holders(holder) == ["slow"]
    assert await holder.renew("api", 0, "slow")


async def test_a_lost_lease_stays_lost_although_nobody_took_the_slot(place: Place) -> None:
    clock = Clock()
    slots = await place.slots(clock)
    await acquire(slots)
    clock.elapsed += LEASE

    assert not slots.still_held("api", 0, "h")
    assert not await slots.renew("api", 0, "h")
    assert not await slots.extend_lease("api", 0, "h", 60)
    assert await acquire(slots) == 0, "but it can be taken anew"
    assert slots.still_held("api", 0, "h")


async def test_a_lost_lease_can_still_be_given_back_early(place: Place) -> None:
    clock = Clock()
    slots, contender = await place.slots(clock), await place.slots()
    await acquire(slots, "late")
    clock.elapsed += LEASE
    assert await acquire(contender, "next") is None

    assert await slots.release("api", 0, "late")

    assert await acquire(contender, "next") == 0


async def test_the_deadline_counts_from_before_the_write_was_sent(place: Place, proxy: Proxy) -> None:
    """The first attempt may be the one that arrived, so later attempts do not move it."""
    clock = Clock()

    async def slow_pause(seconds: float) -> None:
        clock.elapsed += 20

    slots = await place.slots(clock, through=proxy, sleep=slow_pause)
    await acquire(slots)
    clock.elapsed += 100
    sent_at = clock.elapsed
    proxy.plan("PUT", refused(500), refused(500))
    assert await slots.renew("api", 0, "h")

    assert clock.elapsed == sent_at + 40
    assert deadline(slots.lease("api", 0, "h")) == pytest.approx(sent_at + 0.99 * LEASE)


async def test_a_write_that_took_longer_than_the_lease_gives_none(place: Place, proxy: Proxy) -> None:
    clock = Clock()

    async def endless_pause(seconds: float) -> None:
        clock.elapsed += LEASE

    slots = await place.slots(clock, through=proxy, sleep=endless_pause)
    proxy.plan("PUT", refused(500))

    assert await acquire(slots) is None
    assert await holders(slots) == []


async def test_an_extension_adds_to_the_end_and_a_renewal_never_shortens_it(place: Place) -> None:
    clock, watching = Clock(), Clock()
    slots, contender = await place.slots(clock), await place.slots(watching)
    await acquire(slots)
    clock.elapsed += 100
    assert await slots.extend_lease("api", 0, "h", 600)
    ends_at = 1000.0 + LEASE + 600

    clock.elapsed += 100
    assert await slots.renew("api", 0, "h")

    lease = slots.lease("api", 0, "h")
    assert lease is not None
    assert lease.ends_at == pytest.approx(ends_at)
    assert await acquire(contender, "next") is None
    watching.elapsed += 699
    assert await acquire(contender, "next") is None
    watching.elapsed += 1
    assert await acquire(contender, "next") == 0


async def test_a_renewal_near_the_end_of_an_extension_gives_a_whole_lease(place: Place) -> None:
    clock = Clock()
    slots = await place.slots(clock)
    await acquire(slots)
    await slots.extend_lease("api", 0, "h", 600)
    clock.elapsed += 850

    assert await slots.renew("api", 0, "h")

    lease = slots.lease("api", 0, "h")
    assert lease is not None
    assert lease.ends_at == pytest.approx(clock.elapsed + LEASE)


async def test_an_extension_by_another_process_never_takes_time_from_the_holder(place: Place) -> None:
    clock = Clock()
    slots, operator = await place.slots(clock), await place.slots()
    await acquire(slots)
    clock.elapsed += 10

    assert await operator.extend_lease("api", 0, "h", 60)

    assert slots.still_held("api", 0, "h")
    assert await slots.renew("api", 0, "h")
    lease = slots.lease("api", 0, "h")
    assert lease is not None
    assert lease.ends_at >= clock.elapsed + LEASE + 60


async def test_cleaning_up_frees_what_was_seen_unchanged_for_a_lease_and_nothing_else(place: Place) -> None:
    clock = Clock()
    slots, living = await place.slots(clock), await place.slots()
    await acquire(await place.slots(), "dead", limit=2)
    number = await acquire(living, "living", limit=2)
    assert number is not None
    assert await slots.cleanup_expired("api") == 0, "nothing was seen for long enough yet"
    clock.elapsed += LEASE
    await living.renew("api", number, "living")

    assert await slots.cleanup_expired("api") == 1
    assert await slots.cleanup_expired("api") == 0

    assert await holders(living) == ["living"]


async def test_the_status_leaves_out_who_was_seen_to_be_gone(place: Place) -> None:
    clock = Clock()
    slots = await place.slots(clock)
    await acquire(await place.slots(), "dead")
    assert await holders(slots) == ["dead"]

    clock.elapsed += LEASE

    assert await holders(slots) == []


async def test_a_lost_reply_to_a_renewal_does_not_lose_the_lease(place: Place, proxy: Proxy) -> None:
    slots = await place.slots(through=proxy)
    await acquire(slots)
    proxy.plan("PUT", LOST_REPLY)

    assert await slots.renew("api", 0, "h")
    assert await slots.renew("api", 0, "h")
    assert proxy.all_happened


def deadline(lease: SlotLease | None) -> float:
    assert lease is not None
    return lease.deadline
