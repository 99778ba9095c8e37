"""Servers that are restarted or killed under load, and replies that never arrive: nothing is lost, nothing doubled."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

import qo
from qo.event import LEASE_LOST
from tests.servers.redis import Kind, Server
from tests.worker.processes_on_a_store import check_each_succeeded_once, check_nothing_is_held, events_of
from tests.worker.running import running, soon
from tests.worker.witness import Lives, Witness, most_inside
from tests.worker.worker_process import LIMITS, TASKS, Options, until, workers_nursery

KINDS: tuple[Kind, ...] = ("valkey", "redis")
RESTARTS = 20
JOBS_BETWEEN_RESTARTS = 20
JOBS = RESTARTS * JOBS_BETWEEN_RESTARTS + 50
WORKERS = 4
CAPACITY = 3
SUBMITTERS = 3
AHEAD_AT_MOST = 40
"""how many jobs more are submitted than have been done, so that submits and restarts go on beside each other"""
LONGEST_RUN_SECONDS = 120
"""a net; a run takes a fraction of it"""
SETTINGS: dict[str, Any] = {
    # Far longer than a restart takes: whatever starts twice here was lost or doubled, not given away.
    "concurrency": {"default_lease_duration_secs": 60},
}

# --- restarts under load --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
async def test_a_server_restarted_and_killed_20_times_under_load_loses_nothing_and_doubles_nothing(kind: Kind) -> None:
    rng = random.Random(1)
    with Server(kind, aof="always") as server:
        async with (
            asyncio.timeout(LONGEST_RUN_SECONDS),
            await qo.connect(server.url, settings=SETTINGS) as queue,
            Witness.listening() as witness,
        ):
            await queue.set_limit("ports", LIMITS["ports"])
            options = Options(url=server.url, settings=SETTINGS, concurrency=CAPACITY, witness_port=witness.port)
            async with workers_nursery(options) as workers:
                for number in range(WORKERS):
                    await workers.order("start", f"worker-{number}")
                storm = Storm(queue, server, witness, rng)
                await storm.until_all_are_done()
                await check_each_succeeded_once(queue, JOBS)

            lives = Lives.told_by(await events_of(queue, [qo.State.STARTING, LEASE_LOST]))
            most = most_inside(witness, lives, LIMITS)
            print(f"{storm.figures()}, most inside {most}")  # noqa: T201 - with -rP
            assert {group: number for group, number in most.items() if number > LIMITS[group]} == {}
            assert min(most.values()) > 1
            assert (storm.kills, storm.restarts) == (RESTARTS / 2, RESTARTS / 2)
            assert lives.ended == {}
            assert Counter(report.job for report in witness.writes) == {f"job-{n}": 1 for n in range(JOBS)}
            assert witness.refused == []
            await check_nothing_is_held(queue)


class Storm:
    """Submits jobs, and ends the server each time that some more have been done; every other time with SIGKILL."""

    def __init__(self, queue: qo.Queue, server: Server, witness: Witness, rng: random.Random) -> None:
        self._queue, self._server, self._witness, self._rng = queue, server, witness, rng
        self._submitted = 0
        self.seconds = 0.0
        self.kills = self.restarts = 0

    async def until_all_are_done(self) -> None:
        began = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as together:
            for _ in range(SUBMITTERS):
                together.create_task(self._submit())
            together.create_task(self._end_the_server_again_and_again())
        await until(self._all_are_done)
        self.seconds = asyncio.get_running_loop().time() - began

    async def _submit(self) -> None:
        while self._submitted < JOBS:
            if self._submitted - len(self._witness.writes) >= AHEAD_AT_MOST:
                await asyncio.sleep(0.005)
                continue
            job_id, self._submitted = f"job-{self._submitted}", self._submitted + 1
            task = TASKS[self._submitted % len(TASKS)]
            accepted = await self._queue.submit(task, {"seconds": self._rng.uniform(0.005, 0.02)}, id=job_id)
            assert accepted.id == job_id

    async def _end_the_server_again_and_again(self) -> None:
        for number in range(1, RESTARTS + 1):
            await until(partial(self._is_at_work, after=number * JOBS_BETWEEN_RESTARTS))
            if number % 2:
                self._server.kill()
                self.kills += 1
            else:
                await asyncio.to_thread(self._server.stop)
                self.restarts += 1
            await asyncio.to_thread(self._server.start)

    async def _is_at_work(self, *, after: int) -> bool:
        """Somebody is, and so many jobs have been done. A restart that hits nobody would prove nothing."""
        return len(self._witness.writes) >= after and bool(self._witness.inside())

    async def _all_are_done(self) -> bool:
        return sum(point.count for point in await self._queue.store.series(prefix="ended:")) >= JOBS

    def figures(self) -> str:
        return f"{self.seconds:.1f} s, {self.kills} kills, {self.restarts} restarts"


# --- lost replies ---------------------------------------------------------------------------------------------


class Relay:
    """Stands between clients and a server. A reply that it loses has been sent by a server that did what it was asked;
    then it hangs up, as a network would."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._streams: set[asyncio.StreamWriter] = set()
        self.port = 0
        self.chance_of_loss = 0.0
        self.lost = 0
        self._rng = random.Random(1)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    @classmethod
    @asynccontextmanager
    async def to(cls, server: Server) -> AsyncIterator[Relay]:
        relay = cls(server)
        async with asyncio.TaskGroup() as carrying:

            async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                carrying.create_task(relay._carry(reader, writer))

            listening = await asyncio.start_server(accept, "127.0.0.1", 0)
            relay.port = listening.sockets[0].getsockname()[1]
            try:
                yield relay
            finally:
                listening.close()
                relay._hang_up(*relay._streams)

    async def _carry(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection("127.0.0.1", self._server.port)
        self._streams |= {to_client, to_server}
        try:
            async with asyncio.TaskGroup() as both_ways:
                both_ways.create_task(self._pass_on(from_client, to_server, to_client))
                both_ways.create_task(self._pass_on(from_server, to_client, to_server, may_lose=True))
        finally:
            self._streams -= {to_client, to_server}

    async def _pass_on(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        back: asyncio.StreamWriter,
        *,
        may_lose: bool = False,
    ) -> None:
        try:
            while data := await source.read(1 << 16):
                if may_lose and self._rng.random() < self.chance_of_loss:
                    self.lost += 1
                    break
                target.write(data)
        except ConnectionError:
            pass  # the other side has hung up first
        self._hang_up(target, back)

    def _hang_up(self, *streams: asyncio.StreamWriter) -> None:
        for stream in streams:
            stream.transport.abort()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_submit_whose_reply_was_lost_and_that_is_sent_again_is_one_job(kind: Kind) -> None:
    with Server(kind) as server:
        async with Relay.to(server) as relay, await qo.connect(relay.url) as queue:
            first = await queue.submit("mail", user="ada")

            relay.chance_of_loss = 1
            submitting = asyncio.create_task(queue.submit("mail", user="ada"))
            await until(lambda: has_lost(relay, 1))
            relay.chance_of_loss = 0
            second = await soon(submitting)

            assert [job.id for job in await queue.jobs(status="queued")] == [first.id, second.id]
            assert (first.position, second.position) == (1, 2)
            assert (await queue.usage("ada")).jobs_used == 2
            joined = [event.subject for event in await events_of(queue, [qo.State.QUEUED])]
            assert joined == [first.id, second.id]


async def test_a_worker_that_loses_one_reply_in_ten_runs_every_job_once() -> None:
    calls: Counter[str] = Counter()
    with Server("valkey") as server:
        async with Relay.to(server) as relay, await qo.connect(relay.url, settings=SETTINGS) as queue:
            worker = qo.Worker(queue, "worker-1", concurrency=5)

            @worker.task("mail", max_concurrent=2)
            async def mail(data: Any, ctx: qo.Context) -> None:
                calls[ctx.job.id] += 1

            relay.chance_of_loss = 0.1
            async with running(worker):
                jobs = [await queue.submit("mail") for _ in range(60)]
                for job in jobs:
                    await queue.wait(job.id, timeout=60)
                relay.chance_of_loss = 0

            assert relay.lost > 10
            assert calls == {job.id: 1 for job in jobs}
            assert await events_of(queue, [LEASE_LOST]) == []
            await check_each_succeeded_once(queue, 60)
            await check_nothing_is_held(queue)


async def has_lost(relay: Relay, replies: int) -> bool:
    return relay.lost >= replies
