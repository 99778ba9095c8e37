"""Model and store side by side where many jobs and callers want few slots: turns begin, rest and end all the time.

The state machine draws from everything that a store can do, and so meets a turn in one of some hundred steps. These
histories have few groups, small limits and jobs of several groups; each follows from its number alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from qo.job import State
from qo.values import (
    Bounds,
    Limit,
    Outcome,
    Registration,
    Source,
    Standing,
    Submission,
    TaskOptions,
    Ticket,
    Unlimited,
    UpkeepRules,
)
from tests import exploration
from tests.conformance.machine.histories import BOUNDS
from tests.conformance.machine.side_by_side import SideBySide, StoreUnderTest
from tests.conformance.model.state import LeaseRow
from tests.stores import STORES

START = 1_728_043_200_000
DAY_MS, SECOND_MS = 86_400_000, 1000
IN_THE_GATE = (4, 8)
"""Two histories with many turns."""
NIGHTLY_HISTORIES = 200
STEPS = 120
TASKS = ("build", "mail", "scan")
FREE = ("g1", "g2", "g3")
GROUPS = (*FREE, "mail", "build")
LIMITED = (*GROUPS, "user:u1", "user:u2", "priority:50", "priority:20", "global")
WORKERS = ("w1", "w2", "w3")


class Contention:
    """One history. An action is taken as often as its weight says, as long as it can be."""

    lifetimes_ms: tuple[int, ...] = (DAY_MS, DAY_MS, DAY_MS, DAY_MS, 30 * SECOND_MS)
    """of workers' registrations"""

    def __init__(self, both: SideBySide, number: int) -> None:
        self.both, self.draw, self.now = both, random.Random(number), START
        self.names = iter(range(1, 100_000))
        self.actions: list[tuple[int, Callable[[], None]]] = [
            (20, self.submit),
            (22, self.claim),
            (18, self.finish),
            (10, self.acquire),
            (7, self.release),
            (4, self.cancel),
            (3, self.move),
            (2, self.set_priority),
            (4, self.set_limit),
            (1, self.remove_limit),
            (2, self.set_paused),
            (1, self.register),
            (1, self.set_tier),
            (1, self.age),
            (2, self.catch_up),
        ]

    def do(self, operation: str, *args: Any, **kwargs: Any) -> None:
        self.both.do(operation, *args, **kwargs, now=self.now)

    def run(self) -> None:
        self.register()
        self.register()
        for group in (*FREE, *self.draw.sample(LIMITED, 3)):
            self.do("set_limits", [Limit(group=group, slots=self.draw.choice([1, 1, 2, 3]), source=Source.OPERATOR)])
        weights, actions = zip(*self.actions, strict=True)
        for act in self.draw.choices(actions, weights, k=STEPS):
            self.now += self.draw.choice([0, 0, 0, SECOND_MS, SECOND_MS, 20 * SECOND_MS])
            act()

    # --- what there is ------------------------------------------------------------------------------------------

    def queued(self) -> list[str]:
        return [job.id for job in self.both.model.state.jobs.values() if job.state is State.QUEUED]

    def leases(self, *, of_jobs: bool) -> list[LeaseRow]:
        return [lease for lease in self.both.model.state.leases.values() if lease.is_job == of_jobs]

    def some(self, names: tuple[str, ...], *sizes: int) -> tuple[str, ...]:
        return tuple(self.draw.sample(names, self.draw.choice(sizes)))

    # --- what happens -------------------------------------------------------------------------------------------

    def register(self) -> None:
        tasks = tuple(
            TaskOptions(
                name=task,
                groups=self.some(FREE, 0, 0, 0, 0, 0, 1),
                limit=self.draw.choice([None, None, None, None, None, None, 1, 2]),
            )
            for task in self.some(TASKS, 3, 3, 3, 2, 1)
        )
        registration = Registration(
            name=self.draw.choice(WORKERS),
            tasks=tasks,
            capacity=self.draw.choice([1, 2, 5]),
            lifetime_ms=self.draw.choice(self.lifetimes_ms),
            turn_after=self.draw.choice([1, 1, 1, 1, 2, 2, 2, 3, 0]),
        )
        self.do("register", registration)

    def submit(self) -> None:
        submissions = [
            Submission(
                id=f"j{next(self.names)}",
                task=self.draw.choice(TASKS),
                groups=self.some(GROUPS, 0, 1, 1, 2, 3, 3),
                user=self.draw.choice([None, "u1", "u1", "u2"]),
                priority=self.draw.choice([50, 50, 20]),
                parent=self.draw.choice([None, None, None, None, None, "7"]),
            )
            for _ in range(self.draw.choice([1, 1, 2, 3]))
        ]
        self.do("submit", submissions)

    def claim(self) -> None:
        self.do(
            "claim",
            worker=self.draw.choice(WORKERS),
            tasks=self.some(TASKS, 1, 1, 2, 3),
            capacity=self.draw.choice([1, 1, 2, 5]),
            lease_ms=self.draw.choice([600, 600, 600, 600, 15]) * SECOND_MS,
            claim_id=f"c{next(self.names)}",
        )

    def finish(self) -> None:
        held = self.leases(of_jobs=True)
        outcomes = [
            Outcome(
                job_id=lease.holder,
                token=str(lease.token),
                state=self.draw.choice([State.SUCCEEDED, State.SUCCEEDED, State.SUCCEEDED, State.QUEUED]),
            )
            for lease in self.draw.sample(held, min(len(held), self.draw.choice([1, 1, 2])))
        ]
        self.do("finish", outcomes)

    def acquire(self) -> None:
        known = sorted(self.both.model.state.tickets) if self.draw.random() < 0.2 else []
        ticket = Ticket(
            holder=self.draw.choice(known or [f"h{next(self.names)}"]),
            groups=self.some(GROUPS, 1, 1, 2, 3),
            lease_ms=60 * SECOND_MS,
            wait_ms=self.draw.choice([0, 20, 20, 300, 300, 300]) * SECOND_MS,
            priority=self.draw.choice([50, 50, 20]),
        )
        self.do("acquire", [ticket])

    def release(self) -> None:
        names = [*(lease.holder for lease in self.leases(of_jobs=False)), *self.both.model.state.tickets]
        self.do("release", [(self.draw.choice(names or ["nobody"]), None)])

    def cancel(self) -> None:
        self.do("cancel", job_id=self.draw.choice(self.queued() or ["nobody"]))

    def move(self) -> None:
        queued = self.queued()
        if len(queued) > 1:
            moved, other = self.draw.sample(queued, 2)
            self.do("move", moved, **{self.draw.choice(["before", "after"]): other})

    def set_priority(self) -> None:
        self.do("set_priority", self.draw.choice([20, 50]), job_id=self.draw.choice(self.queued() or ["nobody"]))

    def set_limit(self) -> None:
        slots = self.draw.choice([0, 1, 1, 1, 2, 2, 3])
        self.do("set_limits", [Limit(group=self.draw.choice(LIMITED), slots=slots, source=Source.OPERATOR)])

    def remove_limit(self) -> None:
        self.do("set_limits", [Unlimited(group=self.draw.choice(LIMITED))])

    def set_paused(self) -> None:
        self.do("set_paused", self.draw.choice(["g1", "g2", "user:u1", "mail", "global"]), self.draw.random() < 0.3)

    def set_tier(self) -> None:
        standing = Standing(tier=self.draw.choice(["fast", "slow"]), user_limit=self.draw.choice([None, 1, 2]))
        self.do("set_tier", self.draw.choice(["u1", "u2"]), standing)

    def age(self) -> None:
        self.do("upkeep", UpkeepRules(aging_period_ms=60 * SECOND_MS))

    def catch_up(self) -> None:
        self.do("catch_up")


def numbers() -> list[int]:
    """Of the histories: the same in every run of the gate, new ones in a nightly."""
    if exploration.NIGHTLY:
        return [exploration.number_from("contention", number) for number in range(NIGHTLY_HISTORIES)]
    return list(IN_THE_GATE)


def turns_in(history: Contention) -> int:
    figures = history.both.model.state.series
    return sum(count for (name, _), (count, _) in figures.items() if name == "turns")


@pytest.mark.parametrize("bounds", BOUNDS, ids=lambda bounds: f"by{bounds.examine}")
@pytest.mark.parametrize(
    "real",
    [pytest.param(one, id=one.name, marks=[pytest.mark.nightly] if one.is_twin else []) for one in STORES],
)
def test_a_store_does_what_the_model_does_where_slots_are_scarce(real: StoreUnderTest, bounds: Bounds) -> None:
    turns = 0
    for number in numbers():
        with closing(SideBySide(real, bounds)) as both:
            history = Contention(both, number)
            history.run()
            turns += turns_in(history)
    assert turns > 0, "no job and no caller had a turn"
