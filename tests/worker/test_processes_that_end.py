"""Tasks with `process=True` that are cancelled, take too long, are stopped or killed, or crash: no process is left."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

import qo
from tests.worker.process_tasks import Files, crashes, starts_children, waits_for_a_file
from tests.worker.running import running, soon
from tests.worker.workers_with_processes import (  # noqa: F401 - asked for by name
    gone,
    is_alive,
    pids_in,
    queue_fixture,
    read_when_there,
    worker_fixture,
)


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
