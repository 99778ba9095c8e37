"""`kill -9` of a server whose clients follow jobs: they come back to the next one and have missed nothing."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

import qo
from qo.values import Advance, Lease, Outcome
from tests.by_hand import LEASE_MS
from tests.service.load.server_process import ServerProcess
from tests.service.load.watching import Watcher, check_each_saw_everything_once
from tests.worker.processes_on_a_store import (
    queue_fixture,  # noqa: F401 - asked for by name
    url_fixture,  # noqa: F401 - asked for by name
)
from tests.worker.running import until

WATCHERS = 100
STAGES_A_KILL = 3
OTHER_EVENTS = 3
"""starting, running, succeeded"""
AT_MOST_SECONDS = 120


class Jobs:
    """Jobs that the test itself takes through their stages, all of them in one step of the store."""

    def __init__(self, queue: qo.Queue) -> None:
        self._queue = queue
        self._leases: Sequence[Lease] = ()

    async def submit(self, count: int) -> list[str]:
        return [job.id for job in await asyncio.gather(*(self._queue.submit("build") for _ in range(count)))]

    async def start(self) -> None:
        claimed = await self._queue.store.claim(
            worker="by-hand",
            tasks=["build"],
            capacity=WATCHERS,
            lease_ms=LEASE_MS,
            claim_id=self._queue.system.new_id(),
        )
        assert len(claimed.leases) == WATCHERS
        self._leases = claimed.leases

    async def are_at(self, stage: str) -> None:
        advances = [Advance(job_id=each.job.id, token=each.token, stage=stage) for each in self._leases]
        assert not any(held.lost for held in await self._queue.store.advance(advances))

    async def succeed(self) -> None:
        outcomes = [Outcome(job_id=each.job.id, token=each.token, state=qo.State.SUCCEEDED) for each in self._leases]
        assert not any(finished.lost for finished in await self._queue.store.finish(outcomes))


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.nightly)])
async def test_watchers_of_a_killed_server_see_each_event_once(
    queue: qo.Queue, url: str, tmp_path: Path, kills: int
) -> None:
    jobs = Jobs(queue)
    is_listening = asyncio.Event()
    async with asyncio.timeout(AT_MOST_SECONDS + 10 * kills), ServerProcess(url, folder=tmp_path) as server:
        is_listening.set()
        watchers = [Watcher(server, job_id, is_listening=is_listening) for job_id in await jobs.submit(WATCHERS)]
        async with asyncio.TaskGroup() as following:
            for watcher in watchers:
                following.create_task(watcher.follow())
            await until(partial(_have_opened, watchers, 1))
            await jobs.start()
            for kill in range(kills):
                before = _number_seen(watchers)
                await jobs.are_at(f"stage {kill}, in the middle of sending")
                await until(partial(_has_seen_more, watchers, before))
                is_listening.clear()
                server.process.signal(signal.SIGKILL)
                assert await server.process.ended() == -signal.SIGKILL
                await jobs.are_at(f"stage {kill}, while nobody serves")
                await server.start()
                await jobs.are_at(f"stage {kill}, while they come back")
                is_listening.set()
                await until(partial(_have_opened, watchers, kill + 2))
            await jobs.succeed()

    await check_each_saw_everything_once(queue, watchers)
    assert {watcher.opened for watcher in watchers} == {kills + 1}
    assert {len(watcher.seen) for watcher in watchers} == {STAGES_A_KILL * kills + OTHER_EVENTS}


async def _have_opened(watchers: Sequence[Watcher], times: int) -> bool:
    return all(watcher.opened >= times for watcher in watchers)


def _number_seen(watchers: Sequence[Watcher]) -> int:
    return sum(len(watcher.seen) for watcher in watchers)


async def _has_seen_more(watchers: Sequence[Watcher], before: int) -> bool:
    return _number_seen(watchers) > before
