"""Requests that get lost, answers that get lost, servers that say no, or that say one thing and do another."""

from __future__ import annotations

import asyncio
import socket

import pytest

from qo.errors import StoreUnavailable
from qo.store.bucket import BucketSlots
from qo.store.bucket.objects import ATTEMPTS, FIRST_PAUSE_SECONDS
from tests.servers.bucket import bucket_url
from tests.store.bucket.proxy import ALL_FAULTS, LOST_REPLY, LOST_REQUEST, Fault, Proxy, arrives_late, refused
from tests.store.bucket.staging import LEASE, Clock, Place, acquire, holders, place_fixture, proxy_fixture

__all__ = ["place_fixture", "proxy_fixture"]

each_fault = pytest.mark.parametrize("fault", ALL_FAULTS, ids=repr)


@each_fault
async def test_an_acquire_that_fared_badly_once_holds_one_slot(place: Place, proxy: Proxy, fault: Fault) -> None:
    slots = await place.slots(through=proxy)
    proxy.plan("PUT", fault)

    number = await acquire(slots, limit=3)

    assert proxy.all_happened
    assert number is not None
    assert await holders(await place.slots()) == ["h"]
    assert await slots.renew("api", number, "h")


@each_fault
async def test_a_renewal_that_fared_badly_once_keeps_the_slot(place: Place, proxy: Proxy, fault: Fault) -> None:
    slots = await place.slots(through=proxy)
    await acquire(slots)
    proxy.plan("PUT", fault)

    assert await slots.renew("api", 0, "h")

    assert proxy.all_happened
    assert await slots.extend_lease("api", 0, "h", 60)


@each_fault
async def test_a_release_that_fared_badly_once_frees_the_slot(place: Place, proxy: Proxy, fault: Fault) -> None:
    slots = await place.slots(through=proxy)
    await acquire(slots)
    proxy.plan("PUT", fault)

    assert await slots.release("api", 0, "h")

    assert proxy.all_happened
    assert await acquire(await place.slots(), "next") == 0


@each_fault
async def test_a_limit_whose_write_fared_badly_once_is_set(place: Place, proxy: Proxy, fault: Fault) -> None:
    slots = await place.slots(through=proxy)
    proxy.plan("PUT", fault, path="/limit")

    await slots.set_limit("api", 7)

    assert proxy.all_happened
    assert await slots.limit("api") == 7


@pytest.mark.parametrize("fault", [LOST_REQUEST, refused(500), refused(503), refused(429)], ids=repr)
async def test_reads_and_listings_are_tried_again(place: Place, proxy: Proxy, fault: Fault) -> None:
    slots = await place.slots(through=proxy)
    await acquire(await place.slots(), "other", limit=2)
    proxy.plan("GET", fault, path="list-type")
    proxy.plan("GET", fault, path="/slots/")

    assert await acquire(slots, limit=2) is not None

    assert proxy.all_happened


async def test_a_write_taken_for_failed_by_a_rival_is_not_taken_for_ones_own(place: Place, proxy: Proxy) -> None:
    """A 500 for a write that never arrived, and a rival's write in its place."""
    rival = await place.slots()

    async def rival_comes_in_the_pause(seconds: float) -> None:
        await acquire(rival, "rival")

    slots = await place.slots(through=proxy, sleep=rival_comes_in_the_pause)
    asked = asyncio.Event()
    proxy.plan("PUT", arrives_late(asked))
    proxy.plan("GET", refused(503))

    assert await acquire(slots) is None
    asked.set()
    await asyncio.gather(*proxy.late)

    assert proxy.all_happened
    assert await holders(rival) == ["rival"]
    assert await rival.renew("api", 0, "rival")


async def test_an_attempt_that_arrives_after_its_repetition_changes_nothing(place: Place, proxy: Proxy) -> None:
    slots = await place.slots(through=proxy)
    await acquire(slots)
    held = asyncio.Event()
    proxy.plan("PUT", arrives_late(held))
    assert await slots.renew("api", 0, "h")
    assert await slots.release("api", 0, "h")
    other = await place.slots()
    await acquire(other, "next")

    held.set()
    await asyncio.gather(*proxy.late)

    assert len(proxy.late) == 1
    assert await holders(other) == ["next"]
    assert await other.renew("api", 0, "next")


