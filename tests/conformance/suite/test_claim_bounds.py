"""How much one claim gives and one step looks at, with bounds small enough to be met."""

from __future__ import annotations

from typing import Any

import pytest

from qo.job import State
from qo.store.contract import Store
from qo.values import Advance, Claimed, Outcome, Portion, Unlimited, UpkeepDone, UpkeepRules, looks
from tests.conformance.suite.harness import (
    LEASE,
    NOW,
    acquire,
    at,
    claim,
    fresh_id,
    group_status,
    ids,
    limit,
    numbered,
    start,
    submit,
    submit_all,
)

bounded_by = pytest.mark.bounded_by
KILOBYTE = b'"' + b"x" * 998 + b'"'


async def claim_once(store: Store, *, capacity: int = 10) -> Claimed:
    return await at(store, NOW).claim(
        worker="w1", tasks=["work"], capacity=capacity, lease_ms=LEASE, claim_id=fresh_id("claim")
    )


async def save_checkpoint(store: Store, job_id: str, checkpoint: bytes) -> None:
    """A handler saves it, then the job is handed back to its place."""
    (lease,) = await claim(store)
    assert lease.job_id == job_id
    await at(store, NOW).advance([Advance(job_id=job_id, token=lease.token, checkpoint=checkpoint)])
    await at(store, NOW).finish([Outcome(job_id=job_id, token=lease.token, state=State.QUEUED)])


def test_a_look_is_at_eight_groups() -> None:
    assert [looks(groups) for groups in (1, 8, 9, 16, 17, 135)] == [1, 1, 2, 2, 3, 17]


@bounded_by(claim_bytes=2500)
async def test_a_claim_ends_when_it_has_given_enough_bytes(store: Store) -> None:
    await submit_all(store, numbered("j", 5), payload=KILOBYTE)

    first, second, third = [await claim_once(store) for _ in range(3)]

    assert ids(first.leases) == ["j00001", "j00002", "j00003"]
    assert first.more
    assert ids(second.leases) == ["j00004", "j00005"]
    assert not second.more
    assert third == Claimed()
    assert [lease.payload for lease in first.leases] == [KILOBYTE] * 3


@bounded_by(claim_bytes=3000)
async def test_a_claim_that_took_the_last_job_does_not_say_more(store: Store) -> None:
    await submit_all(store, numbered("j", 3), payload=KILOBYTE)

    claimed = await claim_once(store)

    assert len(claimed.leases) == 3
    assert not claimed.more


@bounded_by(claim_bytes=1)
async def test_a_claim_gives_one_job_however_large_it_is(store: Store) -> None:
    await submit_all(store, numbered("j", 2), payload=KILOBYTE)

    assert ids((await claim_once(store)).leases) == ["j00001"]
    assert ids((await claim_once(store)).leases) == ["j00002"]


@bounded_by(claim_bytes=1500)
async def test_what_a_handler_saved_counts_too(store: Store) -> None:
    await submit_all(store, numbered("j", 3))
    await save_checkpoint(store, "j00001", KILOBYTE)
    await save_checkpoint(store, "j00001", KILOBYTE + b" " * 500)

    claimed = await claim_once(store)

    assert ids(claimed.leases) == ["j00001"]
    assert claimed.leases[0].checkpoint == KILOBYTE + b" " * 500
    assert claimed.more


@bounded_by(claim_bytes=1500)
async def test_a_job_that_was_put_aside_counts_nothing(store: Store) -> None:
    await limit(store, "gpu", 0)
    await submit_all(store, numbered("blocked", 2), payload=KILOBYTE, groups=("gpu",))
    await at(store, NOW).set_limits([Unlimited(group="gpu")])
    await limit(store, "api", 0)
    await submit(store, "blocked-too", payload=KILOBYTE, groups=("api",))
    await submit(store, "free", payload=KILOBYTE)

    claimed = await claim_once(store)

    assert ids(claimed.leases) == ["blocked00001", "blocked00002"]
    assert claimed.more
    assert ids((await claim_once(store)).leases) == ["free"]


MANY = tuple(f"g{number}" for number in range(10))
"""and three of every job: two looks"""


@bounded_by(examine=5)
async def test_a_job_of_many_groups_counts_as_several_looks(store: Store) -> None:
    await submit_all(store, numbered("j", 5), groups=MANY)

    claimed = await claim_once(store)

    assert ids(claimed.leases) == ["j00001", "j00002", "j00003"]
    assert claimed.more
    assert ids((await claim_once(store)).leases) == ["j00004", "j00005"]


@bounded_by(examine=1)
async def test_one_job_is_looked_at_however_many_groups_it_has(store: Store) -> None:
    await submit_all(store, numbered("j", 2), groups=MANY)

    assert ids((await claim_once(store)).leases) == ["j00001"]


@bounded_by(examine=3)
async def test_a_hand_over_looks_at_few_callers_of_many_groups(store: Store) -> None:
    """Slots that were not handed over are by the next step that writes."""
    await start(store, "holds", groups=("gpu",))
    await limit(store, "gpu", 0)
    for holder in ("first", "second", "third"):
        assert (await acquire(store, holder, "gpu", *MANY)).token is None
    await limit(store, "gpu", 5)

    granted: list[Any] = [await _granted(store)]
    await limit(store, "other", 1)
    granted.append(await _granted(store))

    assert granted == [{"first", "second"}, {"first", "second", "third"}]


async def _granted(store: Store) -> set[str]:
    return {slot.holder for slot in (await group_status(store, "gpu")).slots} - {"holds"}


# --- portions of what comes due ---------------------------------------------------------------------------------

MANY_GROUPS = tuple(f"g{number}" for number in range(17))
"""three looks as slots of a lease, as groups of a job with the three that every job has"""


@bounded_by(portion=4)
async def test_due_jobs_of_many_groups_join_in_smaller_portions(store: Store) -> None:
    await submit_all(store, ["a", "b", "c"], groups=MANY_GROUPS, delay_ms=1)
    await submit_all(store, ["d", "e"], delay_ms=1)

    portions = [await at(store, NOW + 1).catch_up() for _ in range(2)]

    assert portions == [Portion(ids=("a", "b"), more=True), Portion(ids=("c", "d"), more=True)]
    assert await at(store, NOW + 1).catch_up() == Portion(ids=("e",))


@bounded_by(portion=4)
async def test_leases_of_many_groups_end_in_smaller_portions(store: Store) -> None:
    await submit_all(store, ["a", "b", "c"], groups=MANY_GROUPS)
    await claim(store, capacity=3)
    await at(store, NOW + LEASE // 2).catch_up()

    portions = [await at(store, NOW + LEASE).catch_up() for _ in range(2)]

    assert portions == [Portion(ids=("a", "b"), more=True), Portion(ids=("c",))]


@bounded_by(portion=4)
async def test_jobs_of_many_groups_age_in_smaller_portions(store: Store) -> None:
    await submit_all(store, ["a", "b", "c"], groups=MANY_GROUPS)

    portions = [await at(store, NOW + 1).upkeep(UpkeepRules(aging_period_ms=1)) for _ in range(2)]

    assert portions == [UpkeepDone(aged=("a", "b"), more=True), UpkeepDone(aged=("c",))]
