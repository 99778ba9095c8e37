"""Round trips of a worker and its store: two may be under way, so that neither side waits for the other."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import qo
from qo.worker import exchange
from tests.worker.running import running, soon, state_is, until

MANY = 60
CAPACITY = 4


async def test_an_outcome_is_sent_while_a_claim_is_still_under_way(queue: qo.Queue) -> None:
    worker = qo.Worker(queue, "worker-1", concurrency=2)
    second_claim, go_on = asyncio.Event(), asyncio.Event()
    claim, calls, under_way = queue.store.claim, 0, False

    async def second_is_held_up(**wanted: Any) -> Any:
        nonlocal calls, under_way
        calls += 1
        if calls == 2:
            under_way = True
            second_claim.set()
            await go_on.wait()
            under_way = False
        return await claim(**wanted)

    queue.store.claim = second_is_held_up  # type: ignore[method-assign]

    @worker.task
    async def ends_then() -> None:
        await second_claim.wait()

    first, second = [await queue.submit("ends_then") for _ in range(2)]
    async with running(worker):
        try:
            await state_is(queue, first.id, qo.State.SUCCEEDED)
            assert under_way
        finally:
            go_on.set()
        await state_is(queue, second.id, qo.State.SUCCEEDED)


async def test_claims_under_way_and_running_jobs_never_exceed_the_capacity(queue: qo.Queue) -> None:
    worker = qo.Worker(queue, "worker-1", concurrency=CAPACITY)
    claim, calls = queue.store.claim, 0
    third_has_begun = asyncio.Event()
    asked = inside = 0
    seen: list[int] = []

    async def counted(*, capacity: int, **wanted: Any) -> Any:
        nonlocal asked, calls
        calls += 1
        asked += capacity
        seen.append(asked + inside)
        try:
            if calls == 2:
                await soon(third_has_begun.wait())  # so that two are under way for sure
            elif calls == 3:
                third_has_begun.set()
            return await claim(capacity=capacity, **wanted)
        finally:
            asked -= capacity

    queue.store.claim = counted  # type: ignore[method-assign]

    @worker.task
    async def quick(data: int) -> None:
        nonlocal inside
        inside += 1
        seen.append(inside)
        await asyncio.sleep(0.001 * (data % 3))
        inside -= 1

    for number in range(MANY):
        await queue.submit("quick", number)
    await soon(worker.run_until_idle())

    ended = await queue.jobs(status="succeeded", limit=MANY + 1)
    assert (len(ended), {job.attempts for job in ended}) == (MANY, {1})
    assert max(seen) == CAPACITY


async def test_claims_whose_answers_were_lost_are_repeated_and_lose_nothing(
    queue: qo.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of them at once: what the first has got must not be taken for what the second asked for."""
    monkeypatch.setattr(exchange, "TRY_AGAIN_SECONDS", 0.01)
    worker = qo.Worker(queue, "worker-1", concurrency=CAPACITY)
    claim = queue.store.claim
    answers_lost = 0

    async def answer_is_lost_sometimes(**wanted: Any) -> Any:
        nonlocal answers_lost
        claimed = await claim(**wanted)
        if claimed.leases and answers_lost < MANY // 4:
            answers_lost += 1
            raise qo.StoreUnavailable("The answer was lost.")
        return claimed

    @worker.task
    async def quick() -> None: ...

    for _ in range(MANY):
        await queue.submit("quick")

    async def all_have_ended() -> bool:
        return len(await queue.jobs(status="succeeded", limit=MANY + 1)) == MANY

    async with running(worker):
        queue.store.claim = answer_is_lost_sometimes  # type: ignore[method-assign]
        await until(all_have_ended)

    assert answers_lost == MANY // 4
    assert {job.attempts for job in await queue.jobs(status="succeeded", limit=MANY + 1)} == {1}


async def test_a_claim_whose_answer_was_lost_is_repeated_though_nothing_else_happens(
    queue: qo.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store does not announce a job that it has given away already. Another one runs, so no offer stands."""
    monkeypatch.setattr(exchange, "TRY_AGAIN_SECONDS", 0.01)
    worker = qo.Worker(queue, "worker-1", concurrency=2)
    claim, lost, begun, go_on = queue.store.claim, 0, asyncio.Event(), asyncio.Event()

    async def first_answer_is_lost(**wanted: Any) -> Any:
        nonlocal lost
        claimed = await claim(**wanted)
        if claimed.leases and begun.is_set() and not lost:
            lost += 1
            raise qo.StoreUnavailable("The answer was lost.")
        return claimed

    @worker.task
    async def long() -> None:
        begun.set()
        await go_on.wait()

    @worker.task
    async def quick() -> None: ...

    queue.store.claim = first_answer_is_lost  # type: ignore[method-assign]
    async with running(worker):
        await queue.submit("long")
        await soon(begun.wait())
        job = await queue.submit("quick")
        try:
            await state_is(queue, job.id, qo.State.SUCCEEDED)
        finally:
            go_on.set()

    assert (lost, (await queue.get(job.id)).attempts) == (1, 1)


async def test_a_claim_id_is_never_used_again_once_it_was_answered(
    queue: qo.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When its jobs have ended it is a new id to the store, and the jobs that it takes would be lost."""
    monkeypatch.setattr(exchange, "TRY_AGAIN_SECONDS", 0.01)
    worker = qo.Worker(queue, "worker-1", concurrency=CAPACITY)
    claim, calls = queue.store.claim, 0
    answered: set[str] = set()
    used_again: set[str] = set()

    async def answer_is_lost_sometimes(*, claim_id: str, **wanted: Any) -> Any:
        nonlocal calls
        calls += 1
        is_lost = calls % 3 == 0
        used_again.update({claim_id} & answered)
        claimed = await claim(claim_id=claim_id, **wanted)
        if is_lost:
            raise qo.StoreUnavailable("The answer was lost.")
        answered.add(claim_id)
        return claimed

    @worker.task
    async def quick() -> None: ...

    queue.store.claim = answer_is_lost_sometimes  # type: ignore[method-assign]
    jobs = [await queue.submit("quick") for _ in range(MANY)]
    async with running(worker):
        ended = [await queue.wait(job.id, timeout=20) for job in jobs]

    assert calls > len(answered) > 1
    assert used_again == set()
    assert {(job.state, job.attempts) for job in ended} == {(qo.State.SUCCEEDED, 1)}
    assert await queue.store.leases() == ()


async def test_a_worker_that_is_stopped_with_two_under_way_loses_nothing(queue: qo.Queue) -> None:
    worker = qo.Worker(queue, "worker-1", concurrency=CAPACITY)
    claim, claims = queue.store.claim, 0

    async def stopped_in_the_middle(**wanted: Any) -> Any:
        nonlocal claims
        claims += 1
        number = claims
        claimed = await claim(**wanted)
        if number == 4:
            worker.stop()
        return claimed

    queue.store.claim = stopped_in_the_middle  # type: ignore[method-assign]

    @worker.task
    async def quick() -> None: ...

    for _ in range(MANY):
        await queue.submit("quick")
    await soon(worker.run())

    left, ended = await queue.jobs(status="queued", limit=MANY), await queue.jobs(status="succeeded", limit=MANY)
    assert len(left) + len(ended) == MANY
    assert {job.attempts for job in left} == {0}
    assert {job.attempts for job in ended} == {1}
    assert await queue.store.leases() == ()
