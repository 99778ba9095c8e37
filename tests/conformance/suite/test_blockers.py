"""What stands between a job and its start, as facts."""

from __future__ import annotations

import pytest
from harness import (
    HOUR,
    NOW,
    claim,
    fail,
    hand_back,
    limit,
    register,
    standing,
    start,
    submit,
    submit_all,
    succeed,
)

from qo.job import State
from qo.store.base import Store


async def blocking(store: Store, job_id: str) -> list[str]:
    return [group.group for group in (await store.blockers(job_id, now=NOW)).groups]


async def test_a_job_is_told_how_many_are_ahead(store: Store) -> None:
    await submit_all(store, "abc")
    await submit(store, "low", priority=70)

    assert [(await store.blockers(job_id, now=NOW)).ahead for job_id in ("a", "b", "c", "low")] == [0, 1, 2, 3]


async def test_a_job_that_nothing_blocks_has_no_blocking_groups(store: Store) -> None:
    await limit(store, "gpu", 1)
    await submit(store, "a", groups=("gpu",))

    blockers = await store.blockers("a", now=NOW)

    assert (blockers.ahead, blockers.groups, blockers.waits_for) == (0, (), None)
    assert blockers.job == await store.job("a")


async def test_all_groups_without_room_are_named_in_the_order_a_claim_looks_gates_included(store: Store) -> None:
    for group in ("global", "work", "priority:50", "user:u1", "tier:partner", "gpu", "free"):
        await limit(store, group, 1 if group == "free" else 0)
    await submit(store, "a", user="u1", standing=standing(), groups=("gpu", "free"))

    assert await blocking(store, "a") == ["global", "work", "priority:50", "user:u1", "tier:partner", "gpu"]


async def test_a_full_group_tells_who_holds_it(store: Store) -> None:
    await limit(store, "gpu", 1)
    lease = await start(store, "holder", groups=("gpu",))
    await submit(store, "a", groups=("gpu",))

    (group,) = (await store.blockers("a", now=NOW)).groups

    assert (group.group, group.limit, group.active, group.waiting) == ("gpu", 1, 1, 1)
    assert [(slot.holder, slot.token) for slot in group.slots] == [("holder", lease.token)]


async def test_a_paused_and_a_closed_group_say_so(store: Store) -> None:
    await store.set_paused("gpu", True, now=NOW)
    lease = await start(store, "first", groups=("bucket",))
    await hand_back(store, lease, closed={"bucket": 5000})
    await submit(store, "a", groups=("gpu", "bucket"))

    gpu, bucket = (await store.blockers("a", now=NOW)).groups

    assert (gpu.group, gpu.paused) == ("gpu", True)
    assert bucket.group == "bucket"
    assert bucket.closed_until is not None


async def test_a_job_learns_when_no_worker_handles_its_task(store: Store) -> None:
    await submit(store, "a")
    nobody = (await store.blockers("a", now=NOW)).has_worker
    await register(store, "w1", "other")
    other = (await store.blockers("a", now=NOW)).has_worker
    await register(store, "w2", "work", lifetime_ms=1000)
    handled = (await store.blockers("a", now=NOW)).has_worker

    assert (nobody, other, handled) == (False, False, True)
    assert not (await store.blockers("a", now=NOW + 1000)).has_worker


async def test_a_scheduled_job_is_not_in_line_and_says_when(store: Store) -> None:
    await submit(store, "a", run_at_ms=NOW + HOUR)

    blockers = await store.blockers("a", now=NOW)

    assert (blockers.ahead, blockers.waits_for, blockers.job.state) == (None, None, State.SCHEDULED)
    assert blockers.job.run_at is not None


@pytest.mark.parametrize(
    "before", [State.QUEUED, State.STARTING, State.FAILED, State.CANCELLED], ids=lambda state: state.value
)
async def test_a_waiting_phase_tells_which_phase_it_waits_for_and_how_that_one_is(store: Store, before: State) -> None:
    await submit(store, "one", parent="app", phase=1)
    await submit(store, "two", parent="app", phase=2)
    if before in (State.STARTING, State.FAILED):
        (lease,) = await claim(store)
        if before is State.FAILED:
            await fail(store, lease)
    if before is State.CANCELLED:
        await store.cancel(job_id="one", now=NOW)

    blockers = await store.blockers("two", now=NOW)

    assert (blockers.waits_for, blockers.waits_for_state, blockers.ahead) == (1, before, None)


async def test_a_released_phase_that_waits_for_its_time_waits_for_no_phase(store: Store) -> None:
    one = await start(store, "one", parent="app", phase=1)
    await submit(store, "two", parent="app", phase=2, run_at_ms=NOW + HOUR)
    await succeed(store, one)

    blockers = await store.blockers("two", now=NOW)

    assert (blockers.job.state, blockers.waits_for) == (State.WAITING, None)


async def test_a_job_that_runs_or_has_ended_has_nobody_ahead(store: Store) -> None:
    lease = await start(store, "a")
    running = await store.blockers("a", now=NOW)
    await succeed(store, lease)

    assert (running.ahead, (await store.blockers("a", now=NOW)).ahead) == (None, None)
