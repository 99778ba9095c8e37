"""Whether jobs start when they were told they would: three simulated days on the real store and estimator.

Only time is simulated: jobs are submitted, claimed and finished through the store with `now` given, and the estimator
reads it every few simulated seconds, as it does in a server. What counts is the first estimate that a job got after it
had joined the line; a job that started before anybody could ask is not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import itertools
import math
import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qo.job import Estimate, State
from qo.policy.estimate import base_estimate, duration_of_task, duration_of_tier
from qo.policy.replay import STEADY_WEIGHT, steady
from qo.runtime.estimator import Estimator
from qo.runtime.forecast import forecast_line
from qo.runtime.waiting import active_places, average_duration
from qo.settings import BUILT_IN_TIERS, Settings
from qo.store.base import Store
from qo.store.sqlite import SQLiteStore
from qo.store.values import Average, Lease, Limit, Outcome, Registration, Source, Standing, Submission, TaskOptions

DAY_SECONDS = 86_400
REFRESH_SECONDS = 5
WARM_UP_SHARE = 0.05
"""of the time, at the start: the estimator has seen nothing yet, so this is not counted"""
STARTS_AT_MS = 1_800_000_000_000
LEASE_MS = 30 * DAY_SECONDS * 1000
COVERAGE_AT_LEAST, COVERAGE_AT_MOST = 0.75, 0.90


@dataclass(frozen=True)
class Arrival:
    at: float
    submission: Submission
    seconds: float
    """how long it will run"""


@dataclass(frozen=True)
class WorkerChange:
    at: float
    name: str
    places: int
    """0: it takes nothing more and goes when what it runs has ended"""


@dataclass(frozen=True)
class Day:
    name: str
    tasks: tuple[TaskOptions, ...]
    arrivals: list[Arrival]
    workers: list[WorkerChange]
    limits: tuple[Limit, ...] = ()


@dataclass
class Told:
    """What one job was told, and what came of it."""

    at: float
    learnt: Estimate
    base: Estimate
    task: str
    waited: float = math.nan


@dataclass
class Result:
    day: Day
    told: list[Told]
    replays: int
    jobs: int

    def coverage(self) -> float:
        return statistics.mean(_inside(told.learnt, told.waited) for told in self.told)

    def width(self) -> float:
        return statistics.median(told.learnt.upper_bound - told.learnt.lower_bound for told in self.told)

    def coverage_by_wait(self, parts: int = 5) -> list[float]:
        """Of those told to wait least, ..., of those told to wait longest."""
        ordered = sorted(self.told, key=lambda told: told.learnt.estimate_seconds)
        cuts = [len(ordered) * part // parts for part in range(parts + 1)]
        return [
            statistics.mean(_inside(told.learnt, told.waited) for told in ordered[first:end])
            for first, end in itertools.pairwise(cuts)
        ]

    def base_coverage(self) -> float:
        return statistics.mean(_inside(told.base, told.waited) for told in self.told)

    def base_spread(self) -> float:
        """By which the base rule has to be widened, instead of by 0.3, to cover as many."""
        needed = sorted(
            abs(told.waited / told.base.estimate_seconds - 1) if told.base.estimate_seconds else math.inf
            for told in self.told
        )
        return needed[min(math.ceil(self.coverage() * len(needed)), len(needed)) - 1]

    def base_width(self) -> float:
        """A start before now cannot be, so a lower edge below 0 is 0: that is in the base rule's favour."""
        spread = self.base_spread()
        return statistics.median(told.base.estimate_seconds * (1 + spread - max(1 - spread, 0.0)) for told in self.told)


def _inside(estimate: Estimate, waited: float) -> bool:
    return estimate.lower_bound <= waited <= estimate.upper_bound


# --- the days -------------------------------------------------------------------------------------------------


def steady_day(hours: float, seed: int) -> Day:
    """One task, one kind of job, eight places that are busy nine tenths of the time."""
    draw = random.Random(seed)
    arrivals = [
        Arrival(at, Submission(id=f"job-{number}", task="build"), draw.gammavariate(4, 15))
        for number, at in enumerate(_poisson(draw, per_second=0.92 * 8 / 60, hours=hours))
    ]
    return Day("steady", (TaskOptions(name="build"),), arrivals, [WorkerChange(0, "worker-1", 8)])


