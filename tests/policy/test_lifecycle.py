"""The state table of SPEC.md section 5, row by row."""

from __future__ import annotations

from itertools import product

import pytest

from qo.errors import InvalidTransition
from qo.job import ENDED, HELD, State, status_of
from qo.policy.lifecycle import NEXT, allowed_after, check_transition

TABLE = {
    "scheduled": "queued cancelled failed",
    "waiting": "queued cancelled failed",
    "queued": "starting scheduled cancelled failed",
    "starting": "running queued scheduled failed cancelled",
    "running": "succeeded failed confirming queued scheduled cancelled",
    "confirming": "queued failed cancelled",
    "failed": "queued",
    "succeeded": "",
    "cancelled": "",
}
ALLOWED = {(State(present), State(wanted)) for present, row in TABLE.items() for wanted in row.split()}
FORBIDDEN = sorted(set(product(State, State)) - ALLOWED)


def test_the_table_has_a_row_for_every_state() -> None:
    assert set(NEXT) == set(State) == {State(name) for name in TABLE}


@pytest.mark.parametrize(("present", "wanted"), sorted(ALLOWED))
def test_what_the_table_allows_is_allowed(present: State, wanted: State) -> None:
    check_transition("j1", present, wanted)

    assert wanted in NEXT[present]


@pytest.mark.parametrize(("present", "wanted"), FORBIDDEN)
def test_everything_else_is_refused_with_what_was_allowed(present: State, wanted: State) -> None:
    with pytest.raises(InvalidTransition) as refused:
        check_transition("j1", present, wanted)

    assert "'j1'" in str(refused.value)
    assert f"is {present.value} and cannot become {wanted.value}" in str(refused.value)
    assert allowed_after(present) in str(refused.value)
    assert (refused.value.present, refused.value.wanted) == (present.value, wanted.value)


def test_what_is_allowed_is_said_in_words() -> None:
    assert allowed_after(State.CONFIRMING) == "cancelled, failed, queued"
    assert allowed_after(State.SUCCEEDED) == "nothing, it has ended"


def test_only_a_failed_job_goes_on_after_its_end() -> None:
    assert {state for state in ENDED if NEXT[state]} == {State.FAILED}


def test_a_job_is_held_only_after_it_was_claimed_from_the_line() -> None:
    assert {present for present, wanted in ALLOWED if wanted is State.STARTING} == {State.QUEUED}
    assert {present for present, wanted in ALLOWED if wanted is State.RUNNING} == {State.STARTING}
    assert {State.STARTING, State.RUNNING} == HELD


@pytest.mark.parametrize("state", list(State))
def test_without_stages_the_status_is_the_state(state: State) -> None:
    assert status_of(state, None) == state.value


@pytest.mark.parametrize("state", list(State))
def test_with_stages_the_status_is_the_stage_while_it_runs_and_ready_when_it_succeeded(state: State) -> None:
    shown = {State.RUNNING: "code", State.SUCCEEDED: "ready"}

    assert status_of(state, "code") == shown.get(state, state.value)
