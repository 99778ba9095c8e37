"""What one event loop begins takes effect in that order, also when nobody waits for the answers any more."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, cast

import pytest

from qo.errors import JobNotFound
from qo.job import State, moment
from qo.store.contract import Store
from qo.values import Advance, Finished, Held, Renewal, Ticket
from tests.conformance.suite.harness import LEASE, NOW, at, claim, fresh_id, group_status, limit, succeed, try_submit

TURNS = range(6)
"""of the event loop, after which a call is cancelled: before it was begun, on its way, and when it was answered"""


async def busy(store: Store) -> list[asyncio.Task[Any]]:
    """Calls under way, so that those behind them have to wait."""
    calls = [asyncio.create_task(try_submit(store, fresh_id("other"))) for _ in range(5)]
    await asyncio.sleep(0)
    return calls


async def cancelled_after(turns: int, call: Coroutine[Any, Any, Any]) -> None:
    task = asyncio.create_task(call)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def ticket(holder: str) -> Ticket:
    return Ticket(holder=holder, groups=("api",), lease_ms=LEASE, wait_ms=LEASE)


@pytest.mark.parametrize("turns", TURNS)
async def test_a_release_comes_behind_the_cancelled_request_of_its_holder(store: Store, turns: int) -> None:
    await limit(store, "api", 1)
    others = await busy(store)
    for holder in ("ann", "bob"):  # one gets the slot, one stands in line
        await cancelled_after(turns, at(store, NOW).acquire([ticket(holder)]))
    await at(store, NOW).release([("ann", None), ("bob", None)])
    await asyncio.gather(*others)

    status = await group_status(store, "api")
    assert (status.active, status.waiting) == (0, 0)


@pytest.mark.parametrize("turns", TURNS)
async def test_a_job_whose_submit_was_cancelled_is_there_to_be_cancelled_or_never_comes(
    store: Store, turns: int
) -> None:
    others = await busy(store)
    await cancelled_after(turns, try_submit(store, "job"))
    try:
        (job,) = await at(store, NOW).cancel(job_id="job")
        expected = job.state
    except JobNotFound:
        expected = None
    await asyncio.gather(*others)

    assert expected in (State.CANCELLED, None)
    assert [job.state for job in (await store.jobs(limit=100)).jobs if job.id == "job"] == (
        [expected] if expected else []
    )


async def test_a_renewal_and_an_extension_begun_together_end_no_earlier_than_either_was_told(store: Store) -> None:
    """Renewals may come earlier than what was begun before them, also than one another."""
    await try_submit(store, "job")
    (lease,) = await claim(store)
    extension = Renewal(holder="job", token=lease.token, extend_ms=LEASE)
    renewal = Renewal(holder="job", token=lease.token, lease_ms=LEASE)

    answers = await asyncio.gather(
        *(at(store, NOW + LEASE // 2).renew([each]) for each in (extension, renewal, extension))
    )
    (present,) = await store.leases()

    told = [held.expires_at for answer in answers for held in answer.held if held.expires_at is not None]
    assert len(told) == 3
    assert present.expires_at >= max(told) >= moment(NOW + 3 * LEASE)


async def test_calls_that_are_begun_together_take_effect_in_their_order(store: Store) -> None:
    await limit(store, "api", 1)
    await try_submit(store, "running")
    (lease,) = await claim(store)

    *_, held, finished, advanced = await asyncio.gather(
        try_submit(store, "job"),
        at(store, NOW).cancel(job_id="job"),
        at(store, NOW).acquire([ticket("ann")]),
        at(store, NOW).release([("ann", None)]),
        at(store, NOW).advance([Advance(job_id="running", token=lease.token)]),
        succeed(store, lease),
        at(store, NOW).advance([Advance(job_id="running", token=lease.token, stage="late")]),
    )

    assert (await store.job("job")).state is State.CANCELLED
    assert (await group_status(store, "api")).active == 0
    answers = cast("list[list[Held | Finished]]", [held, finished, advanced])
    assert [answer.lost for (answer,) in answers] == [False, False, True]
