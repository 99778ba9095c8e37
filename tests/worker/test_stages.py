"""Stages, progress, checkpoints and iterations, from the handler's side."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import qo
from qo.job import Progress
from tests.worker.running import run_one, soon

STAGES = ("scaffold", "code", "deps", "checks")


async def statuses(queue: qo.Queue, job_id: str) -> list[str]:
    """What a watcher saw: the states, with the stages among them."""
    feed = await queue.store.events(0, subjects=[job_id], limit=10_000)
    return [event.detail["stage"] if event.kind == "stage" else event.kind for event in feed.events]


@pytest.mark.parametrize("in_thread", [False, True], ids=["async", "thread"])
async def test_a_staged_job_walks_its_stages_and_is_ready(queue: qo.Queue, worker: qo.Worker, in_thread: bool) -> None:
    async def build(data: Any, ctx: qo.Context) -> str:
        for stage in STAGES:
            await ctx.stage(stage, f"doing {stage}")
        return "https://app"

    def build_in_thread(data: Any, ctx: Any) -> str:
        for stage in STAGES:
            ctx.stage(stage, f"doing {stage}")
        return "https://app"

    worker.task("build", stages=STAGES)(build_in_thread if in_thread else build)
    job = await run_one(queue, worker, "build")

    assert (job.state, job.status, job.result) == (qo.State.SUCCEEDED, "ready", "https://app")
    assert await statuses(queue, job.id) == ["queued", "starting", "running", *STAGES, "succeeded"]


async def test_the_status_is_the_stage_while_it_runs(queue: qo.Queue, worker: qo.Worker) -> None:
    seen = []

    @worker.task(stages=STAGES)
    async def build(data: Any, ctx: qo.Context) -> None:
        for stage in STAGES:
            await ctx.stage(stage)
            job = await queue.get(ctx.job.id)
            seen.append((job.state.value, job.status))

    await run_one(queue, worker, "build")

    assert seen == [("running", stage) for stage in STAGES]


@pytest.mark.parametrize(
    ("walk", "says"),
    [
        (["code"], "before its first stage and cannot become 'code'; allowed now: 'scaffold'"),
        (["scaffold", "deps"], "at stage 'scaffold' and cannot become 'deps'; allowed now: 'code'"),
        (["scaffold", "scaffold"], "cannot become 'scaffold'; allowed now: 'code'"),
        (["scaffold", "nonsense"], "allowed now: 'code'"),
        (["scaffold", "code"], "at stage 'code' and cannot become ready; allowed now: 'deps'"),
        ([], "before its first stage and cannot become ready; allowed now: 'scaffold'"),
    ],
)
async def test_a_wrong_step_fails_the_job_and_says_what_was_allowed(
    queue: qo.Queue, worker: qo.Worker, walk: list[str], says: str
) -> None:
    @worker.task(stages=STAGES)
    async def build(data: Any, ctx: qo.Context) -> None:
        for stage in walk:
            await ctx.stage(stage)

    job = await run_one(queue, worker, "build")

    assert job.state is qo.State.FAILED
    assert job.error is not None
    assert says in job.error.message


async def test_a_handler_may_catch_a_wrong_step_and_go_on(queue: qo.Queue, worker: qo.Worker) -> None:
    @worker.task(stages=("a", "b"))
    async def build(data: Any, ctx: qo.Context) -> None:
        with pytest.raises(qo.InvalidTransition):
            await ctx.stage("b")
        await ctx.stage("a")
        await ctx.stage("b")

    assert (await run_one(queue, worker, "build")).status == "ready"


async def test_progress_is_shown(queue: qo.Queue, worker: qo.Worker) -> None:
    @worker.task
    async def count(data: Any, ctx: qo.Context) -> None:
        await ctx.progress(3, 10, "three of ten")

    assert (await run_one(queue, worker, "count")).progress == Progress(3, 10, "three of ten")


async def test_a_bad_report_fails_alone_and_not_with_those_of_other_jobs(queue: qo.Queue, worker: qo.Worker) -> None:
    @worker.task
    async def reports(data: Any, ctx: qo.Context) -> str:
        await ctx.progress(data)
        return "fine"

    jobs = await queue.submit_many([qo.New("reports", 1), qo.New("reports", "many", max_attempts=1)])
    await soon(worker.run_until_idle())
    good, bad = [await queue.get(job.id) for job in jobs if isinstance(job, qo.Job)]

    assert (good.result, bad.state) == ("fine", qo.State.FAILED)


async def test_what_was_saved_is_there_at_the_next_attempt(queue: qo.Queue, worker: qo.Worker) -> None:
    seen = []

    @worker.task
    async def resumes(data: Any, ctx: qo.Context) -> None:
        seen.append(ctx.checkpoint)
        await ctx.save({"step": ctx.attempt})
        if ctx.attempt < 3:
            raise qo.Retry(after=0)

    job = await queue.submit("resumes")
    while (await queue.get(job.id)).state is not qo.State.SUCCEEDED:
        await soon(worker.run_until_idle())

    assert seen == [None, {"step": 1}, {"step": 2}]


async def test_the_lease_is_extended_by_hand(queue: qo.Queue, worker: qo.Worker) -> None:
    ends = []

    @worker.task
    async def long(data: Any, ctx: qo.Context) -> None:
        (before,) = await queue.store.leases()
        ends.append((await ctx.extend_lease(600)) - before.expires_at)

    await run_one(queue, worker, "long")

    assert [end.total_seconds() for end in ends] == [600]


# --- iterations -----------------------------------------------------------------------------------------------


async def confirm_until_it_ends(queue: qo.Queue, worker: qo.Worker, job_id: str) -> list[str | None]:
    """Confirm as often as the job asks; the questions it asked."""
    asked = []
    await soon(worker.run_until_idle())
    while (job := await queue.get(job_id)).state is qo.State.CONFIRMING:
        asked.append(job.message)
        await queue.confirm(job_id, by="ada")
        await soon(worker.run_until_idle())
    return asked


@pytest.mark.parametrize("in_thread", [False, True], ids=["async", "thread"])
async def test_a_used_up_batch_asks_a_person_and_goes_on_up_to_the_hard_cap(
    queue: qo.Queue, worker: qo.Worker, in_thread: bool
) -> None:
    seen = []

    async def improve(data: Any, ctx: qo.Context) -> None:
        async for number in ctx.iterations():
            seen.append((number, ctx.checkpoint))
            await ctx.save(number)

    def improve_in_thread(data: Any, ctx: Any) -> None:
        for number in ctx.iterations():
            seen.append((number, ctx.checkpoint))
            ctx.save(number)

    worker.task("improve")(improve_in_thread if in_thread else improve)
    job = await queue.submit("improve", user="ada", tier="bootstrapper")
    asked = await confirm_until_it_ends(queue, worker, job.id)
    ended = await queue.get(job.id)

    assert seen == [(1, None), (2, 1), (3, 2), (4, 3), (5, 4), (6, 5)]
    assert asked == ["Continue for 2 more iterations"] * 2
    assert (ended.state, ended.iterations) == (qo.State.FAILED, 6)
    assert ended.error is not None
    assert ended.error.message == "All 6 iterations are used up."


async def test_a_job_that_asks_leaves_the_worker_and_frees_its_slots(queue: qo.Queue, worker: qo.Worker) -> None:
    @worker.task(groups=["gpu"])
    async def improve(data: Any, ctx: qo.Context) -> None:
        async for _ in ctx.iterations():
            pass

    await queue.set_limit("gpu", 1)
    job = await run_one(queue, worker, "improve", user="ada", tier="partner")

    assert (job.state, job.iterations) == (qo.State.CONFIRMING, 3)
    assert job.confirmation_required_at is not None
    assert (await queue.limit("gpu")).active == 0
    assert "waits for a person to confirm" in (await queue.why(job.id)).sentence


async def test_a_job_that_is_done_in_time_asks_for_no_confirmation(queue: qo.Queue, worker: qo.Worker) -> None:
    @worker.task
    async def improve(data: Any, ctx: qo.Context) -> int:
        async for number in ctx.iterations():
            if number == 2:
                return number
        raise AssertionError

    job = await run_one(queue, worker, "improve", user="ada", tier="bootstrapper")

    assert (job.state, job.result, job.iterations) == (qo.State.SUCCEEDED, 2, 2)


async def test_without_a_tier_iterations_have_no_end(queue: qo.Queue, worker: qo.Worker) -> None:
    @worker.task
    async def improve(data: Any, ctx: qo.Context) -> int:
        async for number in ctx.iterations():
            if number == 50:
                return number
        raise AssertionError

    assert (await run_one(queue, worker, "improve")).result == 50


async def test_iterations_are_counted_over_all_attempts(queue: qo.Queue, worker: qo.Worker) -> None:
    seen = []

    @worker.task
    async def improve(data: Any, ctx: qo.Context) -> None:
        async for number in ctx.iterations():
            seen.append(number)
            if ctx.attempt == 1:
                raise qo.Retry(after=0)
            if number == 3:
                return

    job = await queue.submit("improve", user="ada", tier="partner")
    while (await queue.get(job.id)).state is not qo.State.SUCCEEDED:
        await soon(worker.run_until_idle())

    assert seen == [1, 2, 3]


async def test_going_back_to_the_first_stage_is_another_iteration(queue: qo.Queue, worker: qo.Worker) -> None:
    @worker.task(stages=("code", "checks"))
    async def build(data: Any, ctx: qo.Context) -> None:
        while True:
            await ctx.stage("code")
            await ctx.stage("checks")

    job = await run_one(queue, worker, "build", user="ada", tier="bootstrapper")

    assert (job.state, job.iterations, job.message) == (qo.State.CONFIRMING, 2, "Continue for 2 more iterations")


async def test_stages_inside_of_iterations_are_counted_once(queue: qo.Queue, worker: qo.Worker) -> None:
    @worker.task(stages=("code", "checks"))
    async def build(data: Any, ctx: qo.Context) -> int:
        async for number in ctx.iterations():
            await ctx.stage("code")
            await ctx.stage("checks")
            if number == 2:
                return number
        raise AssertionError

    job = await run_one(queue, worker, "build", user="ada", tier="bootstrapper")

    assert (job.result, job.iterations, job.status) == (2, 2, "ready")


async def test_an_attempt_that_repeats_a_broken_cycle_of_stages_counts_it_once(
    queue: qo.Queue, worker: qo.Worker
) -> None:
    @worker.task(stages=("code", "checks"))
    async def build(data: Any, ctx: qo.Context) -> None:
        await ctx.stage("code")
        if ctx.attempt == 1:
            raise qo.Retry(after=0)
        await ctx.stage("checks")

    job = await queue.submit("build", user="ada", tier="bootstrapper")
    while (await queue.get(job.id)).state is not qo.State.SUCCEEDED:
        await soon(worker.run_until_idle())

    assert (await queue.get(job.id)).iterations == 1


async def test_no_handler_swallows_the_question_by_catching_every_exception(queue: qo.Queue, worker: qo.Worker) -> None:
    @worker.task
    async def improve(data: Any, ctx: qo.Context) -> str:
        try:
            async for _ in ctx.iterations():
                pass
        except Exception:
            return "swallowed"
        return "never"

    assert (await run_one(queue, worker, "improve", user="ada", tier="partner")).state is qo.State.CONFIRMING


async def test_a_second_loop_over_iterations_beside_the_first_is_refused(queue: qo.Queue, worker: qo.Worker) -> None:
    counted: list[int] = []

    @worker.task
    async def build(data: Any, ctx: qo.Context) -> None:
        async for number in ctx.iterations():
            counted.append(number)
            with pytest.raises(qo.InvalidValue, match=r"^Another loop over ctx\.iterations\(\) has not ended; "):
                await anext(ctx.iterations())
            if number == 2:
                break
        async for number in ctx.iterations():  # one after the other is fine
            counted.append(number)
            break

    job = await run_one(queue, worker, "build")

    assert (job.state, counted, job.iterations) == (qo.State.SUCCEEDED, [1, 2, 3], 3)


async def test_the_same_in_a_thread(queue: qo.Queue, worker: qo.Worker) -> None:
    counted: list[int] = []

    @worker.task
    def build(data: Any, ctx: Any) -> None:
        for number in ctx.iterations():
            counted.append(number)
            with pytest.raises(qo.InvalidValue, match=r"^Another loop over ctx\.iterations\(\) has not ended; "):
                next(ctx.iterations())
            if number == 2:
                break
        for number in ctx.iterations():
            counted.append(number)
            break

    job = await run_one(queue, worker, "build")

    assert (job.state, counted, job.iterations) == (qo.State.SUCCEEDED, [1, 2, 3], 3)


async def test_two_tasks_of_a_handler_do_not_both_count(queue: qo.Queue, worker: qo.Worker) -> None:
    refused: list[BaseException] = []

    @worker.task
    async def build(data: Any, ctx: qo.Context) -> None:
        first_is_in, second_was_refused = asyncio.Event(), asyncio.Event()

        async def first() -> None:
            async for number in ctx.iterations():
                first_is_in.set()
                await second_was_refused.wait()
                if number == 3:
                    break

        async def second() -> None:
            await first_is_in.wait()
            try:
                ctx.iterations()
            except qo.InvalidValue as error:
                refused.append(error)
            second_was_refused.set()

        await asyncio.gather(first(), second())

    job = await run_one(queue, worker, "build")

    assert (job.state, job.iterations, len(refused)) == (qo.State.SUCCEEDED, 3, 1)


async def test_a_thread_s_context_is_refused_in_the_worker_s_loop(queue: qo.Queue, worker: qo.Worker) -> None:
    loop = asyncio.get_running_loop()

    @worker.task
    def build(data: Any, ctx: Any) -> str:
        async def report() -> None:
            ctx.progress(1)

        with pytest.raises(qo.WrongEventLoop, match=r"use it in the thread of the handler, or make the handler an"):
            asyncio.run_coroutine_threadsafe(report(), loop).result()
        return "told"

    assert (await run_one(queue, worker, "build")).result == "told"
