"""Histories that once told a store and the model apart, kept for ever as plain tests.

A failing state machine prints its steps in this form: paste them, cut them down, and name the rule that was broken.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from side_by_side import SideBySide, Step, StoreUnderTest, step
from stores import STORES

from qo.store.values import Bounds, Limit, Source, Standing, Submission

NOON = 1_728_043_200_000

every_store = pytest.mark.parametrize("real", STORES, ids=lambda store: store.name)


def replay(under_test: StoreUnderTest, steps: Sequence[Step], bounds: Bounds | None = None) -> None:
    """Take the steps on the model and the store; a difference after any of them is an error."""
    both = SideBySide(under_test, bounds or Bounds())
    try:
        for one in steps:
            both.do(one.operation, *one.args, **one.kwargs)
    finally:
        both.close()


@every_store
def test_a_limit_that_replaces_another_is_as_new_as_the_newest_job(real: StoreUnderTest) -> None:
    steps = [
        step("set_limits", [Limit(group="user:u2", slots=1, source=Source.TASK)], now=NOON),
        step("submit", [Submission(id="y0", task="scan")], now=NOON),
        step("set_tier", "u2", Standing(tier="fast", user_limit=2), now=NOON),
        step("forget", keep_ms=1000, keep_jobs=0, keep_events=0, now=NOON),
    ]
    replay(real, steps)
