"""The demo: users of three tiers submit builds of apps, so that every feature of qo is in use within seconds.

It uses only the public API. One seed decides the user, duration and failure of each build. They are written into the
job, so a build runs the same way on every worker.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

import qo

log = logging.getLogger("qo.demo")

TASK = "build"
STAGES = ("scaffold", "code", "deps", "checks")
OLLAMA = "provider:ollama"
SETTINGS: dict[str, Any] = {
    "concurrency": {"limits": {"global": 4, OLLAMA: 2}},
    # So that it can run for days. Bootstrappers keep their five jobs, and a new user follows one that has used them up.
    "tiers": {"partner": {"jobs_per_day": 1_000_000}, "cto_scale": {"jobs_per_day": 1_000_000}},
    "queue": {"retention_days": 1 / 24},  # an hour: a day of ended jobs would fill the store
}
LOG_COLUMNS = 120
PROJECT_PREFIX = "demo-"
"""The demo recognises its own jobs by this prefix."""

REGULARS = {"partner": ("ada", "ben", "cleo"), "cto_scale": ("acme", "globex")}
NEWCOMERS_AT_ONCE = 3
BUILDS_OF_A_NEWCOMER = 6
"""One more than a bootstrapper's daily quota, so that the last one is deferred to the next day."""
APPS = ("shop", "blog", "chat", "maps", "notes", "radio")
PRIORITIES = ("urgent", "high", "normal", "normal", "normal", "low", "background")

REINDEX, EXPORT = "reindex", "export"
HOUSEKEEPING_PRIORITY = 95
HOUSEKEEPING = f"priority:{HOUSEKEEPING_PRIORITY}"
PAUSED_SECONDS, RESUMED_SECONDS = 60.0, 10.0

FEW_WAITING, MANY_WAITING = 12, 25
DECIDE_AFTER = timedelta(seconds=3)
UNDECIDED_AT_MOST = 5
SUMMARY_EVERY_SECONDS = 5.0
LOOK_EVERY_SECONDS = 1.0


class Build(msgspec.Struct):
    """The payload of a build: its duration, iterations and failure."""

    app: str
    seconds: float
    """The duration of all iterations together."""
    iterations: int = 1
    trouble: str | None = None
    """`flaky` fails at the first attempt, `refused` at every attempt with a secret in its error, `tests` for good."""


class DemoWorker(qo.Worker):
    """Runs the builds. Stopping it also stops the tasks that play the users."""

    people: tuple[asyncio.Task[None], ...] = ()

    def stop(self) -> None:
        for person in self.people:
            person.cancel()
        super().stop()


async def look_for_other_jobs(queue: qo.Queue) -> int:
    """How many jobs of an earlier demo there are.

    Raises `InvalidValue` when the store holds real jobs: made-up jobs must not stand in their line.
    """
    for job in await queue.jobs(newest_first=True):
        if not (job.project or "").startswith(PROJECT_PREFIX):
            raise qo.InvalidValue(
                f"The store holds jobs that are not the demo's, such as {job.task} {job.id}; give the demo a store of "
                "its own, such as --url sqlite:///demo.db."
            )
    return sum((await queue.store.counts()).values())


async def run_demo(
    queue: qo.Queue, *, seed: int = 1, concurrency: int | None = None, for_seconds: float | None = None
) -> None:
    """Build and submit until a signal comes or `for_seconds` have passed."""
    worker = DemoWorker(queue, concurrency=concurrency)
    worker.task(TASK, stages=STAGES)(build)
    worker.task(REINDEX)(reindex)
    submitter, decider = Submitter(queue, random.Random(seed)), Decider(queue, random.Random(seed))
    operator = Operator(queue)
    worker.people = (
        asyncio.create_task(_repeat(submitter.submit_one)),
        asyncio.create_task(_repeat(decider.decide)),
        asyncio.create_task(_repeat(operator.look_after)),
        asyncio.create_task(_repeat(lambda: log_summary(queue))),
    )
    if for_seconds is not None:
        asyncio.get_running_loop().call_later(for_seconds, worker.stop)
    try:
        await worker.run()
    finally:
        worker.stop()
        ends = await asyncio.gather(*worker.people, return_exceptions=True)
    for end in ends:
        if isinstance(end, Exception):
            raise end


async def _repeat(step: Callable[[], Awaitable[float]]) -> None:
    """Call `step` again and again; each call returns the seconds until the next one."""
    while True:
        try:
            seconds = await step()
        except qo.QoError as error:
            log.warning("%s", error)
            seconds = LOOK_EVERY_SECONDS
        await asyncio.sleep(seconds)


# --- The build ------------------------------------------------------------------------------------------------


