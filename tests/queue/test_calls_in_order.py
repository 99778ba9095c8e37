"""Pairs of calls about one job, holder or worker: the later one is never undone by the earlier one.

Each test stages the race: the earlier call is held up on its way until the later one has been answered.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import qo
from qo.limits.semaphore import user_semaphore
from qo.queue.queue import SUBMIT_AT_ONCE, Queue
from tests.limits.limiters_on_a_queue import (
    MakeLimiter,
    enter_and_leave,
    make_fixture,  # noqa: F401 - asked for by name
)
from tests.limits.semaphore_staging import Staged, is_untouched, queue_on
from tests.worker.running import running, soon, state_is, until
from tests.worker.slow_store import SlowStore

SOON_SECONDS = 20
SHORT_LEASE: dict[str, Any] = {"concurrency": {"default_lease_duration_secs": 0.6}}
"""renewed every fifth of a second"""


async def begun(slow: SlowStore, name: str, times: int = 1) -> None:
    async def is_so() -> bool:
        return slow.times(name) == times

    await until(is_so)


# --- submit, and what its caller does next ----------------------------------------------------------------------


async def test_a_submit_that_was_not_sent_yet_does_not_go_out_after_its_caller_was_cancelled(queue: qo.Queue) -> None:
    slow = SlowStore(queue.store, {"submit"})
    front = Queue(slow, queue.settings)
    slow.hold_up()
    first = asyncio.create_task(front.submit("work", id="first"))
    await begun(slow, "submit")
    second = asyncio.create_task(front.submit("work", id="second"))
    await asyncio.sleep(0)  # in which it was gathered behind the first
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    with pytest.raises(qo.JobNotFound):
        await front.cancel("second")
    slow.let_through()
    await soon(first)
    await front.submit("work", id="third")  # behind everything that was gathered

    assert sorted(job.id for job in await queue.jobs()) == ["first", "third"]


async def test_a_caller_whose_submit_was_cancelled_on_its_way_can_ask_again_by_the_same_id(queue: qo.Queue) -> None:
    slow = SlowStore(queue.store, {"submit"})
    front = Queue(slow, queue.settings)
    slow.hold_up()
    submit = asyncio.create_task(front.submit("work", 1, id="job"))
    await begun(slow, "submit")
    submit.cancel()
    await asyncio.gather(submit, return_exceptions=True)
    again = asyncio.create_task(front.submit("work", 1, id="job"))
    await begun(slow, "submit", 2)
    slow.let_through()

    assert (await soon(again)).id == "job"
    assert [job.id for job in await queue.jobs()] == ["job"]


async def test_a_long_submit_that_is_cancelled_sends_no_further_portion(queue: qo.Queue) -> None:
    slow = SlowStore(queue.store, {"submit"})
    front = Queue(slow, queue.settings)
    slow.hold_up()
    submit = asyncio.create_task(front.submit_many([qo.New("work")] * (4 * SUBMIT_AT_ONCE)))
    await begun(slow, "submit", 2)
    submit.cancel()
    await asyncio.gather(submit, return_exceptions=True)
    slow.let_through()
    await front.submit("work", id="behind")

    assert len(await queue.jobs(limit=10_000)) == 2 * SUBMIT_AT_ONCE + 1


# --- a job's lease, reports and outcome -------------------------------------------------------------------------


@pytest.mark.parametrize("overrides", [SHORT_LEASE])
async def test_a_renewal_that_the_outcome_overtook_changes_nothing(
    queue: qo.Queue, worker: qo.Worker, caplog: pytest.LogCaptureFixture
) -> None:
    renew, finish = queue.store.renew, queue.store.finish
    is_renewing, is_finished = threading.Event(), threading.Event()
    lost: list[bool] = []

    async def late(renewals: Any, **options: Any) -> Any:
        if renewals and not is_renewing.is_set():
            is_renewing.set()
            await asyncio.to_thread(is_finished.wait, SOON_SECONDS)
            answers = await renew(renewals, **options)
            lost.extend(answer.lost for answer in answers.held)
            return answers
        return await renew(renewals, **options)

    async def finish_and_tell(*args: Any, **options: Any) -> Any:
        answers = await finish(*args, **options)
        is_finished.set()
        return answers

    queue.store.renew = late  # type: ignore[method-assign]
    queue.store.finish = finish_and_tell  # type: ignore[method-assign]

    @worker.task
    async def work() -> str:
        await asyncio.to_thread(is_renewing.wait, SOON_SECONDS)
        return "done"

    async def was_answered() -> bool:
        return bool(lost)

    async with running(worker):
        job = await queue.submit("work")
        ended = await queue.wait(job.id, timeout=SOON_SECONDS)
        await until(was_answered)

    assert (ended.result, ended.attempts, lost) == ("done", 1, [True])
    assert (await queue.get(job.id)).state is qo.State.SUCCEEDED
    assert "lost" not in caplog.text


async def test_a_report_that_the_outcome_overtook_is_refused(queue: qo.Queue) -> None:
    advance, finish = queue.store.advance, queue.store.finish
    is_reporting, is_finished = asyncio.Event(), asyncio.Event()

    async def late(advances: Any, **options: Any) -> Any:
        if any(each.progress is not None for each in advances):
            is_reporting.set()
            await soon(is_finished.wait())
        return await advance(advances, **options)

    async def finish_and_tell(*args: Any, **options: Any) -> Any:
        answers = await finish(*args, **options)
        is_finished.set()
        return answers

    queue.store.advance = late  # type: ignore[method-assign]
    queue.store.finish = finish_and_tell  # type: ignore[method-assign]
    worker = qo.Worker(queue, "worker-1")
    reports: list[asyncio.Task[None]] = []

    @worker.task
    async def work(data: Any, ctx: qo.Context) -> None:
        reports.append(asyncio.create_task(ctx.progress(1, 2)))
        await is_reporting.wait()

    async with running(worker):
        job = await queue.submit("work")
        await queue.wait(job.id, timeout=SOON_SECONDS)
        (refused,) = await asyncio.gather(*reports, return_exceptions=True)

    after = await queue.get(job.id)
    assert isinstance(refused, qo.LeaseLost)
    assert (after.state, after.progress) == (qo.State.SUCCEEDED, None)


async def test_a_job_whose_first_report_was_given_up_before_it_was_sent_is_known_to_run(queue: qo.Queue) -> None:
    advance, is_held_up, go_on = queue.store.advance, asyncio.Event(), asyncio.Event()

    async def held_up(advances: Any, **options: Any) -> Any:
        if any(each.progress is not None for each in advances):
            is_held_up.set()
            await soon(go_on.wait())
        return await advance(advances, **options)

    queue.store.advance = held_up  # type: ignore[method-assign]
    worker = qo.Worker(queue, "worker-1")

    @worker.task
    async def first(data: Any, ctx: qo.Context) -> None:
        await ctx.progress(1)

    @worker.task
    async def second(data: Any, ctx: qo.Context) -> None:
        await is_held_up.wait()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await ctx.progress(1)
        await go_on.wait()

    async with running(worker):
        await queue.submit("first")
        job = await queue.submit("second")
        try:
            await state_is(queue, job.id, qo.State.RUNNING)
        finally:
            go_on.set()
        assert (await queue.wait(job.id, timeout=SOON_SECONDS)).state is qo.State.SUCCEEDED


# --- holders without a job --------------------------------------------------------------------------------------


@pytest.mark.parametrize("overrides", [SHORT_LEASE])
async def test_a_renewal_that_the_release_of_a_limiters_caller_overtook_changes_nothing(
    queue: qo.Queue, make: MakeLimiter, caplog: pytest.LogCaptureFixture
) -> None:
    renew, release = queue.store.renew, queue.store.release
    is_renewing, is_released = threading.Event(), threading.Event()
    lost: list[bool] = []

    async def late(renewals: Any, **options: Any) -> Any:
        is_renewing.set()
        await asyncio.to_thread(is_released.wait, SOON_SECONDS)
        answers = await renew(renewals, **options)
        lost.extend(answer.lost for answer in answers.held)
        return answers

    async def release_and_tell(*args: Any, **options: Any) -> Any:
        answers = await release(*args, **options)
        is_released.set()
        return answers

    async def was_answered() -> bool:
        return bool(lost)

    queue.store.renew = late  # type: ignore[method-assign]
    queue.store.release = release_and_tell  # type: ignore[method-assign]
    limiter = make({"ollama": 1})
    async with limiter.acquire("ollama") as lease:
        assert await asyncio.to_thread(is_renewing.wait, SOON_SECONDS)
    await until(was_answered)

    assert (lost, lease.lost) == ([True], False)
    assert "lost" not in caplog.text
    assert await enter_and_leave(limiter, "ollama") == {"provider:ollama": 0}


async def test_a_heartbeat_that_the_release_of_its_holder_overtook_brings_nothing_back(queue: qo.Queue) -> None:
    slow = SlowStore(queue.store, {"renew"})
    semaphore = user_semaphore(queue_on(slow), "ada", "solo")
    await semaphore.acquire("h")
    slow.hold_up()
    renewals = slow.times("renew")
    beat = asyncio.create_task(semaphore.heartbeat("h"))
    await begun(slow, "renew", renewals + 1)
    released = await semaphore.release("h")
    slow.let_through()

    assert (released, await soon(beat)) == (True, False)
    assert await is_untouched(semaphore)


async def test_a_slot_taken_behind_a_release_that_was_cancelled_is_kept(queue: qo.Queue) -> None:
    slow = SlowStore(queue.store, {"release", "acquire"})
    semaphore = user_semaphore(queue_on(slow), "ada", "solo")
    await semaphore.acquire("h")
    slow.hold_up()
    release = asyncio.create_task(semaphore.release("h"))
    await begun(slow, "release")
    release.cancel()
    await asyncio.gather(release, return_exceptions=True)
    acquire = asyncio.create_task(semaphore.acquire("h"))
    await begun(slow, "acquire", 2)
    slow.let_through()

    assert await soon(acquire)
    assert await semaphore.count() == 1


@pytest.mark.parametrize("had_one", [False, True])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_manager_cancelled_at_whatever_call_leaves_no_new_slot_behind(
    queue: qo.Queue, when: str, had_one: bool
) -> None:
    calls = ("set_limits", "groups", "acquire")
    for at in range(1, len(calls) + 1):
        group, left = f"api-{at}", at
        if had_one:
            await qo.ConcurrencyManager(queue).try_acquire(group, 1, "ann")
        staged = Staged(queue.store)
        taking = asyncio.create_task(qo.ConcurrencyManager(queue_on(staged)).try_acquire(group, 1, "ann"))

        async def cancel(*_: Any, taking: asyncio.Task[Any] = taking) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                taking.cancel()

        for name in calls:
            getattr(staged, when)[name] = cancel
        await soon(asyncio.wait([taking]))

        assert taking.cancelled()
        assert (await queue.limit(group)).active == had_one


async def test_an_extension_that_the_release_of_a_slot_overtook_brings_nothing_back(queue: qo.Queue) -> None:
    slow = SlowStore(queue.store, {"renew"})
    manager = qo.ConcurrencyManager(queue_on(slow))
    await manager.try_acquire("api", 1, "ann")
    slow.hold_up()
    extension = asyncio.create_task(manager.extend_lease("api", 0, "ann", 60))
    await begun(slow, "renew")
    released = await manager.release("api", 0, "ann")
    slow.let_through()

    assert (released, await soon(extension)) == (True, False)
    assert await manager.try_acquire("api", 1, "bob") == 0
