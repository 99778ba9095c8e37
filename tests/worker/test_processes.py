"""Tasks with `process=True`: what goes to the process and comes back, how it is interrupted, and how it crashes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import qo
from tests.worker.process_tasks import (
    Files,
    Numbers,
    Sum,
    add_up,
    count_letters,
    crashes,
    fails,
    holds_the_lock,
    process_id,
    returns,
    staged,
    starts_children,
    waits_for_a_file,
)
from tests.worker.running import running, soon, state_is, until

LEASE_SECONDS = 1.0
TASKS: list[qo.Task[Any, Any]] = [
    add_up,
    crashes,
    fails,
    holds_the_lock,
    process_id,
    returns,
    staged,
    starts_children,
    waits_for_a_file,
]


SETTINGS: dict[str, Any] = {
    "worker": {"processes": 2, "jobs_per_process": 3, "grace_secs": 20},
    "retries": {"first_delay_secs": 0},
}


@pytest.fixture
async def queue() -> AsyncIterator[qo.Queue]:
    """On one store: a store does not know in which process a handler runs."""
    async with await qo.connect("memory://", settings=SETTINGS) as queue:
        yield queue


@pytest.fixture
def worker(queue: qo.Queue) -> qo.Worker:
    return qo.Worker(queue, tasks=TASKS)


def is_alive(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


async def gone(*pids: int) -> None:
    async def are_gone() -> bool:
        return not any(map(is_alive, pids))

    await until(are_gone)


async def read_when_there(path: Path) -> list[int]:
    async def is_there() -> bool:
        return pids_in(path) != []

    await until(is_there)
    return pids_in(path)


def pids_in(path: Path) -> list[int]:
    if not path.exists():
        return []
    return [int(pid) for pid in path.read_text().split()]


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


async def test_a_cancelled_function_is_gone_with_its_children(
    queue: qo.Queue, worker: qo.Worker, tmp_path: Path
) -> None:
    job = await queue.submit(starts_children, Files(str(tmp_path / "pids")))
    async with running(worker):
        pids = await read_when_there(tmp_path / "pids")
        assert len(pids) == 3
        assert all(map(is_alive, pids))
        await queue.cancel(job.id)
        ended = await soon(queue.wait(job.id))
        await gone(*pids)

    assert ended.state is qo.State.CANCELLED
    assert not any(map(is_alive, pids))


@pytest.mark.nightly
async def test_a_cancelled_function_is_gone_within_a_second(queue: qo.Queue, worker: qo.Worker, tmp_path: Path) -> None:
    job = await queue.submit(starts_children, Files(str(tmp_path / "pids")))
    async with running(worker):
        pids = await read_when_there(tmp_path / "pids")
        began = time.monotonic()
        await queue.cancel(job.id)
        await gone(*pids)
        took_seconds = time.monotonic() - began

    assert took_seconds < 1


async def test_a_plain_function_of_a_module_can_be_registered_on_a_worker(queue: qo.Queue) -> None:
    worker = qo.Worker(queue)
    worker.task("count", process=True)(count_letters)
    job = await queue.submit("count", "letters")
    await soon(worker.run_until_idle())

    assert await queue.result(job) == [7, True]


async def test_a_function_that_takes_too_long_is_killed_with_its_children(
    queue: qo.Queue, worker: qo.Worker, tmp_path: Path
) -> None:
    job = await queue.submit(starts_children, Files(str(tmp_path / "pids")), max_attempts=1, timeout=2)
    async with running(worker):
        with pytest.raises(qo.JobFailed, match="It took longer than the 2 seconds it may take"):
            await soon(queue.result(job))
        await gone(*pids_in(tmp_path / "pids"))  # on a slow machine the children had no time to start


async def test_a_worker_that_stops_kills_the_function_and_hands_its_job_back(
    queue: qo.Queue, worker: qo.Worker, tmp_path: Path
) -> None:
    job = await queue.submit(starts_children, Files(str(tmp_path / "pids")))
    async with running(worker):
        pids = await read_when_there(tmp_path / "pids")
        worker.stop_now()
    await gone(*pids)

    handed_back = await queue.get(job.id)

    assert (handed_back.state, handed_back.attempts) == (qo.State.QUEUED, 0)


@pytest.mark.parametrize(("how", "said"), [("exit", "with exit code 7"), ("segv", "by SIGSEGV")])
async def test_a_function_that_crashes_its_process_costs_one_attempt_of_its_job_only(
    queue: qo.Queue, worker: qo.Worker, tmp_path: Path, how: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    neighbour = await queue.submit(waits_for_a_file, Files(str(tmp_path / "pids"), until=str(tmp_path / "go")))
    async with running(worker):
        (pid,) = await read_when_there(tmp_path / "pids")
        job = await queue.submit(crashes, how)
        await soon(queue.wait(job.id))
        (tmp_path / "go").touch()
        assert await soon(queue.result(neighbour)) == pid
    ended = await queue.get(job.id)

    assert (ended.state, ended.attempts) == (qo.State.SUCCEEDED, 2)
    assert (await queue.get(neighbour.id)).attempts == 1
    assert f"The process of the handler ended {said} before the handler returned" in caplog.text


async def test_a_job_whose_last_attempt_crashed_its_process_says_so(queue: qo.Queue, worker: qo.Worker) -> None:
    job = await queue.submit(crashes, "exit", max_attempts=1)
    await soon(worker.run_until_idle())

    with pytest.raises(qo.JobFailed, match="The process of the handler ended with exit code 7 before the handler"):
        await queue.result(job)


async def test_a_sigterm_to_the_process_of_a_function_is_left_to_the_worker(
    queue: qo.Queue, worker: qo.Worker, tmp_path: Path
) -> None:
    """systemd sends it to all processes of a unit, so that jobs would fail instead of getting the grace period."""
    job = await queue.submit(waits_for_a_file, Files(str(tmp_path / "pids"), until=str(tmp_path / "go")))
    async with running(worker):
        (pid,) = await read_when_there(tmp_path / "pids")
        os.kill(pid, signal.SIGTERM)
        (tmp_path / "go").touch()
        assert await soon(queue.result(job)) == pid

    assert (await queue.get(job.id)).attempts == 1


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


async def test_a_worker_that_is_killed_leaves_no_process_behind(tmp_path: Path) -> None:
    """The function holds the interpreter lock, so nothing in its own process could notice; and a process that the
    worker has forked lives on."""
    (tmp_path / "app.py").write_text(APP)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    process = await asyncio.create_subprocess_exec(sys.executable, "app.py", cwd=tmp_path, env=environment)
    pids = await read_when_there(tmp_path / "pids")
    (forked,) = await read_when_there(tmp_path / "forked")
    process.kill()
    await process.wait()

    try:
        await gone(*pids[:2])
        assert is_alive(forked)
    finally:
        for left in (*pids, forked):  # pids[2] is in a session of its own, and nobody is left to kill it
            with suppress(ProcessLookupError):
                os.kill(left, signal.SIGKILL)


APP = """
import asyncio, os, time
import qo
from tests.worker.process_tasks import Files, starts_children

async def fork_when_it_runs():
    while not os.path.exists("pids"):
        await asyncio.sleep(0.005)
    if os.fork() == 0:
        with open("forked.part", "w") as file:
            file.write(str(os.getpid()))
        os.rename("forked.part", "forked")
        time.sleep(600)
        os._exit(0)

async def main():
    async with await qo.connect("memory://") as queue:
        await queue.submit(starts_children, Files("pids"))
        await asyncio.gather(qo.Worker(queue, tasks=[starts_children]).run(), fork_when_it_runs())

if __name__ == "__main__":
    asyncio.run(main())
"""


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
