"""Worker processes that are killed with SIGKILL, stopped for longer than their leases, or killed by their own jobs."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Collection
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from invariants import broken_invariants
from sqlite_snapshot import snapshot
from witness import LEAVE, WRITE, Lives, Report, Witness
from worker_process import Nursery, Options, Running, diary_of, nursery, started, until

import qo
from qo.event import LEASE_LOST, Event
from qo.store.sqlite import SQLiteStore

LEASE_SECONDS = 2
SETTINGS: dict[str, Any] = {
    "concurrency": {"default_lease_duration_secs": LEASE_SECONDS},
    "retries": {"first_delay_secs": 0.01, "max_delay_secs": 0.1},
}


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'qo.db'}"


@pytest.fixture
async def queue(url: str) -> AsyncIterator[qo.Queue]:
    async with await qo.connect(url, settings=SETTINGS) as opened:
        yield opened


async def events_of(queue: qo.Queue, kinds: Collection[str]) -> list[Event]:
    """All of these kinds since the beginning."""
    events: list[Event] = []
    cursor = 0
    while True:
        feed = await queue.store.events(cursor, kinds=kinds)
        assert not feed.reset
        events += feed.events
        if feed.cursor == cursor or not feed.events:
            return events
        cursor = feed.cursor


# --- a thousand jobs under fire -------------------------------------------------------------------------------

JOBS = 1000
WORKERS = 8
PLACES = 3
KILL_EVERY_SECONDS = 0.25
LONGEST_RUN_SECONDS = 300
"""a net; a run takes a fraction of it"""
LIMITS = {"ports": 5, "render": 2, "mail": 3}
TASKS = ("render", "serve", "mail", "serve", "mail")
CHECK_INVARIANTS_EVERY_KILLS = 20
ZOMBIES = 5
LOOK_AGAIN_SECONDS = 0.005
PROBE_SECONDS = 1.0
"""for a write by somebody else, while a process is stopped that may be in the middle of one of its own"""


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
        options = Options(url=url, settings=SETTINGS, concurrency=PLACES, witness_port=witness.port)
        async with nursery(options) as workers:
            fire = Fire(queue, witness, workers, rng)
            await fire.until_all_have_succeeded()

    lives = Lives.told_by(await events_of(queue, [qo.State.STARTING, LEASE_LOST]))
    most = most_inside(witness, lives)
    print(f"{fire.figures()}, most inside {most}, {len(lives.ended)} leases lost")  # noqa: T201 - with -rP
    assert {group: number for group, number in most.items() if number > LIMITS[group]} == {}
    assert min(most.values()) > 1
    assert fire.seen_full == LIMITS.keys(), "a limit that nobody ran into proves nothing"
    assert fire.killed_at_work > 0
    await check_every_job_succeeded_exactly_once(queue)
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


def most_inside(witness: Witness, lives: Lives) -> dict[str, int]:
    """Of each limited group. Nobody shared a slot's number or a job with anybody."""
    most: Counter[str] = Counter()
    for crowd in witness.crowds(lives):
        assert len({report.job for report in crowd}) == len(crowd), "a job was run by two at once"
        for group in LIMITS:
            numbers = [report.slots[group] for report in crowd if group in report.slots]
            assert len(set(numbers)) == len(numbers), f"two had the same slot of {group}"
            most[group] = max(most[group], len(numbers))
    return dict(most)


async def check_every_job_succeeded_exactly_once(queue: qo.Queue) -> None:
    jobs = await queue.jobs(limit=2 * JOBS)
    assert Counter(job.state for job in jobs) == {qo.State.SUCCEEDED: JOBS}
    succeeded = await events_of(queue, [qo.State.SUCCEEDED])
    assert Counter(event.subject for event in succeeded) == {job.id: 1 for job in jobs}
    starts = Counter(event.subject for event in await events_of(queue, [qo.State.STARTING]))
    losses = Counter(event.subject for event in await events_of(queue, [LEASE_LOST]))
    assert starts == {job.id: job.attempts for job in jobs}
    assert starts == losses + Counter(job.id for job in jobs), "nothing but a lost lease makes a job start again"
    assert sum(point.count for point in await queue.store.series(prefix="ended:")) == JOBS


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


async def check_nothing_is_held(queue: qo.Queue) -> None:
    assert await queue.store.leases() == ()
    assert [group.active for group in await queue.limits()] == [0] * len(LIMITS)
    await check_invariants(queue)


