"""A Hypothesis state machine that drives the reference model and a store under test side by side.

It names no store. Every action is one or a few steps; `SideBySide` compares answers, whole state and some reads after
each of them. What an action works on (jobs, leases, slots) is picked from the model's present state, so that most
steps mean something; stale tokens, unknown ids and repeated calls are picked now and then.

The actions are beside it, by area: `running.py`, `people.py`, `callers.py`,
`upkeep.py`.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from qo.values import Bounds, Registration, TaskOptions
from tests.conformance.machine.callers import Callers
from tests.conformance.machine.paging import Paging
from tests.conformance.machine.people import Limits, People
from tests.conformance.machine.running import Running, Submitting
from tests.conformance.machine.scene import Account, Action
from tests.conformance.machine.side_by_side import StoreUnderTest
from tests.conformance.machine.strategies import (
    DAY_MS,
    TASKS,
    WORKERS,
    limits,
    phase_submissions,
    some_of,
    submissions,
    tiered_submissions,
    turn_after,
)
from tests.conformance.machine.upkeep import Upkeep, Workers


class StoreMachine(Submitting, Running, People, Limits, Callers, Workers, Upkeep, Paging):
    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        """A few workers, limits and jobs, so that short histories are about something."""
        for worker in data.draw(some_of(WORKERS, most=2)):
            tasks = tuple(TaskOptions(name=task) for task in TASKS)
            registration = Registration(
                name=worker,
                tasks=tasks,
                capacity=data.draw(st.integers(1, 3)),
                lifetime_ms=DAY_MS,
                turn_after=data.draw(turn_after),
            )
            self.do("register", registration)
        wanted = data.draw(st.lists(limits, max_size=4))
        if wanted:
            self.do("set_limits", wanted)
        if data.draw(st.booleans()):
            self.submit_the_phases_of_a_parent(data)
        # What a history never does matters as much as what it does.
        self.left_out = set(data.draw(st.lists(st.sampled_from(range(len(ACTIONS))), max_size=8)))
        kinds = st.sampled_from([submissions, submissions, phase_submissions, tiered_submissions])
        for _ in range(data.draw(st.integers(1, 3))):
            self.submit(data, data.draw(kinds))

    @rule(data=st.data())
    def go_on(self, data: st.DataObject) -> None:
        likely = [
            action
            for number, action in enumerate(ACTIONS)
            if number not in self.left_out and action.when(self)
            for _ in range(action.weight)
        ]
        chosen = data.draw(st.sampled_from(likely))
        drawn = {name: data.draw(strategy) for name, strategy in chosen.drawn.items()}
        chosen.run(self, **drawn, **({"data": data} if chosen.takes_data else {}))


ACTIONS: list[Action] = [
    member.action for area in StoreMachine.__bases__ for member in vars(area).values() if hasattr(member, "action")
]
"""area by area, because what Hypothesis draws, and shrinks to, is a number in this list"""


def machine_for(under_test: StoreUnderTest, bounds: Bounds, account: Account | None = None) -> type[StoreMachine]:
    given = {"under_test": under_test, "bounds": bounds, "account": account}
    return type(f"{under_test.name}Machine", (StoreMachine,), given)
