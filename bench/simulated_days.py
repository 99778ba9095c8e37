"""Days of traffic, drawn from a seed: when jobs come, how long they run, when workers come and go."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from qo.settings import BUILT_IN_TIERS
from qo.values import Limit, Source, Standing, Submission, TaskOptions

DAY_SECONDS = 86_400


@dataclass(frozen=True)
class Arrival:
    at: float
    submission: Submission
    seconds: float
    """How long the job will run."""


@dataclass(frozen=True)
class WorkerChange:
    at: float
    name: str
    capacity: int
    """With 0 the worker claims nothing more and leaves when its jobs have ended."""


@dataclass(frozen=True)
class Day:
    name: str
    tasks: tuple[TaskOptions, ...]
    arrivals: list[Arrival]
    workers: list[WorkerChange]
    limits: tuple[Limit, ...] = ()


def steady_day(hours: float, seed: int) -> Day:
    """One task, one kind of job, and a capacity of eight that is busy nine tenths of the time."""
    draw = random.Random(seed)
    arrivals = [
        Arrival(at, Submission(id=f"job-{number}", task="build"), draw.gammavariate(4, 15))
        for number, at in enumerate(_poisson(draw, per_second=0.92 * 8 / 60, hours=hours))
    ]
    return Day("steady", (TaskOptions(name="build"),), arrivals, [WorkerChange(0, "worker-1", 8)])


def bursty_day(hours: float, seed: int) -> Day:
    """Users of three tiers with limits and boosts submit in bursts; some jobs are urgent."""
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
