"""Jobs that go from one worker process to another, and jobs that kill the process they run in."""

from __future__ import annotations

import signal
from datetime import timedelta
from pathlib import Path

import qo
from qo.event import LEASE_LOST
from tests.worker.processes_on_a_store import (
    LEASE_SECONDS,
    events_of,
    queue_fixture,  # noqa: F401 - asked for by name
    url_fixture,  # noqa: F401 - asked for by name
)
from tests.worker.worker_process import Options, diary_of, started, until

# --- a job that kills its worker ------------------------------------------------------------------------------


async def test_a_job_that_kills_its_worker_every_time_fails_after_its_last_attempt_and_can_be_retried(
    queue: qo.Queue, url: str, tmp_path: Path
) -> None:
    poison, diary = tmp_path / "poison", tmp_path / "diary"
    poison.touch()
    options = Options(url=url, settings={"concurrency": {"default_lease_duration_secs": 1}}, diary=str(diary))
    job = await queue.submit("deadly", {"while_there": str(poison)}, max_attempts=3)
    for attempt, code in ((1, 1), (2, -signal.SIGKILL), (3, 1)):
        async with started(options) as worker:
            assert await worker.ended() == code
            assert len(diary_of(diary)) == attempt

    async with started(options) as survivor:
        failed = await queue.wait(job.id, timeout=60)
        other = await queue.submit("short", {})
        await queue.wait(other.id, timeout=60)
        calls = [(job_id, attempt) for job_id, attempt, _ in diary_of(diary) if job_id == job.id]

        assert (failed.state, failed.attempts) == (qo.State.FAILED, 3)
        assert failed.error is not None
        assert failed.error.message == "The worker stopped responding, and all 3 attempts are used."
        assert calls == [(job.id, 1), (job.id, 2), (job.id, 3)]

        poison.unlink()
        retried = await queue.retry(job.id)
        assert retried.attempts == 0
        ended = await queue.wait(job.id, timeout=60)
        assert (ended.state, ended.attempts, ended.result) == (qo.State.SUCCEEDED, 1, "survived")
        assert survivor.is_running


# --- two processes on one store -------------------------------------------------------------------------------


async def test_a_job_submitted_by_one_process_starts_in_the_idle_worker_of_another(queue: qo.Queue, url: str) -> None:
    async with started(Options(url=url)):
        await until(lambda: has_workers(queue, "worker-1"))
        for _ in range(5):
            job = await queue.submit("short", {})
            ended = await queue.wait(job.id, timeout=60)
            assert (ended.state, ended.worker, ended.attempts) == (qo.State.SUCCEEDED, "worker-1", 1)


async def test_the_jobs_of_a_killed_worker_come_back_in_another_process_when_their_leases_end_in_their_old_places(
    queue: qo.Queue, url: str, tmp_path: Path
) -> None:
    diary, go_on = tmp_path / "diary", tmp_path / "go on"
    # Longer than elsewhere, so that a worker on a busy machine loses none while it lives.
    settings = {"concurrency": {"default_lease_duration_secs": 3 * LEASE_SECONDS}}
    jobs = [(await queue.submit("short", {"until": str(go_on)})).id for _ in range(4)]
    async with started(Options(url=url, settings=settings, concurrency=2, diary=str(diary))) as killed:
        await until(lambda: number_of_calls(diary, 2))
        # Whoever comes back waits in line until all are there, so that their order can be seen.
        await queue.pause("short")
        killed.signal(signal.SIGKILL)
        assert await killed.ended() == -signal.SIGKILL
    held = await queue.store.leases()
    ends = {lease.token: lease.expires_at for lease in held}
    assert [lease.job.id for lease in held] == jobs[:2]

    options = Options(url=url, settings=settings, names=("worker-2",), concurrency=1, diary=str(diary))
    async with started(options):
        await until(lambda: number_waiting(queue, 4))
        back = await queue.jobs(status="queued")
        go_on.touch()
        await queue.resume("short")
        for job_id in jobs:
            await queue.wait(job_id, timeout=60)

    lost = {event.detail["token"]: event.at for event in await events_of(queue, [LEASE_LOST])}
    assert lost.keys() == ends.keys()
    for token, lost_at in lost.items():
        assert timedelta() <= lost_at - ends[token]
    assert [(job.id, job.attempts, job.position) for job in back] == [
        (jobs[0], 1, 1),
        (jobs[1], 1, 2),
        (jobs[2], 0, 3),
        (jobs[3], 0, 4),
    ]
    assert diary_of(diary)[2:] == [
        (jobs[0], 2, "worker-2"),
        (jobs[1], 2, "worker-2"),
        (jobs[2], 1, "worker-2"),
        (jobs[3], 1, "worker-2"),
    ]


async def has_workers(queue: qo.Queue, *names: str) -> bool:
    return [worker.name for worker in await queue.workers()] == list(names)


async def number_of_calls(diary: Path, number: int) -> bool:
    return len(diary_of(diary)) >= number


async def number_waiting(queue: qo.Queue, number: int) -> bool:
    return (await queue.store.line(limit=0)).queued == number
