"""How a run ends: retries, failures, timeouts, cancellation, and handlers that raise odd things."""

from __future__ import annotations

import asyncio
import logging
import threading
from datetime import timedelta
from typing import Any

import pytest
from running import run_one, running, soon, state_is

import qo


async def run_through_retries(queue: qo.Queue, worker: qo.Worker, task: str, **options: Any) -> qo.Job:
    job = await queue.submit(task, **options)
    async with running(worker):
        return await queue.wait(job.id, timeout=15)


# --- retries --------------------------------------------------------------------------------------------------


async def test_a_failing_job_is_tried_again_until_its_attempts_are_spent(queue: qo.Queue, worker: qo.Worker) -> None:
    attempts = []

    @worker.task
    async def fails(data: Any, ctx: qo.Context) -> None:
        attempts.append(ctx.attempt)
        raise ValueError("no luck")

    job = await run_through_retries(queue, worker, "fails")

    assert attempts == [1, 2, 3]
    assert (job.state, job.attempts) == (qo.State.FAILED, 3)
    assert job.error is not None
    assert job.error.message == "Something went wrong while fails was running."
    assert job.error.detail == "ValueError: no luck"


async def test_a_job_that_fails_once_succeeds_at_the_next_attempt(queue: qo.Queue, worker: qo.Worker) -> None:
    @worker.task
    async def flaky(data: Any, ctx: qo.Context) -> str:
        if ctx.attempt == 1:
            raise OSError("network")
        return "fine"

    job = await run_through_retries(queue, worker, "flaky")

    assert (job.state, job.result, job.attempts, job.error) == (qo.State.SUCCEEDED, "fine", 2, None)


@pytest.mark.parametrize("overrides", [{"retries": {"first_delay_secs": 100, "jitter": 0.2}}])
async def test_between_attempts_a_job_waits_for_the_delay_and_holds_nothing(queue: qo.Queue, worker: qo.Worker) -> None:
    @worker.task(groups=["gpu"])
    async def fails() -> None:
        raise ValueError

    await queue.set_limit("gpu", 1)
    job = await run_one(queue, worker, "fails")

    assert job.state is qo.State.SCHEDULED
    assert job.run_at is not None
    assert job.started_at is not None
    assert timedelta(seconds=79) < job.run_at - job.started_at < timedelta(seconds=121)
    assert (await queue.limit("gpu")).active == 0
    assert "as attempt 2 of 3" in (await queue.why(job.id)).sentence


@pytest.mark.parametrize("after", [50, timedelta(seconds=50)])
async def test_a_handler_decides_when_it_is_tried_again(queue: qo.Queue, worker: qo.Worker, after: Any) -> None:
    @worker.task
    async def later() -> None:
        raise qo.Retry("the service is busy", after=after)

    job = await run_one(queue, worker, "later")

    assert job.state is qo.State.SCHEDULED
    assert job.run_at is not None
    assert job.started_at is not None
    assert timedelta(seconds=49) < job.run_at - job.started_at < timedelta(seconds=52)


async def test_a_handler_decides_that_it_has_failed_for_good(queue: qo.Queue, worker: qo.Worker) -> None:
    @worker.task
    async def hopeless() -> None:
        raise qo.Fail("This video is longer than an hour.")

    job = await run_one(queue, worker, "hopeless")

    assert (job.state, job.attempts) == (qo.State.FAILED, 1)
    assert job.error is not None
    assert job.error.message == "This video is longer than an hour."


async def test_a_failed_job_is_retried_by_hand_with_all_its_attempts(queue: qo.Queue, worker: qo.Worker) -> None:
    broken = True

    @worker.task
    async def fails() -> str:
        if broken:
            raise qo.Fail("broken")
        return "mended"

    job = await run_one(queue, worker, "fails")
    broken = False
    await queue.retry(job.id, by="ops")
    await soon(worker.run_until_idle())

    assert ((await queue.get(job.id)).result, (await queue.get(job.id)).attempts) == ("mended", 1)


async def test_a_tasks_attempts_count_unless_the_submit_names_its_own(queue: qo.Queue, worker: qo.Worker) -> None:
    @worker.task(max_attempts=1)
    async def once() -> None:
        raise ValueError

    assert (await run_one(queue, worker, "once")).state is qo.State.FAILED
    assert (await run_one(queue, worker, "once", max_attempts=2)).state is qo.State.SCHEDULED


# --- what users see -------------------------------------------------------------------------------------------


async def test_the_debug_id_finds_the_whole_traceback_in_the_log_and_nothing_of_it_reaches_the_user(
    queue: qo.Queue, worker: qo.Worker, caplog: pytest.LogCaptureFixture
) -> None:
    @worker.task
    async def leaks(data: dict[str, str]) -> None:
        local_password = data["password"]
        raise RuntimeError(f"login as {local_password} at https://joe:{local_password}@10.1.2.3/x in /home/joe/app.py")

    job = await run_one(queue, worker, "leaks", {"password": "hunter2-and-more"}, max_attempts=1)

    assert job.error is not None
    assert job.error.debug_id is not None
    assert job.error.detail is not None
    shown = job.error.message + job.error.detail
    for secret in ("hunter2", "10.1.2.3", "/home/joe", "Traceback", "local_password"):
        assert secret not in shown
    (logged,) = [record.getMessage() for record in caplog.records if job.error.debug_id in record.getMessage()]
    assert "Traceback" in logged
    assert "hunter2-and-more" in logged