def bursty_day(hours: float, seed: int) -> Day:
    """Users of three tiers with their limits and boosts, who come in bursts; some jobs are urgent."""
    draw = random.Random(seed)
    times = list(_poisson(draw, per_second=0.03, hours=hours))
    for burst in _poisson(draw, per_second=1 / 2400, hours=hours):
        times += [burst + draw.expovariate(1 / 60) for _ in range(draw.randint(20, 140))]
    arrivals = []
    for number, at in enumerate(sorted(at for at in times if at < hours * 3600)):
        tier = draw.choices(["bootstrapper", "partner", "cto_scale"], [6, 3, 1])[0]
        numbers = BUILT_IN_TIERS[tier]
        user = f"{tier}-{draw.randrange(40)}"
        standing = Standing(
            tier=tier, boost=numbers.boost, user_limit=numbers.per_user, project_limit=numbers.per_project
        )
        submission = Submission(
            id=f"job-{number}",
            task="generate",
            user=user,
            standing=standing,
            priority=draw.choices([20, 50, 70], [1, 8, 1])[0],
        )
        arrivals.append(Arrival(at, submission, draw.lognormvariate(math.log(75), 0.6)))
    limit = Limit(group="global", slots=10, source=Source.OPERATOR)
    workers = [WorkerChange(0, f"worker-{number}", 6) for number in range(2)]
    return Day("bursty, three tiers", (TaskOptions(name="generate"),), arrivals, workers, (limit,))


def mixed_day(hours: float, seed: int) -> Day:
    """A slow task with a limit of its own among fast ones, and workers that come and go."""
    draw = random.Random(seed)
    arrivals = []
    for at in _poisson(draw, per_second=0.011, hours=hours):
        arrivals.append((at, "render", draw.lognormvariate(math.log(260), 0.5)))
    for at in _poisson(draw, per_second=0.14, hours=hours):
        # Busier by day than by night.
        if draw.random() < 0.75 - 0.15 * math.cos(2 * math.pi * at / DAY_SECONDS):
            arrivals.append((at, "thumbnail", draw.lognormvariate(math.log(40), 0.7)))
    workers = [WorkerChange(0, "worker-0", 4)]
    for number in range(1, 4):
        at, present = draw.uniform(0, 1800), True
        while at < hours * 3600:
            workers.append(WorkerChange(at, f"worker-{number}", 3 if present else 0))
            at += draw.expovariate(1 / (7200 if present else 2400))
            present = not present
    return Day(
        "slow and fast, workers come and go",
        (TaskOptions(name="render", limit=5), TaskOptions(name="thumbnail")),
        [
            Arrival(at, Submission(id=f"job-{number}", task=task), seconds)
            for number, (at, task, seconds) in enumerate(sorted(arrivals))
        ],
        sorted(workers, key=lambda change: change.at),
    )


DAYS: dict[str, Callable[[float, int], Day]] = {"steady": steady_day, "bursty": bursty_day, "mixed": mixed_day}


def _poisson(draw: random.Random, *, per_second: float, hours: float) -> Iterator[float]:
    at = draw.expovariate(per_second)
    while at < hours * 3600:
        yield at
        at += draw.expovariate(per_second)


# --- playing a day --------------------------------------------------------------------------------------------


class SimulatedTime:
    """The store's operations, at the simulated time."""

    TAKES_NOW = frozenset({"submit", "claim", "finish", "register", "set_limits", "workers"})

    def __init__(self, store: Store) -> None:
        self._store = store
        self.now = 0.0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name not in self.TAKES_NOW:
            return method
        return lambda *args, **kwargs: method(*args, **kwargs, now=STARTS_AT_MS + round(self.now * 1000))

    def clock(self) -> float:
        return STARTS_AT_MS / 1000 + self.now


@dataclass
class Places:
    places: int = 0
    running: int = 0


