"""What every action of the state machine has at hand: taking a step, and picking what to work on."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from hypothesis import event
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine

from qo.event import AuditEntry
from qo.job import State
from qo.values import Bounds
from tests.conformance.machine.noteworthy import noteworthy
from tests.conformance.machine.side_by_side import SideBySide, StoreUnderTest
from tests.conformance.machine.strategies import START, seldom
from tests.conformance.model.state import ModelState

UNKNOWN = "nobody"


class Action(NamedTuple):
    """A thing the machine may do next: how likely, when it makes sense, and what it draws."""

    weight: int
    when: Callable[[Any], Any]
    drawn: dict[str, st.SearchStrategy[Any]]
    takes_data: bool
    run: Callable[..., None]


def action(
    weight: int = 1, /, *, when: Callable[[Any], Any] = lambda machine: True, **drawn: st.SearchStrategy[Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Like Hypothesis's `rule`, with a weight: with all equally likely, hardly a job would start before the history
    is over. `data` is given to those that ask for it."""

    def note(run: Callable[..., None]) -> Callable[..., None]:
        takes_data = "data" in inspect.signature(run).parameters
        run.action = Action(weight, when, drawn, takes_data, run)  # type: ignore[attr-defined]
        return run

    return note


class Account(Protocol):
    """Whoever counts what all histories together were about."""

    steps: int
    examples: int
    noted: Counter[str]


class Scene(RuleBasedStateMachine):
    """The two stores, the time, and what was seen so far; every area of actions builds on it."""

    under_test: StoreUnderTest
    bounds: Bounds
    account: Account | None = None

    def __init__(self) -> None:
        super().__init__()
        self.both = SideBySide(self.under_test, self.bounds)
        self.now = START
        self.submitted = 0
        self.claims = 0
        self.seen_tokens: list[tuple[str, str]] = []

    def teardown(self) -> None:
        if self.account is not None:
            self.account.steps += len(self.both.steps)
            self.account.examples += 1
        self.both.close()

    @property
    def state(self) -> ModelState:
        return self.both.model.state

    def do(self, operation: str, *args: Any, **kwargs: Any) -> Any:
        answer = self.both.do(operation, *args, **kwargs, now=self.now)
        noted = set(noteworthy(self.both.model.before, self.both.model, answer, self.now))
        for what in sorted(noted):
            event(what)
        if self.account is not None:
            self.account.noted.update(noted)
        for lease in self.state.leases.values():
            if (lease.holder, str(lease.token)) not in self.seen_tokens:
                self.seen_tokens.append((lease.holder, str(lease.token)))
        return answer

    def an_entry(self, data: st.DataObject, *actions: str) -> AuditEntry:
        """One of these actions, mostly a new one, so that an undo of it may count."""
        entries = [entry for entry in self.state.audit if entry.action in actions]
        return data.draw(st.sampled_from([*entries[-3:], *entries[-1:] * 3]))

    def jobs_in(self, *states: State) -> list[str]:
        return [job.id for job in self.state.jobs.values() if job.state in states]

    def pick_job(self, data: st.DataObject, *states: State) -> str:
        """Mostly one in these states, sometimes any, sometimes none that exists."""
        fitting, everything = self.jobs_in(*states), [*self.state.jobs, UNKNOWN]
        return data.draw(st.sampled_from(fitting or everything) | seldom(st.sampled_from(everything), everything[0]))

    def pick_lease(self, data: st.DataObject, *, of_jobs: bool) -> tuple[str, str]:
        """Mostly a live one, sometimes an old or another's token."""
        live = [(one.holder, str(one.token)) for one in self.state.leases.values() if one.is_job == of_jobs]
        stale = [*self.seen_tokens, (UNKNOWN, "1")]
        return data.draw(st.sampled_from(live or stale) | seldom(st.sampled_from(stale), (live or stale)[0]))
