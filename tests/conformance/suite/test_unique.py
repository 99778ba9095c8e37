"""Unique keys: one unfinished job each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from qo.errors import InvalidTransition, JobNotFound
from qo.job import State
from qo.store.contract import Store
from tests.conformance.suite.harness import (
    BROKEN,
    HOUR,
    NOW,
    accepted,
    ask_to_confirm,
    at,
    fail,
    outcome,
    run,
    start,
    state,
    submit,
    try_submit,
)


async def test_a_second_submit_with_the_key_of_an_unfinished_job_returns_that_one(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]]
) -> None:
    first = await submit(store, "a", unique="k", user="u1")
    before = await snapshot()

    answer = accepted(await try_submit(store, "b", unique="k", user="u2", task="other"))

    assert (answer.known, answer.job) == (True, first)
    assert await snapshot() == before
    with pytest.raises(JobNotFound):
        await store.job("b")


@pytest.mark.parametrize("held", ["scheduled", "waiting", "queued", "starting", "running", "confirming"])
async def test_every_unfinished_state_keeps_the_key(store: Store, held: str) -> None:
    if held == "scheduled":
        await submit(store, "a", unique="k", run_at_ms=NOW + HOUR)
    elif held == "waiting":
        await submit(store, "a", unique="k", parent="p", phase=2)
    elif held == "queued":
        await submit(store, "a", unique="k")
    else:
        lease = await start(store, "a", unique="k")
        if held == "running":
            await run(store, lease)
        if held == "confirming":
            await ask_to_confirm(store, lease)

    answer = accepted(await try_submit(store, "b", unique="k"))

    assert (answer.known, answer.job.id, answer.job.state) == (True, "a", State(held))


@pytest.mark.parametrize("ended", [State.SUCCEEDED, State.FAILED, State.CANCELLED])
async def test_a_job_that_has_ended_gives_its_key_free(store: Store, ended: State) -> None:
    lease = await start(store, "a", unique="k")
    await at(store, NOW).finish([outcome(lease, ended, error=BROKEN)])

    answer = accepted(await try_submit(store, "b", unique="k"))

    assert (answer.known, answer.job.id) == (False, "b")


async def test_a_job_without_a_key_is_never_taken_for_another(store: Store) -> None:
    await submit(store, "a", unique="k")

    assert not accepted(await try_submit(store, "b")).known
    assert not accepted(await try_submit(store, "c", unique="other")).known


async def test_of_many_simultaneous_submits_with_one_key_one_is_accepted(store: Store) -> None:
    answers = await asyncio.gather(*(try_submit(store, f"j{number}", unique="k") for number in range(50)))

    assert sum(not accepted(answer).known for answer in answers) == 1
    assert len({accepted(answer).job.id for answer in answers}) == 1
    assert (await store.line(limit=0)).queued == 1


async def test_a_failed_job_cannot_be_retried_while_another_has_its_key(
    store: Store, snapshot: Callable[[], Awaitable[dict[str, Any]]]
) -> None:
    lease = await start(store, "a", unique="k")
    await fail(store, lease)
    await submit(store, "b", unique="k")
    before = await snapshot()

    with pytest.raises(InvalidTransition, match="'a'"):
        await at(store, NOW).retry("a")

    assert await snapshot() == before


async def test_a_failed_job_is_retried_when_the_other_one_has_ended(store: Store) -> None:
    lease = await start(store, "a", unique="k")
    await fail(store, lease)
    await submit(store, "b", unique="k")
    await at(store, NOW).cancel(job_id="b")

    await at(store, NOW).retry("a")

    assert await state(store, "a") is State.QUEUED
    assert accepted(await try_submit(store, "c", unique="k")).job.id == "a"
