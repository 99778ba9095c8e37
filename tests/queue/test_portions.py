"""How much goes to the store in one call: by number, by bytes, by groups."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

import qo
from qo.loops.gathering import Gathering
from qo.loops.portions import MOST_BYTES, RENEW_AT_ONCE, Portion
from qo.queue.queue import SUBMIT_AT_ONCE, Queue
from qo.values import Registration
from qo.worker.exchange import FINISH_AT_MOST
from qo.worker.execution import Execution
from qo.worker.heartbeat import Heartbeat
from qo.worker.membership import Membership
from tests.worker.running import running, soon, state_is

LARGE = "x" * 300_000
"""three of them are less than 1 MiB, four are more"""
GROUPS = [f"g{number}" for number in range(64)]


def counted(store: Any, operation: str, of: Any = len) -> list[int]:
    """What each call of it is given from now on."""
    do, calls = getattr(store, operation), []

    async def counting(items: Any, **named: Any) -> Any:
        calls.append(of(items))
        return await do(items, **named)

    setattr(store, operation, counting)
    return calls


def test_a_portion_ends_at_its_number_or_its_bytes_whichever_is_first() -> None:
    by_size: Portion[int] = Portion(3, size=lambda size: size)
    by_count: Portion[int] = Portion(10, counts=lambda count: count)

    assert by_size.length([]) == 0
    assert by_size.length([1, 1, 1, 1]) == 3
    assert by_size.length([MOST_BYTES, 0, 1]) == 2
    assert by_size.length([MOST_BYTES + 1, 1]) == 1
    assert by_count.length([4, 6, 1]) == 2
    assert by_count.length([11, 1]) == 1
    assert by_count.cut([9, 2, 3]) == ([9], [2, 3])


async def test_a_list_of_large_jobs_goes_in_portions_of_one_mebibyte(queue: qo.Queue) -> None:
    calls = counted(queue.store, "submit")

    jobs = await queue.submit_many([qo.New("build", LARGE, id=f"j{number}") for number in range(8)])

    assert calls == [3, 3, 2]
    assert [job.id for job in jobs if isinstance(job, qo.Job)] == [f"j{number}" for number in range(8)]


async def test_a_malformed_job_behind_the_first_mebibyte_and_none_is_submitted(queue: qo.Queue) -> None:
    large = [qo.New("build", LARGE) for _ in range(4)]

    with pytest.raises(qo.InvalidSubmit, match="user is"):
        await queue.submit_many([*large, qo.New("build", user="\0")])

    assert await queue.jobs() == []


async def test_jobs_of_many_groups_go_in_smaller_portions(queue: qo.Queue) -> None:
    calls = counted(queue.store, "submit")

    await queue.submit_many([qo.New("build", groups=GROUPS) for _ in range(60)])

    assert calls == [27, 27, 6]
    assert SUBMIT_AT_ONCE // (1 + 64 // 8) == 27


async def test_single_submits_that_gather_go_in_portions_of_one_mebibyte(queue: qo.Queue) -> None:
    calls = counted(queue.store, "submit")
    counting = Queue(queue.store, queue.settings)

    jobs = await asyncio.gather(*(counting.submit("build", LARGE, id=f"j{number}") for number in range(8)))

    assert calls == [1, 3, 3, 1]
    assert [job.id for job in jobs] == [f"j{number}" for number in range(8)]


async def test_checkpoints_that_gather_go_in_portions_of_one_mebibyte(queue: qo.Queue) -> None:
    sizes = counted(queue.store, "advance", lambda items: sum(len(each.checkpoint or b"") for each in items))
    worker = qo.Worker(queue, "worker-1", concurrency=20)
    all_begun = asyncio.Barrier(8)

    @worker.task
    async def saves(data: Any, ctx: qo.Context) -> None:
        await soon(all_begun.wait())
        await ctx.save(LARGE)

    jobs = [await queue.submit("saves") for _ in range(8)]
    async with running(worker):
        for job in jobs:
            await state_is(queue, job.id, qo.State.SUCCEEDED)

    assert sum(sizes) == 8 * (len(LARGE) + 2)
    assert max(sizes) <= MOST_BYTES


async def test_results_go_in_portions_of_one_mebibyte(queue: qo.Queue) -> None:
    worker = qo.Worker(queue, "worker-1", concurrency=20)
    sizes = counted(queue.store, "finish", lambda items: sum(len(each.result or b"") for each in items))
    all_begun = asyncio.Barrier(8)

    @worker.task
    async def answers() -> str:
        await soon(all_begun.wait())
        return LARGE

    jobs = [await queue.submit("answers") for _ in range(8)]
    async with running(worker):
        for job in jobs:
            await state_is(queue, job.id, qo.State.SUCCEEDED)

    assert sum(sizes) == 8 * (len(LARGE) + 2)
    assert max(sizes) <= MOST_BYTES


async def test_jobs_of_many_groups_end_in_smaller_portions(queue: qo.Queue) -> None:
    worker = qo.Worker(queue, "worker-1", concurrency=60)
    calls = counted(queue.store, "finish")
    all_begun = asyncio.Barrier(30)

    @worker.task("build", groups=[f"of-task-{number}" for number in range(64)])
    async def build() -> None:
        await soon(all_begun.wait())

    jobs = [await queue.submit("build", groups=GROUPS) for _ in range(30)]
    async with running(worker):
        for job in jobs:
            await state_is(queue, job.id, qo.State.SUCCEEDED)

    assert sum(calls) == 30
    assert max(calls) <= FINISH_AT_MOST // 17


async def test_many_leases_are_renewed_in_portions(queue: qo.Queue) -> None:
    """None of these is held, and each of them hears of it, also those behind the first call."""
    calls = counted(queue.store, "renew")
    membership = Membership(queue.store, Registration(name="worker-1", tasks=(), capacity=0), joined=lambda _: None)
    heartbeat = Heartbeat(queue.store, membership, lease_ms=60_000, renewals_per_lease=3, cursor=0)
    told: list[str] = []
    tokens = [str(number) for number in range(1, RENEW_AT_ONCE + 2)]
    for token in tokens:
        execution = SimpleNamespace(
            lease=SimpleNamespace(job_id=f"j{token}", token=token),
            flag=lambda reason: None,
            interrupt=lambda reason, token=token: told.append(token),
        )
        heartbeat.hold(cast("Execution", execution))

    await heartbeat.beat()
    await asyncio.sleep(0)  # they are interrupted in the next turn of the worker's event loop

    assert calls == [RENEW_AT_ONCE, 1]
    assert sorted(told) == sorted(tokens)


async def test_the_items_of_a_call_are_the_first_that_fit() -> None:
    sent: list[list[int]] = []
    go_on = asyncio.Event()

    async def send(items: Any) -> Any:
        sent.append(list(items))
        await go_on.wait()
        return items

    gathering: Gathering[int, int] = Gathering(send, portion=Portion(10, counts=lambda count: count))
    calls = [asyncio.create_task(gathering.send(item)) for item in (1, 5, 4, 2, 20, 1)]
    await asyncio.sleep(0)
    go_on.set()

    assert await soon(asyncio.gather(*calls)) == [1, 5, 4, 2, 20, 1]
    assert sent == [[1], [5, 4], [2], [20], [1]]


@pytest.mark.parametrize("count", [3, SUBMIT_AT_ONCE + 3])
async def test_a_malformed_job_of_a_list_is_refused_alone_and_the_others_are_submitted_once(
    queue: qo.Queue, count: int
) -> None:
    jobs = [qo.New("build", id=f"job-{number}") for number in range(count)]
    jobs[-2] = qo.New("build", id="malformed", phase=2)  # only the store's check finds that it has no parent

    answers = await queue.admit_each(jobs)

    assert [index for index, answer in enumerate(answers) if isinstance(answer, qo.SubmitRefused)] == [count - 2]
    assert not any(answer.known for answer in answers if not isinstance(answer, qo.SubmitRefused))
    assert len(await queue.jobs(limit=2 * count)) == count - 1
