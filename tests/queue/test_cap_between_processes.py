"""The cap where it is easiest to get wrong: many processes, one place left in line."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import qo
from tests.processes import Process, command_of
from tests.queue.submitting_process import SUBMITS, Answer

PROCESSES = 4
AT_MOST_SECONDS = 60
QUARTER_HOUR_SECONDS = 15 * 60


@asynccontextmanager
async def nobody_else_writes(store: Any) -> AsyncIterator[None]:
    """Hold the file's one right to write during the block."""
    held, given_back = threading.Event(), threading.Event()

    def hold(db: object) -> None:
        held.set()
        given_back.wait(AT_MOST_SECONDS)

    holding = asyncio.create_task(store.writer.call(hold))
    assert await asyncio.to_thread(held.wait, AT_MOST_SECONDS)
    try:
        yield
    finally:
        given_back.set()
        await holding


async def test_a_hundred_submits_in_four_processes_at_99_of_100_admit_exactly_one(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'qo.db'}"
    async with asyncio.timeout(AT_MOST_SECONDS), await qo.connect(url) as queue:
        await queue.submit_many([qo.New("build")] * 99)
        with ExitStack() as until_the_end:
            processes = [
                until_the_end.enter_context(Process(command_of("tests.queue.submitting_process", url, f"process-{n}")))
                for n in range(PROCESSES)
            ]
            for process in processes:
                await process.line_with("connected")
            async with nobody_else_writes(queue.store):
                for process in processes:
                    process.say("go")
                # All hundred are under way now, and none can have been answered.
                for process in processes:
                    await process.line_with("sent")
            told = [msgspec.json.decode(await process.line_with("["), type=list[Answer]) for process in processes]
            assert [await process.ended() for process in processes] == [0] * PROCESSES

        answers = [answer for of_one in told for answer in of_one]
        assert len(answers) == PROCESSES * SUBMITS == 100
        (accepted,) = [answer.job_id for answer in answers if answer.retry_after_seconds is None]
        refused = {answer.job_id: answer.retry_after_seconds for answer in answers if answer.job_id != accepted}

        # One job over the cap, ten minutes as the first guess, a capacity of one: a quarter of an hour.
        assert set(refused.values()) == {QUARTER_HOUR_SECONDS}
        assert (await queue.store.line(limit=0)).queued == 100
        for job_id in refused:
            with pytest.raises(qo.JobNotFound):
                await queue.get(job_id)
            assert (await queue.usage(job_id)).jobs_used == 0

    async with await qo.connect(url) as reopened:
        kept = await reopened.get(accepted)
        assert (kept.state, kept.user) == (qo.State.QUEUED, accepted)
        assert kept.position_original == 100 - 2  # with the boost of its tier
        assert kept.usage is not None
        assert kept.usage.jobs_used == 1
        assert (await reopened.store.payload(accepted))[0] == msgspec.json.encode({"by": accepted})
