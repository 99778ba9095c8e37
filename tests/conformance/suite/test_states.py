"""The state table of SPEC.md section 5: every row can be walked, and nothing else can."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import product
from typing import Any

import pytest

from qo.errors import InvalidTransition
from qo.job import ENDED, HELD, State
from qo.policy.lifecycle import NEXT
from qo.store.contract import Store
from qo.values import Lease, UpkeepRules
from tests.conformance.suite.harness import (
    BROKEN,
    HOUR,
    LEASE,
    NOW,
    ask_to_confirm,
    at,
    catch_up,
    claim,
    fail,
    finish,
    hand_back,
    kinds_of,
    pass_time,
    retry_later,
    run,
    start,
    state,
    submit,
    succeed,
    try_submit,
)

TASK = "task-of-job"

# The table also allows queued -> scheduled. No operation of the contract does that yet: a lowered quota
# takes back nothing that was accepted, and a retry's wait begins on a worker.
WITHOUT_OPERATION = {(State.QUEUED, State.SCHEDULED)}
# The contract lets a lease end as these from `starting` too; the job then passes through `running`.
THROUGH_RUNNING = {(State.STARTING, State.SUCCEEDED), (State.STARTING, State.CONFIRMING)}

# Only jobs with a `start_by` go these ways: test_start_by.py.
BY_START_BY = {(present, State.FAILED) for present in (State.SCHEDULED, State.WAITING, State.QUEUED)}

ALLOWED = {(present, wanted) for present, row in NEXT.items() for wanted in row}
FORBIDDEN = set(product(State, State)) - ALLOWED - THROUGH_RUNNING


async def job_in(store: Store, wanted: State) -> Lease | None:
    """Bring the job named `job` into a state; its lease, if it ever had one."""
    if wanted is State.WAITING:
        await submit(store, "job", task=TASK, parent="p", phase=2)
        return None
    if wanted is State.QUEUED:
        await submit(store, "job", task=TASK)
        return None
    lease = await start(store, "job", task=TASK)
    match wanted:
        case State.SCHEDULED:
            await retry_later(store, lease, at=NOW + HOUR)
        case State.RUNNING:
            await run(store, lease)
        case State.CONFIRMING:
            await ask_to_confirm(store, lease)
        case State.SUCCEEDED:
            await succeed(store, lease)
        case State.FAILED:
            await fail(store, lease)
        case State.CANCELLED:
            await at(store, NOW).cancel(job_id="job")
            await finish(store, lease, State.CANCELLED)
    assert await state(store, "job") is wanted
    return lease


UNCONFIRMED = UpkeepRules(unconfirmed_after_ms=1, unconfirmed_error=BROKEN)


Walk = Callable[[Store, Lease | None], Awaitable[object]]


def finishing(wanted: State) -> Walk:
    async def walk(store: Store, lease: Lease | None) -> None:
        assert lease is not None
        await finish(store, lease, wanted, retry_after_ms=HOUR, error=BROKEN, message="So it is.")

    return walk


async def to_running(store: Store, lease: Lease | None) -> None:
    assert lease is not None
    await run(store, lease)


async def to_release(store: Store, lease: Lease | None) -> None:
    await succeed(store, await start(store, "phase-one", parent="p", phase=1))


WALKS: dict[tuple[State, State], Walk] = {
    (State.SCHEDULED, State.QUEUED): lambda store, _: catch_up(store, now=NOW + HOUR),
    (State.SCHEDULED, State.CANCELLED): lambda store, _: at(store, NOW).cancel(job_id="job"),
    (State.WAITING, State.QUEUED): to_release,
    (State.WAITING, State.CANCELLED): lambda store, _: at(store, NOW).cancel(job_id="job"),
    (State.QUEUED, State.STARTING): lambda store, _: claim(store, tasks=[TASK]),
    (State.QUEUED, State.CANCELLED): lambda store, _: at(store, NOW).cancel(job_id="job"),
    (State.STARTING, State.RUNNING): to_running,
    (State.CONFIRMING, State.QUEUED): lambda store, _: at(store, NOW).confirm("job"),
    (State.CONFIRMING, State.FAILED): lambda store, _: at(store, NOW + 1).upkeep(UNCONFIRMED),
    (State.CONFIRMING, State.CANCELLED): lambda store, _: at(store, NOW).cancel(job_id="job"),
    (State.FAILED, State.QUEUED): lambda store, _: at(store, NOW).retry("job"),
} | {
    (held, wanted): finishing(wanted)
    for held in (State.STARTING, State.RUNNING)
    for wanted in NEXT[held] - {State.RUNNING}
}


def test_every_pair_that_the_table_allows_has_a_way_to_walk_it() -> None:
    assert set(WALKS) == ALLOWED - WITHOUT_OPERATION - BY_START_BY


@pytest.mark.parametrize(("present", "wanted"), sorted(WALKS), ids=lambda one: one.value)
async def test_what_the_table_allows_can_happen_and_is_told(store: Store, present: State, wanted: State) -> None:
    lease = await job_in(store, present)

    await WALKS[present, wanted](store, lease)

    assert await state(store, "job") is wanted
    assert (await kinds_of(store, "job"))[-1] == wanted.value


@pytest.mark.parametrize(("present", "wanted"), sorted(THROUGH_RUNNING), ids=lambda one: one.value)
async def test_a_starting_job_passes_through_running(store: Store, present: State, wanted: State) -> None:
    lease = await job_in(store, present)

    await finishing(wanted)(store, lease)

    assert await state(store, "job") is wanted
    assert (await kinds_of(store, "job"))[-2:] == ["running", wanted.value]


async def attempts_at(store: Store, wanted: State, token: str) -> None:
    """Everything the contract has that could lead to a state; being refused is an answer."""
    job = await store.job("job")
    stale = Lease.of(job, token=token, expires_at_ms=NOW, slots={})
    walks: list[Awaitable[object]]
    match wanted:
        case State.QUEUED:
            walks = [at(store, NOW).retry("job"), at(store, NOW).confirm("job"), hand_back(store, stale)]
            walks.append(catch_up(store, now=NOW))
        case State.STARTING:
            walks = [claim(store, tasks=[TASK], capacity=5)]
        case State.RUNNING:
            walks = [run(store, stale)]
        case State.CANCELLED:
            walks = [at(store, NOW).cancel(job_id="job"), finishing(wanted)(store, stale)]
        case State.WAITING:
            walks = [try_submit(store, "job", task=TASK, parent="p", phase=2)]
        case State.FAILED:
            walks = [finishing(wanted)(store, stale)]
            walks.append(at(store, NOW).upkeep(UNCONFIRMED))
        case _:
            walks = [finishing(wanted)(store, stale)]
    for walk in walks:
        with suppress(InvalidTransition):
            await walk


@pytest.mark.parametrize(("present", "wanted"), sorted(FORBIDDEN), ids=lambda one: one.value)
async def test_what_the_table_forbids_does_not_happen(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]], present: State, wanted: State
) -> None:
    lease = await job_in(store, present)
    before = (await snapshot())["jobs"]["job"]

    await attempts_at(store, wanted, token=lease.token if lease else "1")

    assert (await snapshot())["jobs"]["job"] == before


@pytest.mark.parametrize("present", sorted(HELD), ids=lambda one: one.value)
async def test_a_held_job_whose_lease_runs_out_is_queued_again(store: Store, present: State) -> None:
    await job_in(store, present)

    await pass_time(store, since=NOW, until=NOW + LEASE)

    assert await state(store, "job") is State.QUEUED


@pytest.mark.parametrize("present", sorted(HELD), ids=lambda one: one.value)
@pytest.mark.parametrize("wanted", [State.SCHEDULED, State.QUEUED, State.CONFIRMING, State.CANCELLED])
async def test_where_a_cancel_is_wanted_a_run_that_does_not_end_is_cancelled(
    store: Store, present: State, wanted: State
) -> None:
    lease = await job_in(store, present)
    await at(store, NOW).cancel(job_id="job")

    assert lease is not None
    finished = await finish(store, lease, wanted, retry_after_ms=HOUR, error=BROKEN)

    assert finished.state is State.CANCELLED
    assert await state(store, "job") is State.CANCELLED


@pytest.mark.parametrize("wanted", [State.SUCCEEDED, State.FAILED])
async def test_where_a_cancel_is_wanted_a_run_that_ended_all_the_same_counts(store: Store, wanted: State) -> None:
    lease = await job_in(store, State.RUNNING)
    await at(store, NOW).cancel(job_id="job")

    assert lease is not None
    await finish(store, lease, wanted, error=BROKEN)

    job = await store.job("job")
    assert (job.state, job.cancel_wanted) == (wanted, False)


@pytest.mark.parametrize("present", [State.SUCCEEDED, State.FAILED], ids=lambda one: one.value)
async def test_what_has_ended_cannot_be_cancelled_and_says_what_is_allowed(store: Store, present: State) -> None:
    await job_in(store, present)

    with pytest.raises(InvalidTransition, match=f"'job' is {present.value}; only a job that has not ended"):
        await at(store, NOW).cancel(job_id="job")


@pytest.mark.parametrize("present", sorted(set(State) - HELD - ENDED), ids=lambda one: one.value)
async def test_the_priority_of_a_job_that_waits_can_be_changed(store: Store, present: State) -> None:
    await job_in(store, present)

    (job,) = await at(store, NOW).set_priority(20, job_id="job", by="ops")

    assert (job.priority, job.state) == (20, present)


@pytest.mark.parametrize("present", sorted(HELD | ENDED), ids=lambda one: one.value)
async def test_the_priority_of_a_job_that_runs_or_has_ended_cannot(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]], present: State
) -> None:
    await job_in(store, present)
    before = await snapshot()

    with pytest.raises(InvalidTransition, match=present.value):
        await at(store, NOW).set_priority(20, job_id="job", by="ops")

    assert await snapshot() == before
