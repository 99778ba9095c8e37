"""New histories for the state machine until enough steps were compared, and an account of what they were about."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

from hypothesis import seed, settings
from hypothesis.stateful import run_state_machine_as_test

from qo.values import Bounds
from tests import exploration
from tests.conformance.machine.machine import machine_for
from tests.conformance.machine.noteworthy import BOUND, RARE
from tests.conformance.machine.side_by_side import StoreUnderTest
from tests.stores import STORES

BOUNDS = [
    Bounds(),
    Bounds(examine=2, portion=2, turns=2, turn_groups=8),
    Bounds(examine=3, portion=3, claim_bytes=7, turns=1),
]
ACTIONS = 50
FEWEST_EXAMPLES, MOST_EXAMPLES = 8, 100
"""Of one run of Hypothesis: its first example is always the simplest, and it keeps the choices of all in memory."""
HITS = 25
"""Of each rare state in a case of full length: a hundred on SQLite and as many on Redis, also of what only four of the
six cases of each can meet. Histories of one run are alike, so a case may have far fewer of a state than another."""
SHORTEST_COUNTED = 100_000
"""In a run that is shorter than that, a rare state may be missing by chance."""


@dataclass
class Account:
    """What the histories of one store with one kind of bounds were about."""

    name: str
    small_bounds: bool
    steps: int = 0
    examples: int = 0
    seconds: float = 0.0
    seconds_of_the_processor: float = 0.0
    noted: Counter[str] = field(default_factory=Counter)

    def too_rare(self) -> dict[str, int]:
        """The states that a run of this length should have met more often, with their hits."""
        if exploration.STEPS < SHORTEST_COUNTED:
            return {}
        enough = HITS * exploration.STEPS // exploration.FULL_LENGTH
        wanted = RARE if self.small_bounds else RARE - {BOUND}
        return {what: self.noted[what] for what in sorted(wanted) if self.noted[what] < enough}

    def line(self) -> str:
        rare = ", ".join(f"{what} {self.noted[what]:,}" for what in sorted(RARE, key=lambda one: self.noted[one]))
        seconds = f"{self.seconds:.0f} s, {self.seconds_of_the_processor:.0f} s of a processor"
        return f"{self.name}: {self.steps:,} steps, {self.examples:,} examples, {seconds}; rare states: {rare}"


def steps_of_a_case(under_test: StoreUnderTest) -> int:
    """Its share of the steps on SQLite, or of those on Redis."""
    cases = len(BOUNDS) * sum(is_sqlite(one) == is_sqlite(under_test) for one in STORES)
    return -(-exploration.STEPS // cases)


def is_sqlite(under_test: StoreUnderTest) -> bool:
    return under_test.name.startswith("sqlite")


def explore(under_test: StoreUnderTest, bounds: Bounds, account: Account, *, steps: int) -> None:
    """Compare at least so many steps. Raises what the machine raises."""
    began, worked, turn = time.monotonic(), time.process_time(), 0
    while account.steps < steps:
        machine = machine_for(under_test, bounds, account)
        chosen = settings(
            machine.TestCase.settings,
            max_examples=min(max(FEWEST_EXAMPLES, (steps - account.steps) // ACTIONS), MOST_EXAMPLES),
            stateful_step_count=ACTIONS,
            derandomize=False,
            database=exploration.DATABASE,
        )
        try:
            run_state_machine_as_test(seed(exploration.number_from(account.name, turn))(machine), settings=chosen)
        finally:
            account.seconds, account.seconds_of_the_processor = time.monotonic() - began, time.process_time() - worked
        exploration.note_progress(account.line())
        turn += 1
