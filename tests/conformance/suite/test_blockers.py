"""What stands between a job and its start, as facts."""

from __future__ import annotations

import pytest

from qo.job import State
from qo.store.contract import Store
from tests.conformance.suite.harness import (
    HOUR,
    NOW,
    at,
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
    without_history,
)


async def blocking(store: Store, job_id: str) -> list[str]:
    return [group.group for group in (await at(store, NOW).blockers(job_id)).groups]


async def test_a_job_is_told_how_many_are_ahead(store: Store) -> None:
    await submit_all(store, "abc")
    await submit(store, "low", priority=70)

    assert [(await at(store, NOW).blockers(job_id)).ahead for job_id in ("a", "b", "c", "low")] == [0, 1, 2, 3]


async def test_a_job_that_nothing_blocks_has_no_blocking_groups(store: Store) -> None:
    await limit(store, "gpu", 1)
    await submit(store, "a", groups=("gpu",))

    blockers = await at(store, NOW).blockers("a")

    assert (blockers.ahead, blockers.groups, blockers.waits_for) == (0, (), None)
    assert blockers.job == without_history(await store.job("a"))


async def test_all_groups_without_room_are_named_in_the_order_a_claim_looks_gates_included(store: Store) -> None:
    for group in ("global", "work", "priority:50", "user:u1", "tier:partner", "gpu", "free"):
        await limit(store, group, 1 if group == "free" else 0)
    await submit(store, "a", user="u1", standing=standing(), groups=("gpu", "free"))

    assert await blocking(store, "a") == ["global", "work", "priority:50", "user:u1", "tier:partner", "gpu"]


async def test_a_full_group_tells_who_holds_it(store: Store) -> None:
    await limit(store, "gpu", 1)
    lease = await start(store, "holder", groups=("gpu",))
    await submit(store, "a", groups=("gpu",))

    (group,) = (await at(store, NOW).blockers("a")).groups

    assert (group.group, group.limit, group.active, group.waiting) == ("gpu", 1, 1, 1)
    assert [(slot.holder, slot.token) for slot in group.slots] == [("holder", lease.token)]


async def test_a_paused_and_a_closed_group_say_so(store: Store) -> None:
    await at(store, NOW).set_paused("gpu", True)
    lease = await start(store, "first", groups=("bucket",))
    await hand_back(store, lease, closed={"bucket": 5000})
    await submit(store, "a", groups=("gpu", "bucket"))

    gpu, bucket = (await at(store, NOW).blockers("a")).groups

    assert (gpu.group, gpu.paused) == ("gpu", True)
    assert bucket.group == "bucket"
    assert bucket.closed_until is not None


async def test_a_job_learns_when_no_worker_handles_its_task(store: Store) -> None:
    await submit(store, "a")
    nobody = (await at(store, NOW).blockers("a")).has_worker
    await register(store, "w1", "other")
    other = (await at(store, NOW).blockers("a")).has_worker
    await register(store, "w2", "work", lifetime_ms=1000)
    handled = (await at(store, NOW).blockers("a")).has_worker

    assert (nobody, other, handled) == (False, False, True)
    assert not (await at(store, NOW + 1000).blockers("a")).has_worker


async def test_a_scheduled_job_is_not_in_line_and_says_when(store: Store) -> None:
    await submit(store, "a", run_at_ms=NOW + HOUR)

    blockers = await at(store, NOW).blockers("a")

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
        await at(store, NOW).cancel(job_id="one")

    blockers = await at(store, NOW).blockers("two")

    assert (blockers.waits_for, blockers.waits_for_state, blockers.ahead) == (1, before, None)


async def test_a_released_phase_that_waits_for_its_time_waits_for_no_phase(store: Store) -> None:
    one = await start(store, "one", parent="app", phase=1)
    await submit(store, "two", parent="app", phase=2, run_at_ms=NOW + HOUR)
    await succeed(store, one)

    blockers = await at(store, NOW).blockers("two")

    assert (blockers.job.state, blockers.waits_for) == (State.WAITING, None)


async def test_a_job_that_runs_or_has_ended_has_nobody_ahead(store: Store) -> None:
    lease = await start(store, "a")
    running = await at(store, NOW).blockers("a")
    await succeed(store, lease)

    assert (running.ahead, (await at(store, NOW).blockers("a")).ahead) == (None, None)