@dataclass
class Simulation:
    day: Day
    store: Any
    estimator: Estimator
    settings: Settings
    workers: dict[str, Places] = field(default_factory=dict)
    told: dict[str, Told] = field(default_factory=dict)
    waiting: set[str] = field(default_factory=set)
    ends: list[tuple[float, int, str, Lease]] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=itertools.count)
    replays: int = 0

    async def play(self) -> Result:
        if self.day.limits:
            await self.store.set_limits(self.day.limits)
        runs = {arrival.submission.id: arrival.seconds for arrival in self.day.arrivals}
        arrivals, changes = iter(self.day.arrivals), iter(self.day.workers)
        arrival, change = next(arrivals, None), next(changes, None)
        tick = float(REFRESH_SECONDS)
        while arrival is not None or self.waiting:
            upcoming = [at for at in (arrival and arrival.at, change and change.at) if at is not None]
            ending = [self.ends[0][0]] if self.ends else []
            at = min(*upcoming, *ending, tick) if upcoming or ending else tick
            self.store.now = at
            if change is not None and change.at == at:
                await self._change_worker(change)
                change = next(changes, None)
            elif arrival is not None and arrival.at == at:
                await self.store.submit([arrival.submission])
                self.waiting.add(arrival.submission.id)
                arrival = next(arrivals, None)
            elif ending and ending[0] == at:
                await self._finish(*heapq.heappop(self.ends)[2:])
            else:
                tick += REFRESH_SECONDS
                if self.waiting:
                    await self._tell()
                continue
            await self._claim(runs)
        begun = self.day.arrivals[-1].at * WARM_UP_SHARE
        counted = [told for told in self.told.values() if told.at >= begun and not math.isnan(told.waited)]
        return Result(self.day, counted, self.replays, len(self.day.arrivals))

    async def _change_worker(self, change: WorkerChange) -> None:
        places = self.workers.setdefault(change.name, Places())
        places.places = change.places
        tasks = self.day.tasks if change.places else ()
        await self.store.register(
            Registration(name=change.name, tasks=tasks, places=max(change.places, 1), lifetime_ms=LEASE_MS)
        )

    async def _claim(self, runs: dict[str, float]) -> None:
        for name, places in self.workers.items():
            free = places.places - places.running
            if free <= 0 or not self.waiting:
                continue
            claimed = await self.store.claim(
                worker=name,
                tasks=[task.name for task in self.day.tasks],
                places=free,
                lease_ms=LEASE_MS,
                claim_id=f"claim-{next(self.numbers)}",
            )
            for lease in claimed.leases:
                places.running += 1
                self.waiting.discard(lease.job.id)
                heapq.heappush(self.ends, (self.store.now + runs[lease.job.id], next(self.numbers), name, lease))
                if lease.job.id in self.told:
                    told = self.told[lease.job.id]
                    told.waited = self.store.now - told.at

    async def _finish(self, worker: str, lease: Lease) -> None:
        self.workers[worker].running -= 1
        estimate, tier = self.settings.estimate, lease.job.tier
        names = [(duration_of_task(lease.job.task), estimate.first_guess_secs)]
        if tier is not None:
            names.append((duration_of_tier(tier), self.settings.tiers[tier].first_guess_secs))
        averages = tuple(
            Average(name=name, first=first, weight=weight)
            for base_name, first in names
            for name, weight in ((base_name, estimate.newest_weight), (steady(base_name), STEADY_WEIGHT))
        )
        await self.store.finish(
            [Outcome(job_id=lease.job.id, token=lease.token, state=State.SUCCEEDED, averages=averages)]
        )

    async def _tell(self) -> None:
        """One replay, and what those are told who joined since the last one."""
        await self.estimator.refresh()
        self.replays += 1
        forecast = await self.estimator.fresh()
        new = [(job_id, rank) for job_id, rank in forecast.ranks.items() if job_id not in self.told]
        places = await active_places(self.store) if new else 0
        averages: dict[tuple[str, str | None], float] = {}
        for job_id, rank in new:
            learnt = self.estimator.estimate(job_id)
            if learnt is None:
                continue
            kind = (forecast.tasks[rank], None)
            if kind not in averages:
                averages[kind] = await average_duration(self.store, self.settings, task=kind[0], tier=kind[1])
            base = base_estimate(
                position=rank + 1,
                active_workers=places,
                average_seconds=averages[kind],
                settings=self.settings.estimate,
            )
            self.told[job_id] = Told(self.store.now, learnt, base, forecast.tasks[rank])