async def test_secrets_of_the_environment_are_removed(
    queue: qo.Queue, worker: qo.Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    from qo.runtime import failure

    monkeypatch.setenv("DATABASE_PASSWORD", "correct horse battery")
    failure._secrets_of_environment.cache_clear()

    @worker.task
    async def leaks() -> None:
        raise RuntimeError("cannot log in with correct horse battery")

    job = await run_one(queue, worker, "leaks", max_attempts=1)

    assert job.error is not None
    assert job.error.detail == "RuntimeError: cannot log in with [secret]"


@pytest.mark.parametrize("length", [10_000, 100_000, 10_000_000])
async def test_a_secret_that_lies_where_a_long_text_is_cut_leaves_no_half(
    queue: qo.Queue, worker: qo.Worker, length: int
) -> None:
    secret = "correct-horse-battery-staple-" * 40

    @worker.task
    async def leaks(data: dict[str, str]) -> None:
        raise RuntimeError("x " * 400 + secret + " y" * (length // 2) + secret + " z" * 400)

    job = await run_one(queue, worker, "leaks", {"password": secret}, max_attempts=1)

    assert job.error is not None
    assert job.error.detail is not None
    assert "horse" not in job.error.detail
    assert "characters left out" in job.error.detail


async def test_a_chain_of_errors_is_told_without_frames(queue: qo.Queue, worker: qo.Worker) -> None:
    @worker.task
    async def chained() -> None:
        try:
            raise KeyError("inner")
        except KeyError as inner:
            raise ExceptionGroup("several", [ValueError("one"), TypeError("two")]) from inner

    job = await run_one(queue, worker, "chained", max_attempts=1)

    assert job.error is not None
    assert job.error.detail is not None
    assert job.error.detail.splitlines() == [
        "ExceptionGroup: several (2 sub-exceptions)",
        "ValueError: one",
        "TypeError: two",
        "KeyError: 'inner'",
    ]


# --- odd things -----------------------------------------------------------------------------------------------


class Unreadable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


class Bare(BaseException):
    pass


ODD = [
    SystemExit(3),
    KeyboardInterrupt(),
    Unreadable(),
    ValueError("x" * 10_000_000),
    asyncio.CancelledError("my own"),
    GeneratorExit(),
    StopIteration(1),
    StopAsyncIteration(),
    Bare("bare"),
    MemoryError(),
    RecursionError(),
    ValueError("\x00 nul and \ud800 surrogate"),
    ExceptionGroup("group", [ValueError("a")]),
    TimeoutError("mine"),
]


@pytest.mark.parametrize("in_thread", [False, True], ids=["async", "thread"])
@pytest.mark.parametrize("odd", ODD, ids=lambda odd: type(odd).__name__)
async def test_an_odd_exception_is_a_failed_job_and_never_a_dead_worker(
    queue: qo.Queue, worker: qo.Worker, odd: BaseException, in_thread: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)

    async def raises() -> None:
        raise odd

    def raises_in_thread() -> None:
        raise odd

    worker.task("odd")(raises_in_thread if in_thread else raises)
    worker.task("after")(lambda: "still here")
    job = await run_one(queue, worker, "odd", max_attempts=1)
    after = await run_one(queue, worker, "after")

    assert job.state is qo.State.FAILED
    assert job.error is not None
    assert len(job.error.detail or "") < 3_000
    assert after.result == "still here"


@pytest.mark.parametrize(
    "result", [object(), {1: object()}, float, "x" * 1_048_577], ids=["object", "nested", "class", "too large"]
)
async def test_a_result_that_cannot_be_kept_fails_the_job_and_says_why(
    queue: qo.Queue, worker: qo.Worker, result: Any
) -> None:
    worker.task("odd")(lambda: result)

    job = await run_one(queue, worker, "odd")

    assert (job.state, job.attempts) == (qo.State.FAILED, 1)
    assert job.error is not None
    assert job.error.message.startswith("The result is ")


@pytest.mark.parametrize("result", [None, 0, "", [], {"a": [1, 2.5, None, True]}, "käse 🧀"])
async def test_results_are_kept(queue: qo.Queue, worker: qo.Worker, result: Any) -> None:
    worker.task("gives")(lambda: result)

    assert (await run_one(queue, worker, "gives")).result == result


async def test_an_outcome_that_cannot_be_stored_fails_its_own_job_only(queue: qo.Queue, worker: qo.Worker) -> None:
    @worker.task
    async def later() -> None:
        raise qo.Retry(after=timedelta(days=900_000_000))

    worker.task("fine")(lambda: "fine")
    odd, fine = await queue.submit("later"), await queue.submit("fine")
    await soon(worker.run_until_idle())

    assert (await queue.get(fine.id)).result == "fine"
    failed = await queue.get(odd.id)
    assert (failed.state, failed.attempts) == (qo.State.FAILED, 1)
    assert failed.error is not None
    assert "retry_at_ms" in failed.error.message


async def test_names_may_be_as_long_as_the_rules_allow(queue: qo.Queue, worker: qo.Worker) -> None:
    longest = "t" * 200
    worker.task(longest)(lambda: "fine")

    assert (await run_one(queue, worker, longest, user="u" * 200, id="i" * 200)).result == "fine"


# --- timeouts -------------------------------------------------------------------------------------------------


async def test_a_handler_that_takes_too_long_is_stopped_and_tried_again(queue: qo.Queue, worker: qo.Worker) -> None:
    stopped = []

    @worker.task(timeout=0.05)
    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(True)

    job = await run_through_retries(queue, worker, "slow", max_attempts=2)

    assert (job.state, job.attempts, stopped) == (qo.State.FAILED, 2, [True, True])
    assert job.error is not None
    assert job.error.message == "It took longer than the 0.05 seconds it may take."


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


async def test_a_cancel_that_comes_before_the_heartbeat_has_begun_to_listen_is_heard(
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

    for name in ("newest_event", "wait_for_events", "events"):
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