async def build(data: Build, ctx: qo.Context) -> dict[str, str]:
    """Walk through all stages, once an iteration."""
    async for iteration in ctx.iterations():
        for number, stage in enumerate(STAGES):
            await ctx.stage(stage, f"{stage} of {data.app}, iteration {iteration}")
            await ctx.progress(number, len(STAGES), stage)
            await asyncio.sleep(data.seconds / data.iterations / len(STAGES))
            if stage == "deps":
                run_into_trouble(data, ctx)
        if iteration >= data.iterations:
            break
        await ctx.save({"iteration": iteration})
    return {"url": f"https://{data.app}.example.com"}


async def reindex() -> None:
    await asyncio.sleep(0.5)


def run_into_trouble(data: Build, ctx: qo.Context) -> None:
    match data.trouble:
        case "flaky" if ctx.attempt == 1:
            raise ConnectionError("The package registry did not answer in time.")
        case "refused":
            token = "ghp_" + hashlib.sha256(ctx.job.id.encode()).hexdigest()[:36]
            raise PermissionError(f"The registry refused NPM_TOKEN={token} of https://bot:{token}@npm.example.com")
        case "tests":
            raise qo.Fail(f"3 of the 41 tests of {data.app} do not pass.")


# --- Users who submit -----------------------------------------------------------------------------------------

OPENING = (
    Build(app="shop", seconds=1.2, iterations=3),
    Build(app="blog", seconds=0.5, trouble="refused"),
    Build(app="chat", seconds=0.5, trouble="tests"),
)
"""The first builds of bootstrappers, so that a confirmation and failures are there at once."""


def draw_build(rng: random.Random) -> Build:
    return Build(
        app=rng.choice(APPS),
        seconds=round(rng.uniform(3.0, 9.0), 1) if rng.random() < 0.8 else 0.8,  # slow enough to be watched
        iterations=rng.choices((1, 2, 3, 4), (60, 10, 15, 15))[0],
        trouble=rng.choices((None, "flaky", "refused", "tests"), (78, 10, 6, 6))[0],
    )


class Submitter:
    """All users who submit builds, at a rate that keeps the line neither empty nor full."""

    def __init__(self, queue: qo.Queue, rng: random.Random) -> None:
        self._queue = queue
        self._rng = rng
        self._opening = list(OPENING)
        self._names: Iterator[str] = (f"user-{number}" for number in itertools.count(1))
        self._newcomers: dict[str, int] = {}
        """How many builds each of them will still submit."""

    async def submit_one(self) -> float:
        waiting = (await self._queue.analytics(minutes=1)).waiting
        if waiting >= MANY_WAITING:
            return LOOK_EVERY_SECONDS
        tier = "bootstrapper" if self._opening else self._rng.choice(("bootstrapper", *REGULARS))
        user = self._rng.choice(REGULARS[tier]) if tier in REGULARS else await self._newcomer()
        wanted = self._opening.pop(0) if self._opening else draw_build(self._rng)
        job = await self._queue.submit(
            TASK,
            wanted,
            user=user,
            project=f"{PROJECT_PREFIX}{user}-{wanted.app}",
            tier=tier,
            priority=self._rng.choice(PRIORITIES),
            groups=[OLLAMA] if self._rng.random() < 0.4 else [],
            max_attempts=2 if wanted.trouble == "refused" else None,
            by=user,
        )
        place = f"#{job.position} in line" if job.position else job.state.value
        log.info(
            "submitted %s %s of %s for %s (%s, priority %d): %s",
            TASK,
            job.id,
            wanted.app,
            user,
            tier,
            job.priority,
            place,
        )
        return 0.1 if waiting < FEW_WAITING else self._rng.uniform(0.3, 1.0)

    async def _newcomer(self) -> str:
        while len(self._newcomers) < NEWCOMERS_AT_ONCE:
            name = next(self._names)
            if (await self._queue.usage(name)).jobs_used == 0:  # otherwise an earlier demo has used up this name today
                self._newcomers[name] = BUILDS_OF_A_NEWCOMER
        name = self._rng.choice(sorted(self._newcomers))
        self._newcomers[name] -= 1
        if self._newcomers[name] == 0:
            del self._newcomers[name]
        return name


# --- Users who decide -----------------------------------------------------------------------------------------


