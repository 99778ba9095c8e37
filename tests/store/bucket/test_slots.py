"""Slots on a bucket: taking, giving back, limits. Against a real S3 server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from datetime import timedelta

import msgspec
import pytest

from qo.errors import InvalidValue, StoreUnavailable
from qo.store.bucket import BucketSlots
from qo.values import Source
from tests.store.bucket.proxy import Proxy
from tests.store.bucket.staging import (
    LEASE,
    NOON,
    Clock,
    Place,
    acquire,
    holders,
    objects_at,
    place_fixture,
    proxy_fixture,
    put_object,
    slots_fixture,
)

__all__ = ["place_fixture", "proxy_fixture", "slots_fixture"]


def stored(place: Place) -> dict[str, bytes]:
    return objects_at(place.server.port, place.prefix)


# --- taking and giving back -----------------------------------------------------------------------------------


async def test_as_many_as_the_limit_get_slots_with_different_numbers(slots: BucketSlots) -> None:
    taken = [await acquire(slots, f"h{n}", limit=3) for n in range(5)]

    assert sorted(number for number in taken if number is not None) == [0, 1, 2]
    assert taken[3:] == [None, None]


async def test_a_slot_is_one_object_that_people_can_read(place: Place) -> None:
    slots = await place.slots(Clock(elapsed=0))
    await slots.try_acquire("provider:ollama", 1, "h", "machine-7", 60)

    body = msgspec.json.decode(stored(place)["concurrency/provider:ollama/slots/0"])

    assert (body["holder"], body["worker_id"], body["lease_seconds"]) == ("h", "machine-7", 60)
    assert body["expires_at"] == "2026-01-01T12:01:00Z"
    assert (body["renewals"], len(body["mark"])) == (0, 24)


async def test_what_is_released_can_be_taken_by_another(place: Place) -> None:
    one, other = await place.slots(), await place.slots()
    assert await acquire(one, "a") == 0
    assert await acquire(other, "b") is None

    assert await one.release("api", 0, "a")

    assert await acquire(other, "b") == 0
    assert await acquire(one, "a") is None


async def test_the_same_holder_gets_its_own_slot_and_no_second(place: Place) -> None:
    slots = await place.slots()
    first = await acquire(slots, limit=3)

    assert await acquire(slots, limit=3) == first
    assert await acquire(await place.slots(), limit=3) == first, "from another process"
    assert await holders(slots) == ["h"]


async def test_two_calls_at_once_for_one_holder_get_one_slot(slots: BucketSlots) -> None:
    taken = await asyncio.gather(*(acquire(slots, limit=5) for _ in range(4)))

    assert len(set(taken)) == 1
    assert await holders(slots) == ["h"]


async def test_contenders_at_the_same_moment_never_get_more_than_there_are(place: Place) -> None:
    contenders = [await place.slots() for _ in range(12)]

    taken = await asyncio.gather(*(acquire(each, f"h{n}", limit=4) for n, each in enumerate(contenders)))

    got = [number for number in taken if number is not None]
    assert len(set(got)) == len(got) <= 4
    assert len(await holders(contenders[0])) == len(got) > 0


async def test_slots_are_tried_in_shuffled_order(place: Place) -> None:
    slots = await place.slots()

    first_tried = {await acquire(slots, group=f"g{n}", limit=5) for n in range(30)}

    assert len(first_tried) > 1


async def test_a_wrong_holder_changes_nothing_and_is_told(place: Place) -> None:
    slots, others = await place.slots(), await place.slots()
    await acquire(slots, "right")
    before = stored(place)

    for each in (slots, others):
        assert not await each.release("api", 0, "wrong")
        assert not await each.renew("api", 0, "wrong")
        assert not await each.extend_lease("api", 0, "wrong", 60)
        assert not await each.release("api", 7, "right")

    assert stored(place) == before
    assert slots.still_held("api", 0, "right")


async def test_to_release_twice_is_harmless(slots: BucketSlots) -> None:
    await acquire(slots)

    assert [await slots.release("api", 0, "h") for _ in range(2)] == [True, False]


async def test_a_released_slot_leaves_a_free_record_with_its_token(place: Place) -> None:
    slots = await place.slots()
    await acquire(slots)
    lease = slots.lease("api", 0, "h")
    await slots.release("api", 0, "h")

    body = msgspec.json.decode(stored(place)["concurrency/api/slots/0"])

    assert lease is not None
    assert (body["holder"], body["worker_id"], body["token"]) == (None, None, lease.token)


async def test_tokens_of_a_slot_grow_also_when_the_next_clock_is_minutes_behind(place: Place) -> None:
    tokens = []
    for minutes in (0, -10, 5, -60):
        slots = await place.slots(Clock(wrong_by=timedelta(minutes=minutes)))
        await acquire(slots)
        lease = slots.lease("api", 0, "h")
        assert lease is not None
        tokens.append(lease.token)
        await slots.release("api", 0, "h")

    assert tokens == sorted(set(tokens))


async def test_another_process_may_release_in_the_holders_name_and_the_holder_is_told(place: Place) -> None:
    holder, operator = await place.slots(), await place.slots()
    await acquire(holder)

    assert await operator.release("api", 0, "h")

    assert not await holder.renew("api", 0, "h")
    assert not holder.still_held("api", 0, "h")


async def test_who_lost_its_slot_cannot_release_the_same_name_of_a_later_process(place: Place) -> None:
    first, second = await place.slots(), await place.slots()
    await acquire(first)
    await acquire(second)

    assert not await first.renew("api", 0, "h")
    assert not await first.release("api", 0, "h")

    assert await second.renew("api", 0, "h")


async def test_a_cancelled_acquire_holds_nothing_in_the_end(place: Place, proxy: Proxy) -> None:
    slots = await place.slots(through=proxy)
    sent = proxy.next_of("PUT")
    taking = asyncio.ensure_future(acquire(slots))
    await sent.wait()
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking

    await slots.close()

    assert await holders(await place.slots()) == []
    assert "concurrency/api/slots/0" in stored(place), "it was taken, or there was nothing to give back"


async def test_a_cancelled_repetition_keeps_the_slot_that_was_held_before(place: Place) -> None:
    slots = await place.slots()
    await acquire(slots)
    taking = asyncio.ensure_future(acquire(slots))
    await asyncio.sleep(0)
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking

    await slots.close()

    assert await holders(await place.slots()) == ["h"]


async def test_a_heartbeat_may_renew_from_a_thread_and_loop_of_its_own(slots: BucketSlots) -> None:
    await acquire(slots)

    renewed = await asyncio.to_thread(lambda: asyncio.run(slots.renew("api", 0, "h")))

    assert renewed
    assert await slots.renew("api", 0, "h")
    assert await slots.release("api", 0, "h")


# --- limits ---------------------------------------------------------------------------------------------------


async def test_a_limit_that_was_set_counts_for_everybody(place: Place) -> None:
    one, other = await place.slots(), await place.slots()
    await one.set_limit("api", 1, by="ops")

    assert await acquire(one, "a", limit=5) == 0
    assert await acquire(other, "b", limit=5) is None
    assert await other.limit("api") == 1


async def test_a_raised_limit_lets_more_in_and_a_removed_one_leaves_the_callers_own(slots: BucketSlots) -> None:
    await slots.set_limit("api", 0)
    assert await acquire(slots, "a", limit=2) is None

    await slots.set_limit("api", 1)
    assert await acquire(slots, "a", limit=2) is not None
    assert await acquire(slots, "b", limit=2) is None

    await slots.remove_limit("api")
    assert await slots.limit("api") is None
    assert await acquire(slots, "b", limit=2) is not None


async def test_lowered_below_the_use_nobody_enters_until_there_is_room(slots: BucketSlots) -> None:
    held = {await acquire(slots, f"h{n}", limit=4): f"h{n}" for n in range(4)}
    await slots.set_limit("api", 2)

    entered = []
    for number, holder in sorted(held.items(), key=lambda each: each[0] or 0):
        assert number is not None
        await slots.release("api", number, holder)
        entered.append(await acquire(slots, f"after-{number}"))

    # Four held, two allowed: the first two to leave make no room, whichever numbers they had.
    assert [number is None for number in entered] == [True, True, False, False]
    assert (await slots.get_status("api")).active == 2


async def test_removing_a_limit_that_was_never_set_is_no_error(place: Place) -> None:
    slots = await place.slots()

    await slots.remove_limit("api")

    assert stored(place) == {}


async def test_two_who_set_limits_at_once_leave_one_of_them(place: Place) -> None:
    setters = [await place.slots() for _ in range(4)]

    await asyncio.gather(*(each.set_limit("api", n) for n, each in enumerate(setters)))

    assert await setters[0].limit("api") in range(4)


async def test_a_group_without_any_limit_is_refused(slots: BucketSlots) -> None:
    with pytest.raises(InvalidValue, match="no limit"):
        await acquire(slots, limit=None)


# --- reading --------------------------------------------------------------------------------------------------


async def test_the_status_tells_who_holds_what(place: Place) -> None:
    slots = await place.slots(Clock(elapsed=0))
    await slots.set_limit("api", 2)
    number = await slots.try_acquire("api", None, "h", "machine-7", 60)
    lease = slots.lease("api", number or 0, "h")

    status = await slots.get_status("api")

    assert (status.group, status.limit, status.source, status.active) == ("api", 2, Source.OPERATOR, 1)
    assert lease is not None
    [slot] = status.slots
    assert (slot.slot_id, slot.holder, slot.worker_id, slot.token) == (number, "h", "machine-7", str(lease.token))
    assert slot.expires_at == NOON + timedelta(seconds=60)


async def test_a_group_that_nobody_used_has_an_empty_status(slots: BucketSlots) -> None:
    status = await slots.get_status("never")

    assert (status.limit, status.source, status.active, status.slots) == (None, None, 0, ())


async def test_looking_again_at_a_full_group_costs_one_request(place: Place, proxy: Proxy) -> None:
    holder, contender = await place.slots(), await place.slots(through=proxy)
    for n in range(5):
        await acquire(holder, f"h{n}", limit=5)
    assert await acquire(contender, "late", limit=5) is None
    proxy.requests.clear()

    assert await acquire(contender, "late", limit=5) is None

    assert [each.method for each in proxy.requests] == ["GET"]


async def test_what_an_acquire_a_renewal_and_a_release_cost(place: Place, proxy: Proxy) -> None:
    slots = await place.slots(through=proxy)
    await acquire(slots, limit=5)  # the first one finds no objects at all

    async def methods(call: Awaitable[object]) -> list[str]:
        proxy.requests.clear()
        answer = await call
        assert answer is not None
        assert answer is not False
        return [each.method for each in proxy.requests]

    [held] = (await slots.get_status("api")).slots
    assert await methods(slots.renew("api", held.slot_id, "h")) == ["PUT"]
    assert await methods(slots.release("api", held.slot_id, "h")) == ["PUT"]
    assert await methods(slots.try_acquire("api", 5, "h2", "w", LEASE)) == ["GET", "PUT"]


# --- odd and wrong --------------------------------------------------------------------------------------------

ODD_GROUPS = [
    "..",
    ".",
    "a/b",
    "a/slots/0",
    "a%2Fb",
    "a=2Fb",
    "a b+c&d?e#f",
    "é💥",
    "provider:Ollama",
    "x" * 200,
    "💥" * 200,
]


async def test_groups_with_odd_names_are_kept_apart_and_below_their_prefix(place: Place) -> None:
    slots = await place.slots()
    for group in ODD_GROUPS:
        await slots.set_limit(group, 1)
        assert await acquire(slots, group, group=group) == 0

    again = await place.slots()

    assert [await holders(again, group) for group in ODD_GROUPS] == [[group] for group in ODD_GROUPS]
    assert len(stored(place)) == 2 * len(ODD_GROUPS)
    assert {len(key.split("/")) for key in stored(place)} == {3, 4}


async def test_one_prefix_sees_nothing_of_another(place: Place) -> None:
    inner = Place(place.server, f"{place.prefix}/concurrency/api")
    await acquire(await place.slots(), "outer")

    assert await acquire(await inner.slots(), "inner") == 0
    assert await holders(await place.slots()) == ["outer"]


async def test_an_object_that_is_not_qos_is_named_and_left_alone(place: Place) -> None:
    slots = await place.slots()
    put_object(place, "concurrency/api/slots/0", b"not json")

    with pytest.raises(StoreUnavailable, match="concurrency/api/slots/0"):
        await acquire(slots)

    assert stored(place) == {"concurrency/api/slots/0": b"not json"}


async def test_other_objects_beside_the_slots_are_passed_by(place: Place) -> None:
    slots = await place.slots()
    for key in ("concurrency/api/slots/01", "concurrency/api/slots/notes.txt", "concurrency/api/readme"):
        put_object(place, key, b"?")

    assert await acquire(slots) == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("", 1, "h", "w", 60), "group is empty"),
        (("g\n", 1, "h", "w", 60), "control character"),
        (("g", -1, "h", "w", 60), "limit is -1"),
        (("g", 1.5, "h", "w", 60), "limit is 1.5"),
        (("g", True, "h", "w", 60), "limit is True"),
        (("g", 1001, "h", "w", 60), "limit is 1001"),
        (("g", 1, "", "w", 60), "holder is empty"),
        (("g", 1, None, "w", 60), "holder is None"),
        (("g", 1, "h", "", 60), "worker_id is empty"),
        (("g", 1, "h", "w", 0), "lease_seconds is 0"),
        (("g", 1, "h", "w", float("nan")), "lease_seconds is nan"),
        (("g", 1, "h", "w", "60"), "lease_seconds is '60'"),
    ],
)
async def test_bad_input_is_named_and_nothing_is_sent(
    place: Place, proxy: Proxy, arguments: tuple[object, ...], told: str
) -> None:
    slots = await place.slots(through=proxy)
    proxy.requests.clear()

    with pytest.raises(InvalidValue, match=told):
        await slots.try_acquire(*arguments)  # type: ignore[arg-type]  # wrong on purpose

    assert proxy.requests == []


async def test_bad_slots_and_limits_are_refused(slots: BucketSlots) -> None:
    with pytest.raises(InvalidValue, match="slot_id is -1"):
        await slots.release("g", -1, "h")
    with pytest.raises(InvalidValue, match="additional_seconds is -5"):
        await slots.extend_lease("g", 0, "h", -5)
    with pytest.raises(InvalidValue, match="limit is 'x'"):
        await slots.set_limit("g", "x")  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(InvalidValue, match="by is empty"):
        await slots.set_limit("g", 1, by="")
