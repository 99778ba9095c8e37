"""Tasks with `process=True`: what goes to the process and comes back, and how many processes there are."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import qo
from tests.worker.process_tasks import (
    Files,
    Numbers,
    Sum,
    add_up,
    count_letters,
    fails,
    holds_the_lock,
    process_id,
    returns,
    staged,
    waits_for_a_file,
)
from tests.worker.running import running, soon, state_is, until
from tests.worker.workers_with_processes import (  # noqa: F401 - asked for by name
    SETTINGS,
    TASKS,
    gone,
    queue_fixture,
    worker_fixture,
)

LEASE_SECONDS = 1.0


async def test_a_function_runs_in_another_process_with_typed_data_and_result(
    queue: qo.Queue, worker: qo.Worker
) -> None:
    job = await queue.submit(add_up, Numbers(first=1, last=10))
    await soon(worker.run_until_idle())

    result = await queue.result(job)

    assert result == Sum(total=55, pid=result.pid)
    assert result.pid != os.getpid()
    await gone(result.pid)


async def test_stages_progress_checkpoint_and_lease_go_through_the_worker(queue: qo.Queue, worker: qo.Worker) -> None:
    await queue.set_limit("gpu", 3)
    job = await queue.submit(staged, {"a": 1}, groups=["gpu"])
    await soon(worker.run_until_idle())

    ended = await queue.get(job.id)
    result = await queue.result(job)

    assert (ended.status, ended.progress) == ("ready", qo.Progress(1, 2, "half"))
    assert ended.history is not None
    assert [each.status for each in ended.history.states][-3:] == ["read", "write", "succeeded"]
    assert result | {"token": None, "until": None} == {
        "id": job.id,
        "token": None,
        "slots": {"gpu": 0},
        "attempt": 1,
        "checkpoint": {"at": 1},
        "until": None,
        "cancelled": False,
    }
    assert ended.started_at is not None
    assert result["until"] > ended.started_at.timestamp() + 590


@pytest.mark.parametrize(
    ("data", "state", "message", "detail"),
    [
        ("odd", qo.State.FAILED, "Something went wrong", "Odd: this and that\nKeyError: 'inner'"),
        ("fail", qo.State.FAILED, "no such thing", "Fail: no such thing"),
        ("exit", qo.State.FAILED, "Something went wrong", "SystemExit: 3"),
        ("state", qo.State.FAILED, "Something went wrong", "InvalidValue: A function in a process has no ctx.state"),
        ("progress", qo.State.FAILED, "Something went wrong", "InvalidValue: "),
    ],
)
async def test_what_the_function_raises_is_reported_as_anywhere_else(
    queue: qo.Queue,
    worker: qo.Worker,
    caplog: pytest.LogCaptureFixture,
    data: str,
    state: qo.State,
    message: str,
    detail: str,
) -> None:
    job = await queue.submit(fails, data)
    await soon(worker.run_until_idle())
    ended = await queue.get(job.id)

    assert (ended.state, ended.attempts) == (state, 1)
    assert ended.error is not None
    assert ended.error.message.startswith(message)
    assert (ended.error.detail or "").startswith(detail)
    if data == "odd":
        assert 'raise Odd("this", "that") from error' in caplog.text  # the log has the traceback of the process


async def test_around_sees_the_error_of_a_function_in_a_process(queue: qo.Queue, worker: qo.Worker) -> None:
    seen: list[str] = []

    @worker.around
    async def report(ctx: qo.Context) -> AsyncIterator[None]:
        try:
            yield
        except Exception as error:
            seen.append(f"{ctx.job.task}: {type(error).__name__}: {error}")

    await queue.submit(fails, "odd")
    await soon(worker.run_until_idle())

    assert seen == ["fails: Odd: this and that"]


async def test_a_retry_that_the_function_asks_for_keeps_its_delay(queue: qo.Queue, worker: qo.Worker) -> None:
    job = await queue.submit(fails, "retry", max_attempts=2)
    await soon(worker.run_until_idle())

    waiting = await queue.get(job.id)

    assert waiting.state is qo.State.SCHEDULED
    assert waiting.run_at is not None
    assert (waiting.run_at - waiting.submitted_at).total_seconds() >= 3600


@pytest.mark.parametrize(("data", "message"), [("bytes", "The result cannot be kept"), ("large", "The result is ")])
async def test_a_result_that_cannot_be_kept_fails_with_a_sentence(
    queue: qo.Queue, worker: qo.Worker, data: str, message: str
) -> None:
    job = await queue.submit(returns, data)
    await soon(worker.run_until_idle())

    with pytest.raises(qo.JobFailed, match=message):
        await queue.result(job)


async def test_a_payload_that_does_not_fit_is_not_tried_again(queue: qo.Queue, worker: qo.Worker) -> None:
    job = await queue.submit("add_up", {"first": "one", "last": 2})
    await soon(worker.run_until_idle())
    ended = await queue.get(job.id)

    assert (ended.state, ended.attempts) == (qo.State.FAILED, 1)
    assert ended.error is not None
    assert "does not fit task add_up" in ended.error.message


async def test_a_function_that_holds_the_interpreter_lock_for_three_leases_keeps_its_lease() -> None:
    settings = SETTINGS | {"concurrency": {"default_lease_duration_secs": LEASE_SECONDS}}
    async with await qo.connect("memory://", settings=settings) as queue:
        worker = qo.Worker(queue, tasks=TASKS)
        job = await queue.submit(holds_the_lock, 3 * LEASE_SECONDS)
        other = await queue.submit(process_id)
        await soon(worker.run_until_idle())
        ended = await queue.get(job.id)

        assert (ended.state, ended.attempts) == (qo.State.SUCCEEDED, 1)
        assert ended.started_at is not None
        assert ended.finished_at is not None
        assert (ended.finished_at - ended.started_at).total_seconds() >= 3 * LEASE_SECONDS
        assert (await queue.get(other.id)).state is qo.State.SUCCEEDED


async def test_a_plain_function_of_a_module_can_be_registered_on_a_worker(queue: qo.Queue) -> None:
    worker = qo.Worker(queue)
    worker.task("count", process=True)(count_letters)
    job = await queue.submit("count", "letters")
    await soon(worker.run_until_idle())

    assert await queue.result(job) == [7, True]


async def test_processes_are_used_again_and_replaced_after_some_jobs(queue: qo.Queue) -> None:
    worker = qo.Worker(queue, tasks=[process_id], concurrency=1)
    jobs = [await queue.submit(process_id) for _ in range(7)]
    await soon(worker.run_until_idle())

    pids = [await queue.result(job) for job in jobs]

    assert [pids.count(pid) for pid in dict.fromkeys(pids)] == [3, 3, 1]
    await gone(*pids)


async def test_no_more_jobs_are_claimed_than_there_are_processes(
    queue: qo.Queue, worker: qo.Worker, tmp_path: Path
) -> None:
    @worker.task
    async def other() -> str:
        return "ran"

    data = Files(str(tmp_path / "pids"), until=str(tmp_path / "go"))
    jobs = [await queue.submit(waits_for_a_file, data) for _ in range(5)]
    async with running(worker):
        await state_is(queue, jobs[1].id, qo.State.RUNNING)
        behind = await queue.submit("other")
        assert (await soon(queue.wait(behind.id))).result == "ran"  # it needs no process, so it is not held up
        states = [(await queue.get(job.id)).state for job in jobs]
        (tmp_path / "go").touch()
        pids = [await soon(queue.result(job)) for job in jobs]

    assert states == [qo.State.RUNNING] * 2 + [qo.State.QUEUED] * 3
    assert len(set(pids)) <= 4
    await gone(*pids)


async def test_a_worker_whose_tasks_all_need_a_process_says_how_many_it_can_run(queue: qo.Queue) -> None:
    """Estimates rest on this number."""
    only_processes, mixed = qo.Worker(queue, "a", tasks=[process_id]), qo.Worker(queue, "b", tasks=[process_id])

    @mixed.task
    async def other() -> None: ...

    async def are_there() -> bool:
        return len(await queue.workers()) == 2

    async with running(only_processes, mixed):
        await until(are_there)
        workers = await queue.workers()

    assert [worker.capacity for worker in workers] == [2, 100]


def test_a_function_that_a_process_could_not_run_is_refused() -> None:
    def inner() -> None: ...

    async def waits() -> None: ...

    with pytest.raises(qo.InvalidValue, match="define it at the top of a module"):
        qo.task(process=True)(inner)
    with pytest.raises(qo.InvalidValue, match="write `def` instead of `async def`"):
        qo.task(process=True)(waits)
    with pytest.raises(qo.InvalidValue, match="process is 'yes'; use True or False"):
        qo.task(process="yes")(inner)  # type: ignore[call-overload]


@pytest.mark.parametrize("started_as", [["app.py"], ["-m", "app"]])
def test_a_function_in_the_programs_own_file_runs_in_a_process(tmp_path: Path, started_as: list[str]) -> None:
    (tmp_path / "app.py").write_text(OWN_FILE)

    printed = subprocess.run(
        [sys.executable, *started_as], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )

    assert (printed.stdout, printed.stderr) == ("Point(x=2, y=4)\n", "")


OWN_FILE = """
import asyncio
from dataclasses import dataclass
import qo

@dataclass
class Point:
    x: int
    y: int

@qo.task(process=True)
def double(point: Point) -> Point:
    return Point(point.x * 2, point.y * 2)

async def main():
    async with await qo.connect("memory://") as queue:
        job = await queue.submit(double, Point(1, 2))
        await qo.Worker(queue, tasks=[double]).run_until_idle()
        print(await queue.result(job))

if __name__ == "__main__":
    asyncio.run(main())
"""
