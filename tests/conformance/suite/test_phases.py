"""Parents and their phases: one after the other, as one thing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from qo.errors import InvalidTransition, JobNotFound, ParentNotFound
from qo.job import State, moment
from qo.store.contract import Store
from qo.values import Refusal, RefusalReason
from tests.conformance.suite.harness import (
    HOUR,
    LEASE,
    NOW,
    at,
    catch_up,
    claim,
    events_of,
    fail,
    ids,
    kinds_of,
    line,
    pass_time,
    start,
    state,
    submission,
    submit,
    succeed,
    try_submit,
)

pytestmark = pytest.mark.small_bounds


async def test_the_first_phase_joins_the_line_and_the_next_waits_for_it(store: Store) -> None:
    first = await submit(store, "one", parent="app", phase=1)
    second = await submit(store, "two", parent="app", phase=2)

    assert (first.state, second.state) == (State.QUEUED, State.WAITING)
    assert ids(await claim(store, capacity=5)) == ["one"]


async def test_a_phase_joins_the_line_when_the_one_before_has_succeeded(store: Store) -> None:
    await submit(store, "one", parent="app", phase=1)
    await submit(store, "two", parent="app", phase=2)
    await submit(store, "three", parent="app", phase=3)
    (one,) = await claim(store)

    await succeed(store, one, now=NOW + 5)

    two = await store.job("two")
    assert (two.state, two.joined_at) == (State.QUEUED, moment(NOW + 5))
    assert await state(store, "three") is State.WAITING


async def test_a_phase_waits_also_when_the_one_before_is_not_submitted_yet(store: Store) -> None:
    await submit(store, "two", parent="app", phase=2)
    nothing_yet = await claim(store)

    await submit(store, "one", parent="app", phase=1)
    (one,) = await claim(store, capacity=5)
    await succeed(store, one)

    assert nothing_yet == []
    assert ids([one]) == ["one"]
    assert ids(await claim(store)) == ["two"]


async def test_a_phase_submitted_after_the_one_before_has_succeeded_joins_at_once(store: Store) -> None:
    await submit(store, "one", parent="app", phase=1)
    await succeed(store, *await claim(store))

    second = await submit(store, "two", parent="app", phase=2)

    assert second.state is State.QUEUED


async def test_a_released_phase_joins_at_the_end_of_the_line(store: Store) -> None:
    await submit(store, "one", parent="app", phase=1)
    await submit(store, "two", parent="app", phase=2)
    (one,) = await claim(store)
    await submit(store, "other")

    await succeed(store, one)

    assert await line(store) == ["other", "two"]


async def test_phases_released_in_one_step_join_by_parents_as_numbers(store: Store) -> None:
    leases = []
    for parent in ("shop", "10", "9"):
        leases.append(await start(store, f"{parent}-1", parent=parent, phase=1))
        await submit(store, f"{parent}-2", parent=parent, phase=2)

    await succeed(store, *leases)

    assert await line(store) == ["9-2", "10-2", "shop-2"]


async def test_later_phases_wait_behind_one_that_failed_and_go_on_when_it_is_retried(store: Store) -> None:
    one = await start(store, "one", parent="app", phase=1)
    await submit(store, "two", task="work", parent="app", phase=2)
    await fail(store, one)
    waiting = await at(store, NOW).blockers("two")

    await at(store, NOW).retry("one")
    (again,) = await claim(store, tasks=["task-of-one"])
    await succeed(store, again)

    assert (waiting.job.state, waiting.waits_for, waiting.waits_for_state) == (State.WAITING, 1, State.FAILED)
    assert await state(store, "two") is State.QUEUED


async def test_later_phases_wait_behind_one_that_was_cancelled(store: Store) -> None:
    await submit(store, "one", parent="app", phase=1)
    await submit(store, "two", parent="app", phase=2)

    await at(store, NOW).cancel(job_id="one")

    assert await state(store, "two") is State.WAITING
    assert (await at(store, NOW).blockers("two")).waits_for_state is State.CANCELLED


async def test_a_phase_that_is_not_there_yet_is_said_so(store: Store) -> None:
    await submit(store, "three", parent="app", phase=3)

    blockers = await at(store, NOW).blockers("three")

    assert (blockers.waits_for, blockers.waits_for_state) == (2, None)


async def test_a_released_phase_still_waits_for_its_own_time(store: Store) -> None:
    one = await start(store, "one", parent="app", phase=1)
    await submit(store, "two", parent="app", phase=2, run_at_ms=NOW + HOUR)

    await succeed(store, one)
    released = await state(store, "two")
    await pass_time(store, since=NOW, until=NOW + HOUR)

    assert released is State.WAITING
    assert await state(store, "two") is State.QUEUED


async def test_a_phase_whose_time_has_come_still_waits_for_the_one_before(store: Store) -> None:
    await submit(store, "one", parent="app", phase=1)
    await submit(store, "two", parent="app", phase=2, run_at_ms=NOW + 1)

    await catch_up(store, now=NOW + 2)

    assert await state(store, "two") is State.WAITING
    await succeed(store, *await claim(store, now=NOW + 2), now=NOW + 3)
    assert await state(store, "two") is State.QUEUED


async def test_a_phase_that_is_taken_is_refused_and_told_by_whom(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]]
) -> None:
    await submit(store, "one", parent="app", phase=1)
    before = await snapshot()

    answer = await try_submit(store, "other", parent="app", phase=1)

    assert answer == Refusal(id="other", reason=RefusalReason.PHASE_TAKEN, taken_by="one")
    assert await snapshot() == before
    with pytest.raises(JobNotFound):
        await store.job("other")


async def test_the_same_phase_of_another_parent_is_free(store: Store) -> None:
    await submit(store, "one", parent="app", phase=1)

    assert (await submit(store, "other", parent="shop", phase=1)).state is State.QUEUED


async def test_a_phase_taken_within_one_submit_is_refused_too(store: Store) -> None:
    answers = await at(store, NOW).submit([submission(name, parent="app", phase=1) for name in ("a", "b")])

    assert [isinstance(answer, Refusal) for answer in answers] == [False, True]


# --- a parent as a whole ----------------------------------------------------------------------------------------


async def test_a_parents_priority_is_that_of_its_first_job_and_inherited(store: Store) -> None:
    await submit(store, "two", parent="app", phase=2, priority=20)
    one = await submit(store, "one", parent="app", phase=1)
    three = await submit(store, "three", parent="app", phase=3, priority=70)

    assert (await store.parent("app")).priority == 20
    assert (one.priority, three.priority) == (20, 70)


async def test_the_first_job_without_a_priority_makes_a_normal_parent(store: Store) -> None:
    await submit(store, "one", parent="app", phase=1)
    await submit(store, "two", parent="app", phase=2, priority=10)

    assert (await store.parent("app")).priority == 50
    assert (await submit(store, "three", parent="app", phase=3)).priority == 50


async def test_a_parents_new_priority_is_that_of_all_its_unfinished_jobs(store: Store) -> None:
    done = await start(store, "done", parent="app", phase=1)
    await succeed(store, done)
    await submit(store, "waits", parent="app", phase=3, priority=90)
    runs = await start(store, "runs", parent="app", phase=2)
    await submit(store, "other", priority=50)

    changed = await at(store, NOW).set_priority(20, parent="app")

    assert [job.id for job in changed] == ["runs", "waits"]
    assert {job.id: job.priority for job in (await store.parent("app")).jobs} == {
        "done": 50,
        "runs": 20,
        "waits": 20,
    }
    await succeed(store, runs)
    assert await line(store) == ["waits", "other"]
    assert (await submit(store, "later", parent="app", phase=4)).priority == 20


async def test_a_new_priority_of_a_running_phase_counts_when_it_comes_back(store: Store) -> None:
    await start(store, "runs", task="work", parent="app", phase=1)
    await submit(store, "other")

    await at(store, NOW).set_priority(70, parent="app")
    await pass_time(store, since=NOW, until=NOW + LEASE)

    assert await line(store) == ["other", "runs"]


async def test_cancelling_a_parent_cancels_all_its_unfinished_jobs(store: Store) -> None:
    await succeed(store, await start(store, "done", parent="app", phase=1))
    await start(store, "runs", parent="app", phase=2)
    await submit(store, "waits", parent="app", phase=3)
    await submit(store, "loose", parent="app")
    await submit(store, "later", parent="app", run_at_ms=NOW + HOUR)
    await submit(store, "stranger")

    changed = await at(store, NOW).cancel(parent="app", message="No longer needed.")

    assert [job.id for job in changed] == ["runs", "waits", "loose", "later"]
    states = {job.id: job.state for job in (await store.parent("app")).jobs}
    assert states == {
        "done": State.SUCCEEDED,
        "runs": State.STARTING,
        "waits": State.CANCELLED,
        "loose": State.CANCELLED,
        "later": State.CANCELLED,
    }
    assert (await store.job("runs")).cancel_wanted
    assert await line(store) == ["stranger"]


async def test_pausing_a_parent_holds_back_its_phases(store: Store) -> None:
    await submit(store, "one", parent="app", phase=1)
    await submit(store, "stranger")

    await at(store, NOW).set_paused("parent:app", True)
    during = ids(await claim(store, capacity=5))
    await at(store, NOW).set_paused("parent:app", False)

    assert during == ["stranger"]
    assert ids(await claim(store, capacity=5)) == ["one"]


async def test_a_parent_lists_its_phases_by_number_and_then_its_other_jobs(store: Store) -> None:
    for job_id, phase in (("loose1", None), ("p10", 10), ("p2", 2), ("loose2", None), ("p1", 1)):
        await submit(store, job_id, parent="app", phase=phase)

    jobs = (await store.parent("app")).jobs

    assert [job.id for job in jobs] == ["p1", "p2", "p10", "loose1", "loose2"]


@pytest.mark.parametrize(
    "ask",
    [
        lambda store: store.parent("nobody"),
        lambda store: at(store, NOW).cancel(parent="nobody"),
        lambda store: at(store, NOW).set_priority(10, parent="nobody"),
    ],
)
async def test_a_parent_that_no_job_names_does_not_exist(
    store: Store, ask: Callable[[Store], Awaitable[object]]
) -> None:
    with pytest.raises(ParentNotFound, match="nobody"):
        await ask(store)


async def test_a_waiting_phase_can_be_cancelled(store: Store) -> None:
    await submit(store, "two", parent="app", phase=2)

    await at(store, NOW).cancel(job_id="two")

    assert await kinds_of(store, "two") == ["waiting", "cancelled"]


async def test_a_waiting_phase_cannot_be_retried(store: Store) -> None:
    await submit(store, "two", parent="app", phase=2)

    with pytest.raises(InvalidTransition, match="waiting"):
        await at(store, NOW).retry("two")


async def test_a_released_phase_tells_its_position(store: Store) -> None:
    one = await start(store, "one", parent="app", phase=1)
    await submit(store, "two", parent="app", phase=2)

    await succeed(store, one)

    assert await events_of(store, "two") == [("waiting", {}), ("queued", {"position": 1})]
