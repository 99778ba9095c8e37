"""The invariants by name (DESIGN.md section 7), each in its shortest proof; the other files say more.

`fenced` and `one owner` are in test_tokens.py, `order` in test_order.py, `reclaim` and `bounded attempts` in
test_leases.py and test_clock.py, `capacity` also in test_limits.py and test_concurrency.py. After every test of
this suite, `invariants.py` looks at the store's whole state again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from qo.job import State
from qo.store.contract import Store
from qo.values import UpkeepRules
from tests.conformance.invariants import broken_invariants
from tests.conformance.suite.harness import (
    DAY,
    HOUR,
    LEASE,
    MIDNIGHT,
    NOW,
    acquire,
    active,
    ask_to_confirm,
    at,
    claim,
    fail,
    hand_back,
    holders,
    ids,
    limit,
    numbered,
    pass_time,
    retry_later,
    standing,
    start,
    submission,
    submit,
    submit_all,
    submit_list,
    succeed,
)

pytestmark = pytest.mark.small_bounds


async def test_capacity_holders_are_at_most_the_limit_at_every_commit(store: Store) -> None:
    await limit(store, "gpu", 2)
    await submit_all(store, numbered("j", 6), groups=("gpu",))
    seen = []
    held = []
    for number in range(6):
        held += await claim(store, capacity=9)
        await acquire(store, f"h{number}", "gpu", wait_ms=0)
        seen.append(await active(store, "gpu"))
        await succeed(store, held.pop(0))

    assert seen == [2, 2, 2, 2, 2, 2]


async def test_capacity_a_lowered_limit_never_lets_holders_grow_until_below_again(store: Store) -> None:
    await limit(store, "gpu", 3)
    await submit_all(store, numbered("j", 9), groups=("gpu",))
    held = await claim(store, capacity=3)
    await limit(store, "gpu", 1)
    seen = []
    while held:
        assert await claim(store, capacity=9) == []
        await succeed(store, held.pop())
        seen.append(await active(store, "gpu"))

    assert seen == [2, 1, 0]
    assert len(await claim(store, capacity=9)) == 1


async def test_all_or_nothing_a_running_job_holds_one_slot_of_each_of_its_limited_groups(store: Store) -> None:
    groups = ("global", "work", "priority:50", "user:u1", "project:p1", "tier:partner", "parent:7", "a", "b")
    for group in groups:
        await limit(store, group, 2)
    await submit(store, "j", user="u1", project="p1", parent="7", standing=standing(), groups=("a", "b"))

    (lease,) = await claim(store)

    assert lease.slots == dict.fromkeys(groups, 0)
    assert [await holders(store, group) for group in groups] == [{0: "j"}] * len(groups)


@pytest.mark.parametrize("full", ["global", "work", "priority:50", "user:u1", "project:p1", "parent:7", "a", "b"])
async def test_all_or_nothing_a_job_that_lacks_one_slot_holds_none(store: Store, full: str) -> None:
    for group in ("global", "work", "priority:50", "user:u1", "project:p1", "parent:7", "a", "b"):
        await limit(store, group, 0 if group == full else 1)
    await submit(store, "j", user="u1", project="p1", parent="7", groups=("a", "b"))

    assert await claim(store) == []
    assert [group.active for group in await store.groups()] == [0] * 8


@pytest.mark.parametrize(
    "leave", ["succeeded", "failed", "cancelled", "scheduled", "queued", "confirming", "expired", "revoked"]
)
async def test_all_or_nothing_whoever_runs_no_longer_holds_nothing(store: Store, leave: str) -> None:
    await limit(store, "a", 1)
    lease = await start(store, "j", user="u1", groups=("a", "b"))

    match leave:
        case "succeeded":
            await succeed(store, lease)
        case "failed":
            await fail(store, lease)
        case "cancelled":
            await at(store, NOW).cancel(job_id="j")
            await hand_back(store, lease)
        case "scheduled":
            await retry_later(store, lease, at=NOW + HOUR)
        case "queued":
            await hand_back(store, lease)
        case "confirming":
            await ask_to_confirm(store, lease)
        case "expired":
            await pass_time(store, since=NOW, until=NOW + LEASE)
        case "revoked":
            await at(store, NOW).revoke("b", 0, force=True)

    assert [await active(store, group) for group in ("a", "b", "user:u1")] == [0, 0, 0]
    assert await store.leases() == ()


async def test_open_a_group_is_open_exactly_when_it_has_room_and_parked_jobs_of_the_task(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]]
) -> None:
    async def open_groups() -> list[tuple[str, str]]:
        state = await snapshot()
        assert broken_invariants(state) == []
        return [(task, group) for task, _, group, _ in state["open"]]

    await limit(store, "gpu", 0)
    await submit(store, "x", task="x", groups=("gpu",))
    await submit_all(store, ["y1", "y2"], task="y", groups=("gpu",))
    full = await open_groups()
    await limit(store, "gpu", 1)
    has_room = await open_groups()
    await at(store, NOW).set_paused("gpu", True)
    paused = await open_groups()
    await at(store, NOW).set_paused("gpu", False)
    await at(store, NOW).cancel(job_id="x")
    x_gone = await open_groups()
    (lease,) = await claim(store, tasks=["y"], capacity=9)
    taken = await open_groups()
    await succeed(store, lease)
    freed = await open_groups()
    await at(store, NOW).cancel(job_id="y2")

    assert (full, has_room, paused) == ([], [("x", "gpu"), ("y", "gpu")], [])
    assert (x_gone, taken, freed) == ([("y", "gpu")], [], [("y", "gpu")])
    assert await open_groups() == []


async def test_open_the_index_names_the_first_parked_job_however_they_are_changed(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]]
) -> None:
    async def head_after(change: Awaitable[object]) -> str:
        """Changed while they are put aside; the group then has room, and its entry is that of one of them."""
        await at(store, NOW).set_paused("gpu", True)
        await change
        await at(store, NOW).set_paused("gpu", False)
        state = await snapshot()
        ((_, _, _, key),) = state["open"]
        jobs: dict[str, dict[str, Any]] = state["jobs"]
        return next(job_id for job_id, row in jobs.items() if row["key"] == key)

    await at(store, NOW).set_paused("gpu", True)

    heads = [
        await head_after(submit_all(store, "abcd", groups=("gpu",))),
        await head_after(at(store, NOW).cancel(job_id="a")),
        await head_after(at(store, NOW).set_priority(20, job_id="d")),
        await head_after(at(store, NOW).set_priority(90, job_id="d")),
        await head_after(at(store, NOW).move("c", before="b")),
        await head_after(at(store, NOW + HOUR).upkeep(UpkeepRules(aging_period_ms=HOUR))),
    ]

    assert heads == ["a", "b", "d", "b", "c", "c"]


async def test_conservation_every_accepted_job_is_in_exactly_one_state_and_none_is_lost(store: Store) -> None:
    one_a_day = standing(daily_quota=1)
    await submit_list(
        store,
        [
            *(submission(job_id) for job_id in numbered("plain", 12)),
            *(submission(job_id, user="u1", standing=one_a_day) for job_id in numbered("deferred", 4)),
            *(submission(f"phase{phase}", parent="p", phase=phase) for phase in range(1, 5)),
        ],
    )
    accepted = {job.id for job in (await store.jobs(limit=100)).jobs}
    for number, lease in enumerate(await claim(store, capacity=10)):
        match number % 5:
            case 0:
                await succeed(store, lease)
            case 1:
                await hand_back(store, lease)
            case 2:
                await retry_later(store, lease, at=NOW + HOUR)
            case 3:
                await ask_to_confirm(store, lease)
    await at(store, NOW).cancel(job_id="deferred00001")
    await at(store, NOW).cancel(parent="p")
    await pass_time(store, since=NOW, until=MIDNIGHT + 4 * DAY)

    jobs = (await store.jobs(limit=100)).jobs

    assert len(accepted) == len(jobs) == 20
    assert {job.id for job in jobs} == accepted
    by_state = [(await store.jobs(status=state.value, limit=100)).jobs for state in State]
    assert sum(map(len, by_state)) == 20


@pytest.mark.parametrize("deferred", ["scheduled", "delayed", "waiting", "confirming"])
async def test_free_deferral_whoever_waits_for_time_a_phase_or_a_person_holds_no_slot_and_spends_no_attempt(
    store: Store, deferred: str
) -> None:
    await limit(store, "gpu", 1)
    match deferred:
        case "scheduled":
            await submit(store, "first", user="u1", standing=standing(daily_quota=1), run_at_ms=NOW)
            job = await submit(store, "j", user="u1", groups=("gpu",))
        case "delayed":
            job = await submit(store, "j", groups=("gpu",), run_at_ms=NOW + HOUR)
        case "waiting":
            job = await submit(store, "j", groups=("gpu",), parent="p", phase=2)
        case "confirming":
            await ask_to_confirm(store, await start(store, "j", groups=("gpu",)))
            job = await store.job("j")
    attempts = job.attempts

    other = await start(store, "other", groups=("gpu",))

    assert job.state in (State.SCHEDULED, State.WAITING, State.CONFIRMING)
    assert other.slots == {"gpu": 0}
    assert (await store.job("j")).attempts == attempts


async def test_work_conserving_a_claim_with_free_capacity_leaves_no_job_that_could_start(store: Store) -> None:
    await limit(store, "user:u1", 1)
    await limit(store, "gpu", 1)
    await submit_all(store, ["a1", "a2"], user="u1", groups=("gpu",))
    await submit_all(store, ["b1", "b2"], groups=("gpu",))
    await submit_all(store, ["c1", "c2"], user="u1")
    await submit_all(store, ["d1", "d2"])

    assert ids(await claim(store, capacity=99)) == ["a1", "d1", "d2"]
    assert await claim(store, capacity=99) == []


async def test_work_conserving_room_that_appears_is_used_by_the_very_next_claim(store: Store) -> None:
    await limit(store, "gpu", 1)
    await submit_all(store, "abc", groups=("gpu",))
    started = []
    for _ in range(3):
        (lease,) = await claim(store, capacity=9)
        started.append(lease.job.id)
        await succeed(store, lease)

    assert started == ["a", "b", "c"]
