"""What people do to slots in a bucket: see which groups there are, take a slot from its holder."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from qo.errors import InvalidValue, LeaseAlive, SlotNotFound
from qo.store.bucket import BucketSlots
from qo.store.bucket.holdings import Holdings
from qo.store.bucket.keys import encoded, name_of
from tests.store.bucket.proxy import Proxy
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


# --- which groups there are -----------------------------------------------------------------------------------


async def test_groups_with_a_limit_or_a_slot_are_named_in_order(slots: BucketSlots) -> None:
    assert await slots.groups() == []
    for group in ("provider:openai", "a/b", "é💥", "."):
        await acquire(slots, group=group)
    await slots.set_limit("gpu", 2)

    assert await slots.groups() == [".", "a/b", "gpu", "provider:openai", "é💥"]


async def test_naming_the_groups_costs_one_request_however_many_slots_they_have(place: Place, proxy: Proxy) -> None:
    slots = await place.slots(through=proxy)
    for number in range(6):
        await acquire(slots, f"h{number}", group=f"g{number % 3}", limit=5)
    proxy.requests.clear()

    assert await slots.groups() == ["g0", "g1", "g2"]

    assert [each.method for each in proxy.requests] == ["GET"]


async def test_one_prefix_has_its_own_groups(place: Place) -> None:
    inner = Place(place.server, f"{place.prefix}/inner")
    await acquire(await inner.slots(), group="theirs")
    slots = await place.slots()
    await acquire(slots, group="ours")

    assert await slots.groups() == ["ours"]


@given(st.text(min_size=1, max_size=100))
@example("=2F")
@example("a~b")
@example(".")
@example("💥" * 34)
def test_a_name_is_read_back_from_its_key_unless_it_was_too_long_for_one(name: str) -> None:
    was_too_long = "~" in encoded(name)

    assert name_of(encoded(name)) == (None if was_too_long else name)


@pytest.mark.parametrize("part", [encoded("💥" * 200), "=FF", "=2f", "a b"])
def test_what_is_no_whole_name_is_not_taken_for_one(part: str) -> None:
    assert name_of(part) is None


# --- taking a slot from its holder ----------------------------------------------------------------------------


async def test_with_force_a_slot_is_taken_from_its_holder_who_hears_of_it_when_it_renews(place: Place) -> None:
    holder, operator = await place.slots(), await place.slots()
    await acquire(holder)

    assert await operator.release_slot("api", 0, force=True) == "h"

    assert holder.still_held("api", 0, "h")  # that is the exception: nobody has told it yet
    assert not await holder.renew("api", 0, "h")
    assert not holder.still_held("api", 0, "h")
    assert await acquire(operator, "next") == 0


async def test_without_force_only_what_was_seen_to_have_run_out(place: Place) -> None:
    clock = Clock()
    holder, operator = await place.slots(), await place.slots(clock)
    await acquire(holder)

    with pytest.raises(LeaseAlive, match="held by 'h'"):
        await operator.release_slot("api", 0)
    assert await holder.renew("api", 0, "h")
    clock.elapsed += LEASE
    with pytest.raises(LeaseAlive):  # it was renewed, so from now on it is watched anew
        await operator.release_slot("api", 0)
    clock.elapsed += LEASE

    assert await operator.release_slot("api", 0) == "h"
    assert await holders(await place.slots()) == []


async def test_a_slot_that_nobody_holds_is_told(slots: BucketSlots) -> None:
    with pytest.raises(SlotNotFound, match="Slot 7 of group 'api'"):
        await slots.release_slot("api", 7, force=True)
    await acquire(slots)
    await slots.release("api", 0, "h")
    with pytest.raises(SlotNotFound):
        await slots.release_slot("api", 0, force=True)


async def test_one_who_renews_at_that_very_moment_loses_its_slot_all_the_same(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder, operator = await place.slots(), await place.slots()
    await acquire(holder)
    free = Holdings.free_as_seen
    written: list[bool] = []

    async def free_after_a_renewal(holdings: Holdings, *args: Any) -> bool:
        if not written:
            assert await holder.renew("api", 0, "h")
        written.append(await free(holdings, *args))
        return written[-1]

    monkeypatch.setattr(Holdings, "free_as_seen", free_after_a_renewal)

    assert await operator.release_slot("api", 0, force=True) == "h"
    assert written == [False, True]
    assert not await holder.renew("api", 0, "h")


async def test_bad_input_is_refused(slots: BucketSlots) -> None:
    for group, slot_id in (("", 0), ("api", -1), ("api", 1.5)):
        with pytest.raises(InvalidValue):
            await slots.release_slot(group, slot_id, force=True)  # type: ignore[arg-type]  # wrong on purpose
