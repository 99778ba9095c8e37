"""What one seed draws: how many workers, groups and jobs there are, and what goes wrong when."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec

TASKS = ("build", "mail", "check")


class JobPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of a job: its handler does this."""

    seconds: float
    failures: int
    """How many of its first attempts raise an error."""
    gives_up: bool
    """It fails for good instead of succeeding."""
    reports: bool
    """It reports progress and saves a checkpoint on its way."""


class Submit(msgspec.Struct, frozen=True, kw_only=True):
    at: float
    id: str
    task: str
    groups: tuple[str, ...]
    priority: int
    delay: float | None
    plan: JobPlan
    cancel_after: float | None


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    at: float
    worker: int
    kind: str
    """die, cut, pause or stop."""
    seconds: float
    """How long a cut or a pause lasts, and how long after its end a worker that died or stopped is started again."""
    comes_back: bool


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    seed: int
    lease_seconds: float
    grace_seconds: float
    max_attempts: int
    limits: dict[str, int]
    max_concurrent: dict[str, int | None]
    workers: tuple[int, ...]
    """The concurrency of each."""
    submits: tuple[Submit, ...]
    faults: tuple[Fault, ...]
    lost_share: float
    longest_delay: float
    trouble_seconds: float
    """How long things go wrong. The calm phase follows."""

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "concurrency": {"default_lease_duration_secs": self.lease_seconds, "limits": self.limits},
            "worker": {"grace_secs": self.grace_seconds},
            "retries": {"max_attempts": self.max_attempts, "first_delay_secs": 0.3, "max_delay_secs": 2},
        }


def draw_plan(seed: int) -> Plan:
    chance = Random(seed)
    lease_seconds = chance.choice((1.0, 1.5, 2.5))
    trouble_seconds = chance.uniform(3.0, 12.0)
    groups = [f"g{number}" for number in range(chance.randint(0, 3))]
    workers = tuple(chance.randint(1, 5) for _ in range(chance.randint(1, 4)))

    def moment() -> float:
        return chance.uniform(0.0, trouble_seconds)

    def job_plan() -> JobPlan:
        is_long = chance.random() < 0.3
        return JobPlan(
            seconds=chance.uniform(1.0, 5.0) * lease_seconds if is_long else chance.uniform(0.0, 1.0),
            failures=chance.choice((0, 0, 0, 0, 1, 9)),
            gives_up=chance.random() < 0.05,
            reports=chance.random() < 0.3,
        )

    submits = tuple(
        Submit(
            at=moment(),
            id=f"j{number}",
            task=chance.choice(TASKS),
            groups=tuple(group for group in groups if chance.random() < 0.5),
            priority=chance.choice((1, 3, 3, 5)),
            delay=chance.uniform(0.0, 3.0) if chance.random() < 0.15 else None,
            plan=job_plan(),
            cancel_after=chance.uniform(0.0, 4.0) if chance.random() < 0.15 else None,
        )
        for number in range(chance.randint(3, 15))
    )
    faults = tuple(
        Fault(
            at=moment(),
            worker=chance.randrange(len(workers)),
            kind=chance.choice(("die", "die", "cut", "cut", "pause", "pause", "stop")),
            seconds=chance.uniform(0.2, 4.0) * lease_seconds,
            comes_back=chance.random() < 0.7,
        )
        for _ in range(chance.randint(0, 10))
    )
    return Plan(
        seed=seed,
        lease_seconds=lease_seconds,
        grace_seconds=chance.choice((0.2, 1.0, 3.0)),
        max_attempts=chance.randint(1, 3),
        limits={group: chance.randint(1, 3) for group in groups},
        max_concurrent={task: chance.choice((None, None, 1, 3)) for task in TASKS},
        workers=workers,
        submits=submits,
        faults=faults,
        lost_share=chance.choice((0.0, 0.02, 0.1, 0.2)),
        longest_delay=chance.choice((0.001, 0.02, 0.2)),
        trouble_seconds=trouble_seconds,
    )
