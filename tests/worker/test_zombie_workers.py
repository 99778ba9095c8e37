"""A worker process that is stopped for longer than its lease and wakes up in the middle of its handler."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import msgspec

import qo
from tests.processes import Process
from tests.worker.processes_on_a_store import (
    LOOK_AGAIN_SECONDS,
    SETTINGS,
    can_write,
    events_of,
    queue_fixture,  # noqa: F401 - asked for by name
    url_fixture,  # noqa: F401 - asked for by name
)
from tests.worker.witness import LEAVE, WRITE, Report, Witness
from tests.worker.worker_process import Options, diary_of, started, until


async def test_a_handler_that_wakes_up_after_its_lease_sees_that_it_is_lost_and_its_writes_are_refused(
    queue: qo.Queue, url: str, tmp_path: Path
) -> None:
    diary, go_on = tmp_path / "diary", tmp_path / "go on"
    job = await queue.submit("waits_to_be_told", {"until": str(go_on)}, max_attempts=50)
    async with Witness.listening() as witness:
        options = Options(url=url, settings=SETTINGS, diary=str(diary), witness_port=witness.port)
        async with started(options) as zombie:
            stale = await stop_at_work(zombie, queue, witness, diary)
            async with started(msgspec.structs.replace(options, names=("worker-2",))):
                await until(lambda: is_begun_anew(witness, stale))
                zombie.signal(signal.SIGCONT)
                await until(lambda: has_left(witness, stale))
                go_on.touch()
                ended = await queue.wait(job.id, timeout=60)
            await goes_on_working(zombie, queue)

    told = [(report.what, report.lost) for report in witness.refused if report.token == stale.token]
    assert told == [(WRITE, True), (LEAVE, True)]
    assert witness.writes[-1].token == witness.newest[job.id]
    assert stale.token not in {report.token for report in witness.writes}
    await check_ended_once(queue, witness, ended)


async def test_the_result_of_a_handler_that_wakes_up_after_its_lease_and_does_not_notice_is_refused(
    queue: qo.Queue, url: str, tmp_path: Path
) -> None:
    diary, first_go_on, second_go_on = tmp_path / "diary", tmp_path / "first", tmp_path / "second"
    orders = {"blocked_until": str(first_go_on), "until": str(second_go_on)}
    job = await queue.submit("blocks_the_loop", orders, max_attempts=50)
    async with Witness.listening() as witness:
        options = Options(url=url, settings=SETTINGS, diary=str(diary), witness_port=witness.port)
        async with started(options) as zombie:
            stale = await stop_at_work(zombie, queue, witness, diary)
            async with started(msgspec.structs.replace(options, names=("worker-2",))):
                await until(lambda: is_begun_anew(witness, stale))
                first_go_on.touch()
                zombie.signal(signal.SIGCONT)
                refusal = await zombie.line_with("was refused")
                assert (await queue.get(job.id)).finished_at is None
                second_go_on.touch()
                ended = await queue.wait(job.id, timeout=60)
            await goes_on_working(zombie, queue)

    assert refusal == f"the result of blocks_the_loop {job.id} was refused: its lease {stale.token} was given away"
    await check_ended_once(queue, witness, ended)


async def stop_at_work(process: Process, queue: qo.Queue, witness: Witness, diary: Path) -> Report:
    """Stop it in the middle of its handler, but where it keeps nobody else from writing; what it was doing."""
    while True:
        process.freeze()
        if await can_write(queue):
            at_work = witness.inside()
            noted = {(job_id, attempt) for job_id, attempt, _ in diary_of(diary)}
            if at_work and (at_work[-1].job, at_work[-1].attempt) in noted:
                return at_work[-1]
        process.signal(signal.SIGCONT)
        await queue.store.observe([])
        await asyncio.sleep(LOOK_AGAIN_SECONDS)


async def is_begun_anew(witness: Witness, report: Report) -> bool:
    return witness.newest[report.job] > report.token


async def has_left(witness: Witness, report: Report) -> bool:
    return report not in witness.inside()


async def goes_on_working(process: Process, queue: qo.Queue) -> None:
    job = await queue.submit("short", {})
    ended = await queue.wait(job.id, timeout=60)
    assert (ended.state, ended.worker) == (qo.State.SUCCEEDED, "worker-1")
    process.signal(signal.SIGTERM)
    assert await process.ended() == 0


async def check_ended_once(queue: qo.Queue, witness: Witness, ended: qo.Job) -> None:
    """With the newest token that was seen, and for good."""
    assert (ended.state, ended.result) == (qo.State.SUCCEEDED, f"attempt {ended.attempts}")
    assert ended.token == str(witness.newest[ended.id])
    assert await queue.get(ended.id) == ended
    succeeded = [event for event in await events_of(queue, [qo.State.SUCCEEDED]) if event.subject == ended.id]
    assert len(succeeded) == 1
