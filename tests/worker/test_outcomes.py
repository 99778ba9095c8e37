"""How a run ends by itself: retries, failures, what users see of them, results, and handlers that raise odd things."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import Any

import pytest

import qo
from tests.worker.running import run_one, running, soon


async def run_through_retries(queue: qo.Queue, worker: qo.Worker, task: str, **options: Any) -> qo.Job:
    """Submit a job and run it until it has ended, however many attempts that takes."""
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


@pytest.mark.parametrize("overrides", [{"retries": {"first_delay_secs": 60}}])  # not due before it is looked at
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
    monkeypatch.setenv("DATABASE_PASSWORD", "correct horse battery")

    @worker.task
    async def leaks() -> None:
        raise RuntimeError("cannot log in with correct horse battery")

    job = await run_one(queue, worker, "leaks", max_attempts=1)

    assert job.error is not None
    assert job.error.detail == "RuntimeError: cannot log in with [secret]"


async def test_a_secret_that_enters_the_environment_after_a_failure_is_removed_and_stays_so(
    queue: qo.Queue, worker: qo.Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    @worker.task
    async def leaks(data: str) -> None:
        raise RuntimeError(f"cannot log in with {data}")

    async def shown(text: str) -> str | None:
        job = await run_one(queue, worker, "leaks", text, max_attempts=1)
        assert job.error is not None
        return job.error.detail

    assert await shown("plain words") == "RuntimeError: cannot log in with plain words"
    monkeypatch.setenv("LATE_API_KEY", "fetched-from-a-vault")
    assert await shown("fetched-from-a-vault") == "RuntimeError: cannot log in with [secret]"
    monkeypatch.setenv("LATE_API_KEY", "rotated-since-then")
    assert await shown("rotated-since-then") == "RuntimeError: cannot log in with [secret]"
    monkeypatch.delenv("LATE_API_KEY")
    assert await shown("fetched-from-a-vault") == "RuntimeError: cannot log in with [secret]"


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


async def test_a_chain_of_errors_is_shown_without_frames(queue: qo.Queue, worker: qo.Worker) -> None:
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


@pytest.mark.parametrize("for_good", [False, True], ids=["an error", "Fail"])
async def test_a_nul_in_an_errors_text_does_not_hide_the_rest(
    queue: qo.Queue, worker: qo.Worker, for_good: bool
) -> None:
    @worker.task
    async def odd() -> None:
        raise (qo.Fail if for_good else ValueError)("before\x00after")

    job = await run_one(queue, worker, "odd", max_attempts=1)

    assert job.state is qo.State.FAILED
    assert job.error is not None
    assert "beforeafter" in str(job.error.detail)
    assert ("beforeafter" in job.error.message) == for_good


@pytest.mark.parametrize(
    "result",
    [object(), {1: object()}, float, "x" * 1_048_577, {"a": float("nan")}, [float("inf")], {"a": {1}}, b"x"],
    ids=["object", "nested", "class", "too large", "NaN", "Infinity", "set", "bytes"],
)
async def test_a_result_that_cannot_be_kept_fails_the_job_and_says_why(
    queue: qo.Queue, worker: qo.Worker, result: Any
) -> None:
    worker.task("odd")(lambda: result)

    job = await run_one(queue, worker, "odd")

    assert (job.state, job.attempts) == (qo.State.FAILED, 1)
    assert job.error is not None
    assert job.error.message.startswith(("The result is ", "The result cannot be kept: result"))


@pytest.mark.parametrize("result", [None, 0, "", [], {"a": [1, 2.5, None, True]}, "käse 🧀"])
async def test_results_are_kept(queue: qo.Queue, worker: qo.Worker, result: Any) -> None:
    worker.task("gives")(lambda: result)

    assert (await run_one(queue, worker, "gives")).result == result


async def test_an_outcome_that_cannot_be_stored_fails_its_own_job_only(queue: qo.Queue, worker: qo.Worker) -> None:
    @worker.task
    async def later() -> None:
        asked = qo.Retry()
        asked.after = timedelta(days=900_000_000)
        raise asked

    worker.task("fine")(lambda: "fine")
    odd, fine = await queue.submit("later"), await queue.submit("fine")
    await soon(worker.run_until_idle())

    assert (await queue.get(fine.id)).result == "fine"
    failed = await queue.get(odd.id)
    assert (failed.state, failed.attempts) == (qo.State.FAILED, 1)
    assert failed.error is not None
    assert "retry_after_ms" in failed.error.message


async def test_names_may_be_as_long_as_the_rules_allow(queue: qo.Queue, worker: qo.Worker) -> None:
    longest = "t" * 200
    worker.task(longest)(lambda: "fine")

    assert (await run_one(queue, worker, longest, user="u" * 200, id="i" * 200)).result == "fine"


async def test_the_delay_before_another_attempt_is_drawn_from_a_fifth_less_to_a_fifth_more() -> None:
    """That 200 draws all miss one of the four quarters of the span is as good as impossible."""
    settings = {"retries": {"first_delay_secs": 1000, "max_delay_secs": 1000}}
    async with await qo.connect("memory://", settings=settings) as queue:
        worker = qo.Worker(queue, "worker-1", concurrency=50)

        @worker.task
        async def fails() -> None:
            raise ValueError("again")

        await queue.submit_many([qo.New("fails")] * 200)
        await soon(worker.run_until_idle())
        feed = await queue.store.events(0, kinds=["scheduled"], limit=1000)
        at = {event.subject: event.at for event in feed.events}
        delays = [(job.run_at - at[job.id]).total_seconds() for job in await queue.jobs(limit=200) if job.run_at]

    assert len(delays) == 200
    assert all(799 <= delay <= 1201 for delay in delays)
    assert {int((delay - 800) // 100) for delay in delays} >= {0, 1, 2, 3}


# --- what a run saves and reports ---------------------------------------------------------------------------------

MIB = 1_048_576


@pytest.mark.parametrize(
    ("checkpoint", "said"),
    [
        ({"loss": float("nan")}, "checkpoint.loss is nan, for which JSON has no number; use null or leave it out."),
        ([float("-inf")], "checkpoint[0] is -inf, for which JSON has no number; use null or leave it out."),
        (
            {"a": b"x"},
            "checkpoint.a is of type bytes, which JSON would turn into another one; give text,",
        ),
        ("x" * MIB, f"checkpoint is {MIB + 2} bytes of JSON; at most {MIB} are allowed. Keep the data elsewhere"),
    ],
    ids=["NaN", "Infinity", "bytes", "too large"],
)
async def test_a_checkpoint_that_cannot_be_kept_is_refused_and_the_one_before_stays(
    queue: qo.Queue, worker: qo.Worker, checkpoint: Any, said: str
) -> None:
    refusals: list[str] = []

    @worker.task
    async def save(data: Any, ctx: qo.Context) -> Any:
        if ctx.attempt == 2:
            return ctx.checkpoint
        await ctx.save("x" * (MIB - 2))
        with pytest.raises(qo.InvalidValue) as refused:
            await ctx.save(checkpoint)
        refusals.append(str(refused.value))
        raise qo.Retry(after=0)

    job = await queue.submit("save")
    await soon(worker.run_until_idle())
    if (await queue.get(job.id)).state is not qo.State.SUCCEEDED:
        async with running(worker):
            await soon(queue.wait(job.id))

    assert (await queue.get(job.id)).result == "x" * (MIB - 2)
    assert refusals[0].startswith(said)


async def test_a_progress_text_has_ten_kilobytes_at_most(queue: qo.Queue, worker: qo.Worker) -> None:
    @worker.task(stages=["code"])
    async def tell(data: Any, ctx: qo.Context) -> None:
        await ctx.stage("code", "m" * 10_240)
        await ctx.progress(1, 2, "é" * 5_120)
        with pytest.raises(
            qo.InvalidValue, match=r"^progress\.text has 10242 bytes; use at most 10240, and keep longer"
        ):
            await ctx.progress(2, 2, "é" * 5_121)
        with pytest.raises(qo.InvalidValue, match=r"^message has 10241 bytes; use at most 10240, and keep longer"):
            await ctx.stage("code", "m" * 10_241)
        with pytest.raises(qo.InvalidValue, match=r"^progress\.done is nan; use a finite number\.$"):
            await ctx.progress(float("nan"))

    job = await run_one(queue, worker, "tell")

    assert job.status == "ready"
    assert job.progress is not None
    assert (job.progress.done, job.progress.text) == (1, "é" * 5_120)


@pytest.mark.parametrize("after", [-1, float("nan"), float("inf"), "5", True, timedelta(seconds=-1), 1e12])
def test_a_retry_after_what_is_no_span_is_refused(after: Any) -> None:
    with pytest.raises(qo.InvalidValue, match=r"^after is .*; use seconds of 0 or more"):
        qo.Retry(after=after)