class Decider:
    """All users who confirm, retry, cancel and move jobs. Some confirmations they leave open for a while."""

    def __init__(self, queue: qo.Queue, rng: random.Random) -> None:
        self._queue = queue
        self._rng = rng
        self._decided: dict[str, bool] = {}
        """Jobs that asked for a confirmation, and whether they get one; only the newest are kept."""
        self._read: dict[str, None] = {}
        """Failed jobs that were already logged; only the newest are kept."""
        self._began_at = datetime.now(UTC)

    async def decide(self) -> float:
        await self._answer_questions()
        await self._read_failures()
        await self._give_up_on_tomorrow()
        if self._rng.random() < 0.1:
            await self._favour_somebody()
        return LOOK_EVERY_SECONDS

    async def _answer_questions(self) -> None:
        asking = await self._queue.jobs(status="confirming")
        undecided = []
        for job in asking:
            asked_at = job.confirmation_required_at
            if asked_at is None or datetime.now(UTC) - asked_at < DECIDE_AFTER:
                continue
            if job.id not in self._decided:
                _remember(self._decided, job.id, self._rng.random() < 0.7)
            if self._decided[job.id]:
                log.info("%s %s is confirmed: %s", job.task, job.id, job.message)
                await self._queue.confirm(job.id, by=job.user)
            else:
                undecided.append(job)
        for job in undecided[: max(0, len(undecided) - UNDECIDED_AT_MOST)]:
            log.info("%s %s is cancelled: %s has lost interest", job.task, job.id, job.user)
            await self._queue.cancel(job.id, message="Not wanted any more.", by=job.user)

    async def _read_failures(self) -> None:
        for job in await self._queue.jobs(status="failed", newest_first=True, limit=20):
            if job.id in self._read or job.error is None or (job.finished_at or self._began_at) < self._began_at:
                continue
            _remember(self._read, job.id, None)
            log.info("%s %s tells %s: %s", job.task, job.id, job.user, job.error.detail or job.error.message)
            if self._rng.random() < 0.2:
                log.info("%s %s is tried again by %s", job.task, job.id, job.user)
                await self._queue.retry(job.id, by=job.user)

    async def _give_up_on_tomorrow(self) -> None:
        deferred = [job for job in await self._queue.jobs(status="scheduled") if job.attempts == 0]
        for job in deferred[: max(0, len(deferred) - UNDECIDED_AT_MOST)]:
            log.info("%s %s is cancelled: %s does not wait until tomorrow", job.task, job.id, job.user)
            await self._queue.cancel(job.id, message="Not wanted tomorrow.", by=job.user)

    async def _favour_somebody(self) -> None:
        line = await self._queue.jobs(status="queued", task=TASK, limit=MANY_WAITING)
        if len(line) > 2:
            job = line[-1]
            moved = await self._queue.move(job.id, before=line[self._rng.randrange(len(line) - 1)].id, by="ops")
            log.info("%s %s is moved by ops from #%s to #%s", job.task, job.id, job.position, moved.position)


# --- Operators ------------------------------------------------------------------------------------------------


class Operator:
    """Keeps housekeeping paused most of the time, and submits exports, for which nobody has started a worker."""

    def __init__(self, queue: qo.Queue) -> None:
        self._queue = queue
        self._is_paused = False

    async def look_after(self) -> float:
        self._is_paused = not self._is_paused
        if self._is_paused:
            await self._queue.pause(HOUSEKEEPING, by="ops")
            await self._keep_in_line(REINDEX, 2, priority=HOUSEKEEPING_PRIORITY)
            await self._keep_in_line(EXPORT, 1, priority="low")
            return PAUSED_SECONDS
        await self._queue.resume(HOUSEKEEPING, by="ops")
        return RESUMED_SECONDS

    async def _keep_in_line(self, task: str, wanted: int, *, priority: int | str) -> None:
        waiting = await self._queue.jobs(status="queued", task=task, limit=wanted)
        for _ in range(wanted - len(waiting)):
            await self._queue.submit(task, project=f"{PROJECT_PREFIX}ops", priority=priority, by="ops")


def _remember(memory: dict[str, Any], key: str, value: Any, *, most: int = 1000) -> None:
    memory[key] = value
    while len(memory) > most:
        del memory[next(iter(memory))]


# --- The summary ----------------------------------------------------------------------------------------------


async def log_summary(queue: qo.Queue) -> float:
    figures = await queue.analytics(minutes=1)
    stages = Counter(job.stage or job.state.value for job in await queue.jobs(status="running"))
    asking = await queue.jobs(status="confirming")
    groups = [
        f"{group.group} {group.active}/{group.limit}"
        for group in await queue.limits()
        if group.limit is not None and (group.group in SETTINGS["concurrency"]["limits"] or group.active >= group.limit)
    ]
    log.info(
        "-- %d in line, %d running%s, %d ask for a confirmation%s",
        figures.waiting,
        figures.running,
        f" ({', '.join(f'{stage} {count}' for stage, count in sorted(stages.items()))})" if stages else "",
        len(asking),
        f"; {', '.join(groups)}" if groups else "",
    )
    return SUMMARY_EVERY_SECONDS