async def check_invariants(queue: qo.Queue) -> None:
    assert isinstance(queue.store, SQLiteStore)
    assert broken_invariants(await snapshot(queue.store)) == []


# --- a zombie -------------------------------------------------------------------------------------------------


async def test_a_handler_that_wakes_up_after_its_lease_is_told_and_its_writes_are_refused(
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
                os.kill(zombie.pid, signal.SIGCONT)
                await until(lambda: has_left(witness, stale))
                go_on.touch()
                ended = await queue.wait(job.id, timeout=60)
            await goes_on_working(zombie, queue)

    told = [(report.what, report.lost) for report in witness.refused if report.token == stale.token]
    assert told == [(WRITE, True), (LEAVE, True)]
    assert witness.writes[-1].token == witness.newest[job.id]
    assert stale.token not in {report.token for report in witness.writes}
    await check_ended_once(queue, witness, ended)


async def test_the_result_of_a_handler_that_wakes_up_after_its_lease_and_is_not_told_is_refused(
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
                os.kill(zombie.pid, signal.SIGCONT)
                refusal = await zombie.line_with("was refused")
                assert (await queue.get(job.id)).finished_at is None
                second_go_on.touch()
                ended = await queue.wait(job.id, timeout=60)
            await goes_on_working(zombie, queue)

    assert refusal == f"the result of {job.id} was refused: its lease {stale.token} was given away"
    await check_ended_once(queue, witness, ended)


async def stop_at_work(process: Running, queue: qo.Queue, witness: Witness, diary: Path) -> Report:
    """Stop it in the middle of its handler, but where it keeps nobody else from writing; what it was doing."""
    while True:
        os.kill(process.pid, signal.SIGSTOP)
        if await can_write(queue):
            at_work = witness.inside()
            noted = {(job_id, attempt) for job_id, attempt, _ in diary_of(diary)}
            if at_work and (at_work[-1].job, at_work[-1].attempt) in noted:
                return at_work[-1]
        os.kill(process.pid, signal.SIGCONT)
        await queue.store.observe([])
        await asyncio.sleep(LOOK_AGAIN_SECONDS)


async def is_begun_anew(witness: Witness, report: Report) -> bool:
    return witness.newest[report.job] > report.token


async def has_left(witness: Witness, report: Report) -> bool:
    return report not in witness.inside()


async def can_write(queue: qo.Queue) -> bool:
    """Whether nobody is stopped in the middle of a write. Too slow a machine looks the same."""
    written = asyncio.ensure_future(queue.store.observe([]))
    await asyncio.wait({written}, timeout=PROBE_SECONDS)
    return written.done()


async def goes_on_working(process: Running, queue: qo.Queue) -> None:
    job = await queue.submit("short", {})
    ended = await queue.wait(job.id, timeout=60)
    assert (ended.state, ended.worker) == (qo.State.SUCCEEDED, "worker-1")
    os.kill(process.pid, signal.SIGTERM)
    assert await process.ended() == 0


async def check_ended_once(queue: qo.Queue, witness: Witness, ended: qo.Job) -> None:
    """With the newest token that was seen, and for good."""
    assert (ended.state, ended.result) == (qo.State.SUCCEEDED, f"attempt {ended.attempts}")
    assert ended.token == str(witness.newest[ended.id])
    assert await queue.get(ended.id) == ended
    succeeded = [event for event in await events_of(queue, [qo.State.SUCCEEDED]) if event.subject == ended.id]
    assert len(succeeded) == 1


# --- a job that kills its worker ------------------------------------------------------------------------------


@pytest.mark.parametrize(("how", "code"), [("exit", 1), ("kill", -signal.SIGKILL)])
async def test_a_job_that_kills_its_worker_every_time_fails_after_its_last_attempt_and_can_be_retried(
    queue: qo.Queue, url: str, tmp_path: Path, how: str, code: int
) -> None:
    poison, diary = tmp_path / "poison", tmp_path / "diary"
    poison.touch()
    options = Options(url=url, settings={"concurrency": {"default_lease_duration_secs": 1}}, diary=str(diary))
    job = await queue.submit("deadly", {"how": how, "while_there": str(poison)}, max_attempts=3)
    for attempt in (1, 2, 3):
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
        assert survivor.process.returncode is None


# --- two processes on one file --------------------------------------------------------------------------------


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
        os.kill(killed.pid, signal.SIGKILL)
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
    return await queue.store.waiting_count() == number
