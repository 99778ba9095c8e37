"""A run that is interrupted: it took too long, or it was cancelled."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from typing import Any

import pytest

import qo
from qo.event import Feed
from qo.worker import heartbeat
from tests.worker.running import run_one, running, soon, state_is

# --- timeouts -------------------------------------------------------------------------------------------------


async def test_a_handler_that_takes_too_long_is_stopped_and_tried_again(queue: qo.Queue, worker: qo.Worker) -> None:
    stopped = []

    @worker.task(timeout=0.05)
    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(True)

    job = await queue.submit("slow", max_attempts=2)
    async with running(worker):
        ended = await queue.wait(job.id, timeout=15)

    assert (ended.state, ended.attempts, stopped) == (qo.State.FAILED, 2, [True, True])
    assert ended.error is not None
    assert ended.error.message == "It took longer than the 0.05 seconds it may take."


async def test_a_submits_timeout_wins_over_the_tasks(queue: qo.Queue, worker: qo.Worker) -> None:
    @worker.task(timeout=0.01)
    async def takes_a_while() -> str:
        await asyncio.sleep(0.05)
        return "done"

    assert (await run_one(queue, worker, "takes_a_while", timeout=30)).result == "done"


async def test_a_thread_that_takes_too_long_sees_it_and_its_slot_is_kept_until_it_returns(
    queue: qo.Queue, worker: qo.Worker
) -> None:
    told, go_on = threading.Event(), threading.Event()

    @worker.task(timeout=0.05, max_attempts=1)
    def slow(data: Any, ctx: Any) -> str:
        while not ctx.cancelled:
            threading.Event().wait(0.005)
        told.set()
        go_on.wait(10)
        return "too late to count"

    await queue.set_limit("slow", 1)
    job = await queue.submit("slow", max_attempts=1)
    async with running(worker):
        await asyncio.to_thread(told.wait, 10)
        assert (await queue.limit("slow")).active == 1
        go_on.set()
        ended = await queue.wait(job.id, timeout=10)

    assert ended.state is qo.State.FAILED


@pytest.mark.parametrize("overrides", [{"worker": {"grace_secs": 0.05}}])
@pytest.mark.parametrize("in_thread", [False, True], ids=["async", "thread"])
async def test_a_handler_that_does_not_listen_is_given_up_after_the_grace_period(
    queue: qo.Queue, worker: qo.Worker, in_thread: bool
) -> None:
    release = threading.Event()

    def deaf_thread() -> None:
        release.wait(20)

    async def deaf() -> None:
        while not release.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue

    worker.task("deaf", timeout=0.05)(deaf_thread if in_thread else deaf)
    job = await queue.submit("deaf", max_attempts=1)
    async with running(worker):
        ended = await queue.wait(job.id, timeout=10)
    release.set()

    assert ended.state is qo.State.FAILED


# --- cancellation ---------------------------------------------------------------------------------------------


async def test_a_waiting_job_that_is_cancelled_leaves_the_line_at_once(queue: qo.Queue) -> None:
    job = await queue.submit("build")

    assert (await queue.cancel(job.id)).state is qo.State.CANCELLED
    assert await queue.jobs(status="queued") == []


async def test_a_running_handler_is_cancelled_within_a_second(queue: qo.Queue, worker: qo.Worker) -> None:
    begun = asyncio.Event()
    cleaned_up = []

    @worker.task
    async def endless(data: Any, ctx: qo.Context) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned_up.append(ctx.cancelled)

    job = await queue.submit("endless")
    async with running(worker):
        await soon(begun.wait())
        await queue.cancel(job.id, by="ops")
        ended = await queue.wait(job.id, timeout=1)

    assert (ended.state, cleaned_up) == (qo.State.CANCELLED, [True])


async def test_a_running_thread_sees_that_it_is_cancelled_even_while_the_loop_is_blocked(
    queue: qo.Queue, worker: qo.Worker
) -> None:
    begun, blocked, seen = threading.Event(), threading.Event(), threading.Event()

    @worker.task
    def watchful(data: Any, ctx: Any) -> str:
        begun.set()
        while not ctx.cancelled:
            threading.Event().wait(0.005)
        seen.set()
        return "stopped early, which is no result"

    @worker.task
    async def blocks() -> None:
        blocked.set()
        seen.wait(10)

    job = await queue.submit("watchful")

    async def cancel_once_blocked() -> None:
        await asyncio.to_thread(blocked.wait, 10)

    async with running(worker):
        await asyncio.to_thread(begun.wait, 10)
        # The cancel is committed first, the loop blocked before its news can be handled there.
        await queue.store.cancel(job_id=job.id)
        await queue.submit("blocks")
        ended = await queue.wait(job.id, timeout=10)

    assert seen.is_set()
    assert ended.state is qo.State.CANCELLED


async def test_a_cancel_that_comes_before_the_heartbeat_has_begun_to_listen_takes_effect(
    queue: qo.Queue, worker: qo.Worker
) -> None:
    """Whatever the heartbeat's thread asks of the feed is held up until the job, which has told that it runs, has been
    cancelled."""
    cancelled = threading.Event()

    @worker.task
    async def endless(data: Any, ctx: qo.Context) -> None:
        await ctx.progress(1)  # so that no later report brings the news
        await queue.store.cancel(job_id=ctx.job.id)
        cancelled.set()
        await asyncio.Event().wait()

    def held_up(name: str) -> Any:
        method = getattr(queue.store, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            if threading.current_thread() is not threading.main_thread():
                await asyncio.to_thread(cancelled.wait, 10)
            return await method(*args, **kwargs)

        return call

    for name in ("events",):
        setattr(queue.store, name, held_up(name))
    job = await queue.submit("endless")
    async with running(worker):
        async with asyncio.timeout(5):  # long before the next heartbeat, which would tell it too
            await state_is(queue, job.id, qo.State.CANCELLED)
    ended = await queue.get(job.id)

    assert (ended.state, ended.attempts) == (qo.State.CANCELLED, 1)


async def test_a_job_cancelled_while_it_starts_does_not_run_to_its_end(queue: qo.Queue, worker: qo.Worker) -> None:
    """The cancel comes after the claim and before the heartbeat listens: the report that it runs brings the news."""

    @worker.task
    async def endless() -> None:
        await asyncio.Event().wait()

    claim = queue.store.claim

    async def claim_then_cancel(**options: Any) -> Any:
        claimed = await claim(**options)
        for lease in claimed.leases:
            await queue.store.cancel(job_id=lease.job.id)
        return claimed

    queue.store.claim = claim_then_cancel  # type: ignore[method-assign]
    job = await queue.submit("endless")
    async with running(worker):
        await state_is(queue, job.id, qo.State.CANCELLED)
    ended = await queue.get(job.id)

    assert (ended.state, ended.attempts) == (qo.State.CANCELLED, 1)


async def test_a_cancel_in_a_part_of_the_feed_that_was_missed_takes_effect_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The feed says that it was cut, and nothing more; the next renewal is minutes away."""
    monkeypatch.setattr(heartbeat, "BEATS_PER_LIFE", 0.01)
    settings = {"concurrency": {"default_lease_duration_secs": 3600}, "worker": {"grace_secs": 5}}
    async with await qo.connect("memory://", settings=settings) as queue:
        cancelled = threading.Event()

        async def cut_feed(worker: str, after: int) -> AsyncGenerator[Feed]:
            await asyncio.to_thread(cancelled.wait)
            yield Feed((), cursor=(await queue.store.events(None)).cursor, reset=True)
            await asyncio.Event().wait()

        queue.store.signals = cut_feed  # type: ignore[method-assign]
        worker, started = qo.Worker(queue, "worker-1"), asyncio.Event()

        @worker.task
        async def build() -> None:
            started.set()
            await asyncio.Event().wait()

        job = await queue.submit("build")
        async with running(worker):
            try:
                await soon(started.wait())
                await state_is(queue, job.id, qo.State.RUNNING)  # that report's answer would tell of a cancel, too
                await queue.cancel(job.id)
            finally:
                cancelled.set()
            ended = await queue.wait(job.id, timeout=10)

    assert ended.state is qo.State.CANCELLED