async def play(day: Day, settings: Settings | None = None) -> Result:
    settings = settings or Settings()
    store = SimulatedTime(await SQLiteStore.open(":memory:"))
    try:
        estimator = Estimator(store, settings, clock=store.clock)  # type: ignore[arg-type]
        return await Simulation(day, store, estimator, settings).play()
    finally:
        await store.close()


# --- what is printed and drawn --------------------------------------------------------------------------------


async def report(*, hours: float = 24, seed: int = 1, plot: Path | None = None) -> None:
    await report_speed()
    print(f"\nfirst estimates against what came, {hours:g} simulated hours each (80 % range; seed {seed})")
    results = []
    for make_day in DAYS.values():
        result = await play(make_day(hours, seed))
        print_result(result)
        results.append(result)
    if plot is not None:
        await asyncio.to_thread(plot.write_text, draw_plot(results), encoding="utf-8")
        print(f"  drawn in {plot}")


def print_result(result: Result) -> None:
    waits = sorted(told.waited for told in result.told)
    median, longest_tenth = waits[len(waits) // 2], waits[len(waits) * 9 // 10]
    width, base_width = result.width(), result.base_width()
    print(f"  {result.day.name}: {result.jobs} jobs, {len(result.told)} were told a wait, {result.replays} replays;")
    print(f"    they waited {median:.0f} s at the median, a tenth longer than {longest_tenth:.0f} s")
    print(
        f"    {result.coverage():.1%} started inside their range"
        f" ({COVERAGE_AT_LEAST:.0%} to {COVERAGE_AT_MOST:.0%} wanted), median width {width:.0f} s"
    )
    print(f"    from the shortest to the longest fifth: {' '.join(f'{c:.0%}' for c in result.coverage_by_wait())}")
    print(
        f"    base rule: {result.base_coverage():.1%} inside ±30 %; as many as above inside"
        f" ±{result.base_spread():.0%}, median width {base_width:.0f} s"
    )
    print(f"    width against the base rule's: {width / base_width:.2f} times (at most 1)")


async def report_speed(*, waiting: int = 10_000, rounds: int = 5) -> None:
    """With so many in line, of 500 users with a limit each: a replay, what the event loop notices, a look-up."""
    settings = Settings()
    store = await SQLiteStore.open(":memory:")
    tasks = tuple(TaskOptions(name=name, limit=20) for name in ("build", "mail", "scan"))
    await store.register(Registration(name="worker", tasks=tasks, places=50, lifetime_ms=LEASE_MS))
    average = [(Average(name=duration_of_task(task.name), first=60, weight=0.3), 60.0) for task in tasks]
    await store.observe(average)
    for first in range(0, waiting, 1000):
        await store.submit(
            [
                Submission(
                    id=f"job-{number}",
                    task=tasks[number % 3].name,
                    user=f"user-{number % 500}",
                    standing=Standing(tier="bootstrapper", user_limit=2),
                )
                for number in range(first, first + 1000)
            ]
        )
    estimator = Estimator(store, settings)
    situation = await estimator.read()
    replays = []
    for _ in range(rounds):
        began = time.thread_time()
        forecast_line(situation, settings)
        replays.append((time.thread_time() - began) * 1000)
    await estimator.refresh()
    began = time.perf_counter()
    for number in range(1000):
        estimator.estimate(f"job-{number}")
    look_up_ms = time.perf_counter() - began
    print(f"\nestimates with {waiting} waiting")
    print(f"  a replay, off the event loop: {min(replays):.0f} ms at best of {rounds} (under 100)")
    print(f"  reading an estimate: {look_up_ms:.3f} ms (under 1)")
    await store.close()


PANEL, GAP, POINTS = 260, 56, 400


def draw_plot(results: list[Result]) -> str:
    """Promised against actual wait, one panel a day, both axes logarithmic; on the diagonal a promise came true."""
    width = len(results) * (PANEL + GAP) + GAP // 2
    panels = "".join(_panel(result, GAP + number * (PANEL + GAP)) for number, result in enumerate(results))
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {PANEL + 116}" font-family="sans-serif" font-size="12">
<title>Promised wait against actual wait on three simulated days</title>
<style>
svg {{ --ink: #222; --faint: #d5d5d5; --inside: #1f6fb4; --outside: #d9660a; --paper: #fff }}
@media (prefers-color-scheme: dark) {{ svg {{ --ink: #ddd; --faint: #444; --inside: #6db3f2; --outside: #ffa657; --paper: #16181c }} }}
text {{ fill: var(--ink) }} .faint {{ stroke: var(--faint); fill: none }} .line {{ stroke: var(--ink); fill: none }}
.inside, .outside {{ stroke-width: 3; stroke-linecap: round; fill: none; opacity: .65 }}
.inside {{ stroke: var(--inside) }} .outside {{ stroke: var(--outside) }}
</style>
<rect width="100%" height="100%" fill="var(--paper)"/>
{panels}<path class="inside" d="M{GAP} {PANEL + 102}h0"/><text x="{GAP + 8}" y="{PANEL + 106}">started inside the range it was told</text>
<path class="outside" d="M{GAP + 250} {PANEL + 102}h0"/><text x="{GAP + 258}" y="{PANEL + 106}">outside</text>
</svg>
"""  # noqa: E501 - an SVG reads worse with its attributes wrapped


def _panel(result: Result, left: int) -> str:
    top = 42
    longest = max(max(told.waited, told.learnt.estimate_seconds) for told in result.told)

    def along(seconds: float) -> float:
        return PANEL * math.log1p(seconds) / math.log1p(longest)

    def points(inside: bool) -> str:
        chosen = result.told[:: max(len(result.told) // POINTS, 1)]
        return "".join(
            f"M{left + along(told.learnt.estimate_seconds):.0f} {top + PANEL - along(told.waited):.0f}h0"
            for told in chosen
            if _inside(told.learnt, told.waited) == inside
        )

    marks = [(seconds, text) for seconds, text in MARKS if seconds <= longest]
    grid = "".join(
        f"M{left + along(seconds):.0f} {top}v{PANEL}M{left} {top + PANEL - along(seconds):.0f}h{PANEL}"
        for seconds, _ in marks
    )
    labels = "".join(
        f'<text x="{left + along(seconds):.0f}" y="{top + PANEL + 16}" text-anchor="middle">{text}</text>'
        f'<text x="{left - 6}" y="{top + PANEL + 4 - along(seconds):.0f}" text-anchor="end">{text}</text>'
        for seconds, text in marks
    )
    return f"""<text x="{left}" y="16" font-weight="bold">{result.day.name}</text>
<text x="{left}" y="32">{result.coverage():.0%} inside</text>
<path class="faint" d="{grid}"/><path class="line" d="M{left} {top + PANEL}L{left + PANEL} {top}"/>
<path class="inside" d="{points(True)}"/><path class="outside" d="{points(False)}"/>{labels}
<text x="{left + PANEL // 2}" y="{top + PANEL + 34}" text-anchor="middle">promised wait</text>
<text x="{left + 8}" y="{top + 14}">actual wait</text>
"""


MARKS = ((0, "0"), (10, "10 s"), (60, "1 m"), (300, "5 m"), (1800, "30 m"), (7200, "2 h"))


def main() -> None:
    arguments = argparse.ArgumentParser(description="Calibration of estimates on simulated days.")
    arguments.add_argument("--hours", type=float, default=24)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--plot", type=Path)
    chosen = arguments.parse_args()
    asyncio.run(report(hours=chosen.hours, seed=chosen.seed, plot=chosen.plot))


if __name__ == "__main__":
    main()
