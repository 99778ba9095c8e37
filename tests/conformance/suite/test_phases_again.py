"""A cancelled phase can be submitted again under its number, and the later ones go on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from qo.job import State
from qo.store.contract import Store
from qo.values import Keep, Refusal, RefusalReason, UpkeepRules
from tests.conformance.suite.harness import (
    HOUR,
    NOW,
    accepted,
    at,
    claim,
    finish,
    line,
    numbered,
    start,
    state,
    submission,
    submit,
    submit_all,
    succeed,
    try_submit,
)

pytestmark = pytest.mark.small_bounds


async def test_a_cancelled_phase_can_be_submitted_again_and_the_later_ones_go_on(store: Store) -> None:
    await submit(store, "one", parent="app", phase=1)
    await submit(store, "two", parent="app", phase=2)
    await at(store, NOW).cancel(job_id="one")

    again = await submit(store, "one-again", parent="app", phase=1)
    waiting = await at(store, NOW).blockers("two")
    await succeed(store, *await claim(store))

    assert again.state is State.QUEUED
    assert (waiting.waits_for, waiting.waits_for_state) == (1, State.QUEUED)
    assert await state(store, "two") is State.QUEUED


async def test_a_phase_cancelled_in_the_middle_can_be_submitted_again_and_joins_at_once(store: Store) -> None:
    await succeed(store, await start(store, "one", parent="app", phase=1))
    await submit(store, "two", parent="app", phase=2)
    await submit(store, "three", parent="app", phase=3)
    await at(store, NOW).cancel(job_id="two")

    again = await submit(store, "two-again", parent="app", phase=2)
    await succeed(store, *await claim(store))

    assert again.state is State.QUEUED
    assert await state(store, "three") is State.QUEUED


async def test_a_phase_that_was_submitted_again_is_taken(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]]
) -> None:
    await submit(store, "one", parent="app", phase=1)
    await at(store, NOW).cancel(job_id="one")
    await submit(store, "again", parent="app", phase=1)
    before = await snapshot()

    answer = await try_submit(store, "third", parent="app", phase=1)

    assert answer == Refusal(id="third", reason=RefusalReason.PHASE_TAKEN, taken_by="again")
    assert await snapshot() == before


async def test_a_cancelled_phase_submitted_again_within_one_submit_is_admitted_once(store: Store) -> None:
    await submit(store, "one", parent="app", phase=1)
    await at(store, NOW).cancel(job_id="one")

    answers = await at(store, NOW).submit([submission(name, parent="app", phase=1) for name in ("a", "b")])

    assert [isinstance(answer, Refusal) for answer in answers] == [False, True]


async def test_a_phase_is_taken_until_its_running_job_has_really_been_cancelled(store: Store) -> None:
    one = await start(store, "one", parent="app", phase=1)
    await at(store, NOW).cancel(job_id="one")
    refused = await try_submit(store, "again", parent="app", phase=1)

    await finish(store, one, State.CANCELLED)

    assert isinstance(refused, Refusal)
    assert (await submit(store, "again", parent="app", phase=1)).state is State.QUEUED


@pytest.mark.parametrize("outcome", [State.SUCCEEDED, State.FAILED])
async def test_a_phase_that_ended_otherwise_stays_taken(store: Store, outcome: State) -> None:
    await finish(store, await start(store, "one", parent="app", phase=1), outcome)

    assert isinstance(await try_submit(store, "again", parent="app", phase=1), Refusal)


async def test_the_id_of_a_cancelled_phase_still_answers_that_job(store: Store) -> None:
    await submit(store, "one", parent="app", phase=1)
    await at(store, NOW).cancel(job_id="one")

    answer = accepted(await try_submit(store, "one", parent="app", phase=1))

    assert (answer.known, answer.job.state) == (True, State.CANCELLED)


async def test_the_phases_of_a_cancelled_parent_can_be_submitted_again_in_any_order(store: Store) -> None:
    await submit(store, "one", parent="app", phase=1, priority=20)
    await submit(store, "two", parent="app", phase=2)
    await at(store, NOW).cancel(parent="app")

    two = await submit(store, "two-again", parent="app", phase=2)
    waiting = await at(store, NOW).blockers("two-again")
    one = await submit(store, "one-again", parent="app", phase=1)
    await succeed(store, *await claim(store))

    assert (two.state, one.state) == (State.WAITING, State.QUEUED)
    assert waiting.waits_for_state is State.CANCELLED
    assert (one.priority, two.priority) == (20, 20)
    assert await state(store, "two-again") is State.QUEUED


async def test_a_cancelled_phase_is_never_released(store: Store) -> None:
    one = await start(store, "one", parent="app", phase=1)
    await submit(store, "two", parent="app", phase=2)
    await at(store, NOW).cancel(job_id="two")
    await submit(store, "two-again", parent="app", phase=2)

    await succeed(store, one)

    assert await state(store, "two") is State.CANCELLED
    assert await line(store) == ["two-again"]


async def test_a_parent_lists_a_cancelled_phase_before_the_one_that_took_its_number(store: Store) -> None:
    await submit(store, "one", parent="app", phase=1)
    await submit(store, "two", parent="app", phase=2)
    await at(store, NOW).cancel(job_id="one")
    await submit(store, "one-again", parent="app", phase=1)

    jobs = (await store.parent("app")).jobs
    cancelled = await at(store, NOW).cancel(parent="app")

    assert [job.id for job in jobs] == ["one", "one-again", "two"]
    assert [job.id for job in cancelled] == ["one-again", "two"]


async def test_a_phase_submitted_again_outlives_the_cancelled_one_within_retention(store: Store) -> None:
    await submit_all(store, numbered("loose", store.bounds.portion - 1), parent="app")
    await submit(store, "one", parent="app", phase=1)
    await at(store, NOW).cancel(parent="app")
    await succeed(store, await start(store, "again", parent="app", phase=1), now=NOW + 1)

    await forget_one_portion(store)  # ends between the two

    assert [job.id for job in (await store.parent("app")).jobs] == ["again"]
    assert (await submit(store, "two", parent="app", phase=2, now=NOW + HOUR)).state is State.QUEUED


async def test_a_cancelled_phase_is_known_when_a_later_one_of_its_number_is_forgotten_first(store: Store) -> None:
    """The clock went back between the two."""
    await submit_all(store, numbered("loose", store.bounds.portion - 1), parent="app")
    await at(store, NOW - HOUR).cancel(parent="app")
    await submit(store, "one", parent="app", phase=1)
    await at(store, NOW).cancel(job_id="one")
    await submit(store, "again", parent="app", phase=1, now=NOW - 2)
    await at(store, NOW - 1).cancel(job_id="again")

    await forget_one_portion(store)
    await submit(store, "two", parent="app", phase=2, now=NOW + HOUR)

    assert [job.id for job in (await store.parent("app")).jobs] == ["one", "two"]
    assert (await at(store, NOW + HOUR).blockers("two")).waits_for_state is State.CANCELLED


async def forget_one_portion(store: Store) -> None:
    await at(store, NOW + HOUR).upkeep(UpkeepRules(keep=Keep(ms=0, jobs=100, events=100, audit=100)))
