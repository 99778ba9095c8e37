"""A thousand jobs on worker processes that are killed with SIGKILL or stopped for longer than their leases."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import qo
from qo.event import LEASE_LOST
from tests.nursery import Nursery
from tests.worker.processes_on_a_store import (
    LEASE_SECONDS,
    LOOK_AGAIN_SECONDS,
    SETTINGS,
    can_write,
    check_each_succeeded_once,
    check_invariants,
    check_nothing_is_held,
    events_of,
    queue_fixture,  # noqa: F401 - asked for by name
    url_fixture,  # noqa: F401 - asked for by name
)
from tests.worker.witness import Lives, Report, Witness, most_inside
from tests.worker.worker_process import LIMITS, TASKS, Options, until, workers_nursery

JOBS = 1000
WORKERS = 8
CAPACITY = 3
KILL_EVERY_SECONDS = 0.25
LONGEST_RUN_SECONDS = 300
"""a net; a run takes a fraction of it"""
CHECK_INVARIANTS_EVERY_KILLS = 20
ZOMBIES = 5


async def test_a_thousand_jobs_on_killed_workers_succeed_once_each_within_limits_and_stale_tokens_are_refused(
    queue: qo.Queue, url: str
) -> None:
    await queue.set_limit("ports", LIMITS["ports"])
    rng = random.Random(1)
    await queue.submit_many(
        [
            qo.New(
                TASKS[number % len(TASKS)], {"seconds": rng.uniform(0.01, 0.08)}, id=f"job-{number}", max_attempts=50
            )
            for number in range(JOBS)
        ]
    )
    async with asyncio.timeout(LONGEST_RUN_SECONDS), Witness.listening() as witness:
        options = Options(url=url, settings=SETTINGS, concurrency=CAPACITY, witness_port=witness.port)
        async with workers_nursery(options) as workers:
            fire = Fire(queue, witness, workers, rng)
            await fire.until_all_have_succeeded()

    lives = Lives.told_by(await events_of(queue, [qo.State.STARTING, LEASE_LOST]))
    most = most_inside(witness, lives, LIMITS)
    print(f"{fire.figures()}, most inside {most}, {len(lives.ended)} leases lost")  # noqa: T201 - with -rP
    assert {group: number for group, number in most.items() if number > LIMITS[group]} == {}
    assert min(most.values()) > 1
    assert fire.seen_full == LIMITS.keys(), "a limit that nobody ran into proves nothing"
    assert fire.killed_at_work > 0
    await check_each_succeeded_once(queue, JOBS)
    await check_leases_ended_only_after_their_time(queue)
    await check_writes(queue, witness)
    check_only_stale_tokens_were_refused(witness, lives, woken=fire.woken)
    await check_nothing_is_held(queue)


class Fire:
    """Kills a worker every 250 ms and starts another one; beside that, makes zombies of some, one at a time."""

    def __init__(self, queue: qo.Queue, witness: Witness, workers: Nursery, rng: random.Random) -> None:
        self._queue, self._witness, self._workers, self._rng = queue, witness, workers, rng
        self._alive: list[str] = []
        self._born = 0
        self._stopped: str | None = None
        self._over = False
        self.seconds = 0.0
        self.seen_full: set[str] = set()
        self.kills = self.killed_at_work = 0
        self.stops = self.stopped_in_a_write = self.zombies = 0
        self.woken: list[Report] = []
        """what zombies were in the middle of, and somebody else had begun anew, when they woke up"""

    async def until_all_have_succeeded(self) -> None:
        began = asyncio.get_running_loop().time()
        for _ in range(WORKERS):
            await self._start_another()
        async with asyncio.TaskGroup() as beside:
            beside.create_task(self._make_zombies())
            await self._kill_and_start()
            self._over = True
        self.seconds = asyncio.get_running_loop().time() - began

    async def _kill_and_start(self) -> None:
        loop = asyncio.get_running_loop()
        while not await self._all_succeeded():
            next_kill = loop.time() + KILL_EVERY_SECONDS
            await self._kill_one()
            await self._start_another()
            self.seen_full |= {group.group for group in await self._queue.limits() if group.active == group.limit}
            if self.kills % CHECK_INVARIANTS_EVERY_KILLS == 0:
                await check_invariants(self._queue)
            await asyncio.sleep(next_kill - loop.time())

    async def _all_succeeded(self) -> bool:
        points = await self._queue.store.series(prefix="ended:succeeded")
        return sum(point.count for point in points) >= JOBS

    async def _start_another(self) -> None:
        self._born += 1
        name = f"worker-{self._born}"
        await self._workers.order("start", name)
        self._alive.append(name)

    async def _kill_one(self) -> None:
        name = self._rng.choice([name for name in self._alive if name != self._stopped])
        self._alive.remove(name)
        self.killed_at_work += bool(self._witness.inside(name))
        await self._workers.order("kill", name)
        self.kills += 1

    async def _make_zombies(self) -> None:
        while self.zombies < ZOMBIES and not self._over:
            at_work = sorted({report.process for report in self._witness.inside()} & {*self._alive})
            if at_work:
                self._stopped = self._rng.choice(at_work)
                await self._workers.order("stop", self._stopped)
                self.stops += 1
                await self._wake_when_another_has_begun_its_work(self._stopped)
                self._stopped = None
            await asyncio.sleep(LOOK_AGAIN_SECONDS)

    async def _wake_when_another_has_begun_its_work(self, name: str) -> None:
        begun_anew: list[Report] = []
        if await can_write(self._queue):
            # What it had told before it was stopped may come in late; then it is in the middle of nothing.
            while not begun_anew and self._witness.inside(name):
                await asyncio.sleep(LOOK_AGAIN_SECONDS)
                begun_anew = [each for each in self._witness.inside(name) if self._is_begun_anew(each)]
        else:
            self.stopped_in_a_write += 1
        await self._workers.order("wake", name)
        tokens = {report.token for report in begun_anew}
        await until(lambda: self._were_refused(tokens))
        self.zombies += bool(begun_anew)
        self.woken += begun_anew

    def _is_begun_anew(self, report: Report) -> bool:
        return self._witness.newest[report.job] > report.token

    async def _were_refused(self, tokens: set[int]) -> bool:
        return tokens <= {report.token for report in self._witness.refused}

    def figures(self) -> str:
        refused = Counter(report.what for report in self._witness.refused)
        return (
            f"{self.seconds:.0f} s, {self.kills} kills, {self.killed_at_work} of them at work,"
            f" {self.stops} stops ({self.stopped_in_a_write} in a write), {self.zombies} zombies with"
            f" {len(self.woken)} jobs, refused {dict(refused)},"
            f" {len(self._witness.writes)} writes accepted"
        )


async def check_leases_ended_only_after_their_time(queue: qo.Queue) -> None:
    for event in await events_of(queue, [LEASE_LOST]):
        given_ms = int(event.detail["token"]) // 1000  # a token is the µs at which it was given
        assert round(event.at.timestamp() * 1000) >= given_ms + LEASE_SECONDS * 1000


async def check_writes(queue: qo.Queue, witness: Witness) -> None:
    """A job may write more than once: one that wrote and lost its lease before it was finished runs again. Fencing
    makes the last one that counts that of the run which succeeded, and keeps all in the order of their tokens.
    """
    written: dict[str, list[int]] = {}
    for report in witness.writes:
        written.setdefault(report.job, []).append(report.token)
    assert all(tokens == sorted(set(tokens)) for tokens in written.values())
    succeeded_with = {job.id: int(job.token or 0) for job in await queue.jobs(limit=2 * JOBS)}
    assert {job_id: tokens[-1] for job_id, tokens in written.items()} == succeeded_with


def check_only_stale_tokens_were_refused(witness: Witness, lives: Lives, *, woken: list[Report]) -> None:
    assert woken, "no stale token was ever shown"
    refused = {report.token for report in witness.refused}
    assert refused >= {report.token for report in woken}
    assert refused <= lives.ended.keys()
    assert not refused & {witness.newest[report.job] for report in witness.refused}