async def test_an_acquire_that_was_given_up_and_arrives_late_costs_one_lease_and_no_more(
    place: Place, proxy: Proxy
) -> None:
    slots, clock = await place.slots(through=proxy), Clock()
    held = asyncio.Event()
    proxy.plan("PUT", arrives_late(held), *[LOST_REQUEST] * (ATTEMPTS - 1))
    with pytest.raises(StoreUnavailable):
        await acquire(slots, "ghost")
    held.set()
    await asyncio.gather(*proxy.late)

    contender = await place.slots(clock)
    assert not slots.still_held("api", 0, "ghost")
    assert await acquire(contender, "next") is None
    clock.elapsed += LEASE
    assert await acquire(contender, "next") == 0


async def test_who_asks_again_after_an_unknown_outcome_gets_the_slot_it_had_got(place: Place, proxy: Proxy) -> None:
    slots = await place.slots(through=proxy)
    proxy.plan("PUT", LOST_REPLY, *[LOST_REQUEST] * (ATTEMPTS - 1))
    proxy.plan("GET", *[refused(503)] * ATTEMPTS)
    with pytest.raises(StoreUnavailable):
        await acquire(slots, limit=3)
    [ghost] = (await (await place.slots()).get_status("api")).slots

    assert await acquire(slots, limit=3) == ghost.slot_id
    assert await holders(slots) == ["h"]


async def test_a_renewal_whose_outcome_stayed_unknown_can_be_asked_again(place: Place, proxy: Proxy) -> None:
    slots = await place.slots(through=proxy)
    await acquire(slots)
    proxy.plan("PUT", LOST_REPLY, *[LOST_REQUEST] * (ATTEMPTS - 1))
    proxy.plan("GET", *[refused(503)] * ATTEMPTS)
    with pytest.raises(StoreUnavailable):
        await slots.renew("api", 0, "h")
    assert proxy.all_happened

    assert slots.still_held("api", 0, "h")
    assert await slots.renew("api", 0, "h")


async def test_renewals_at_the_same_moment_do_not_lose_the_lease_to_each_other(place: Place) -> None:
    slots = await place.slots()
    await acquire(slots)

    assert all(await asyncio.gather(*(slots.renew("api", 0, "h") for _ in range(3))))
    assert await slots.renew("api", 0, "h")


async def test_a_renewal_and_a_release_at_the_same_moment_end_released(place: Place) -> None:
    for _ in range(5):
        slots = await place.slots()
        await acquire(slots)

        await asyncio.gather(slots.renew("api", 0, "h"), slots.release("api", 0, "h"))

        assert not slots.still_held("api", 0, "h")
        assert await holders(await place.slots()) == []


async def test_pauses_between_attempts_grow_and_differ_and_attempts_are_bounded(place: Place, proxy: Proxy) -> None:
    clock = Clock()
    slots = await place.slots(clock, through=proxy)
    proxy.requests.clear()
    proxy.plan("PUT", *[refused(503)] * 2 * ATTEMPTS)

    with pytest.raises(StoreUnavailable, match=r"s3://.* cannot be used \(.*503.*\); see that it is up"):
        await acquire(slots)

    assert sum(each.method == "PUT" for each in proxy.requests) == ATTEMPTS
    assert len(clock.pauses) == ATTEMPTS - 1
    for n, pause in enumerate(clock.pauses):
        assert 0.5 * FIRST_PAUSE_SECONDS * 2**n <= pause <= FIRST_PAUSE_SECONDS * 2**n


async def test_a_server_that_hangs_is_left_after_the_time_of_one_request(place: Place, proxy: Proxy) -> None:
    slots = await place.slots(through=proxy, request_seconds=0.2)
    await acquire(slots)
    held = asyncio.Event()
    proxy.hanging = held

    with pytest.raises(StoreUnavailable, match="cannot be used"):
        await slots.renew("api", 0, "h")

    held.set()


async def test_an_unreachable_server_is_told_with_its_address() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with pytest.raises(StoreUnavailable, match=rf"127\.0\.0\.1:{port} cannot be used .*see that it is up"):
            await BucketSlots.open(bucket_url(port), sleep=Clock().sleep)


@pytest.mark.parametrize("status", [401, 403])
async def test_missing_rights_are_told_at_once(place: Place, proxy: Proxy, status: int) -> None:
    proxy.plan("PUT", refused(status), path="/probes/")
    clock = Clock()

    with pytest.raises(StoreUnavailable, match="credentials must be allowed"):
        await place.slots(clock, through=proxy)

    assert clock.pauses == []
