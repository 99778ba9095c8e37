"""Model and store side by side, through histories that Hypothesis makes up.

How many and how long is decided in `tests/exploration.py`. A failure prints its steps in the form in which
`test_found.py` keeps them for ever.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis.stateful import run_state_machine_as_test

from qo.values import Bounds
from tests import exploration
from tests.conformance.machine.histories import BOUNDS, Account, explore, steps_of_a_case
from tests.conformance.machine.machine import machine_for
from tests.conformance.machine.side_by_side import StoreUnderTest
from tests.stores import STORES

every_bounds = pytest.mark.parametrize("step_bounds", BOUNDS, ids=lambda bounds: f"by{bounds.examine}")
every_store = pytest.mark.parametrize("real", STORES, ids=lambda store: store.name)
# Twins share their code, and the gate draws new histories on them as well.
twins_nightly = pytest.mark.parametrize(
    "real",
    [pytest.param(one, id=one.name, marks=[pytest.mark.nightly] if one.is_twin else []) for one in STORES],
)


@every_bounds
@twins_nightly
def test_the_store_does_what_the_model_does(real: StoreUnderTest, step_bounds: Bounds) -> None:
    run_state_machine_as_test(machine_for(real, step_bounds), settings=exploration.FIXED_HISTORIES)


@pytest.mark.histories
@every_bounds
@every_store
def test_new_histories_show_no_difference(
    real: StoreUnderTest,
    step_bounds: Bounds,
    request: pytest.FixtureRequest,
    record_property: Callable[[str, str], None],
) -> None:
    account = Account(request.node.callspec.id, small_bounds=step_bounds.portion < Bounds().portion)
    try:
        with exploration.failures_kept(account.name, request.node.nodeid):
            explore(real, step_bounds, account, steps=steps_of_a_case(real))
    finally:
        record_property(exploration.SUMMARY, account.line())
    assert account.too_rare() == {}, "These states were met too seldom: the machine no longer gets there."
