"""A Hypothesis state machine that drives the reference model and a store under test side by side.

It names no store. Every action is one or a few steps; `SideBySide` compares answers, whole state and some reads after
each of them. What an action works on (jobs, leases, slots) is picked from the model's present state, so that most
steps mean something; stale tokens, unknown ids and repeated calls are picked now and then.

The actions are beside it, by area: `machine_running.py`, `machine_people.py`, `machine_callers.py`,
`machine_upkeep.py`.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule
from machine_callers import Callers
from machine_people import Limits, People
from machine_running import Running, Submitting
from machine_scene import Account, Action
from machine_upkeep import Upkeep, Workers
from side_by_side import StoreUnderTest
from strategies import DAY_MS, TASKS, WORKERS, limits, phase_submissions, some_of, submissions, tiered_submissions

from qo.store.values import Bounds, Registration, TaskOptions


class StoreMachine(Submitting, Running, People, Limits, Callers, Workers, Upkeep):
    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        """A few workers, limits and jobs, so that short histories are about something."""
        for worker in data.draw(some_of(WORKERS, most=2)):
            tasks = tuple(TaskOptions(name=task) for task in TASKS)
            places = data.draw(st.integers(1, 3))
            self.do("register", Registration(name=worker, tasks=tasks, places=places, lifetime_ms=DAY_MS))
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
