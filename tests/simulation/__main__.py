"""Replay a seed: `python -m tests.simulation 17` prints its trace, and what was broken in it."""

from __future__ import annotations

import sys

from tests.simulation.plan import draw_plan
from tests.simulation.world import simulate

for seed in map(int, sys.argv[1:]):
    print(draw_plan(seed))  # noqa: T201
    print(*simulate(seed), sep="\n")  # noqa: T201
