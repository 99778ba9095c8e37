"""Model and store side by side, through histories that Hypothesis makes up.

How many and how long is the loaded profile's business (`tests/conftest.py`). A failure prints its steps in the form
in which `test_found.py` keeps them for ever.
"""

from __future__ import annotations

import pytest
from hypothesis.stateful import run_state_machine_as_test
from machine import machine_for
from side_by_side import StoreUnderTest
from stores import STORES

from qo.store.values import Bounds

BOUNDS = [Bounds(), Bounds(examine=2, portion=2), Bounds(examine=3, portion=3, claim_bytes=7)]


@pytest.mark.parametrize("step_bounds", BOUNDS, ids=lambda bounds: f"by{bounds.examine}")
@pytest.mark.parametrize("real", STORES, ids=lambda store: store.name)
def test_the_store_does_what_the_model_does(real: StoreUnderTest, step_bounds: Bounds) -> None:
    run_state_machine_as_test(machine_for(real, step_bounds))
