"""The one source of randomness. Ids have theirs in `qo.ids`."""

from __future__ import annotations

import random
from typing import Any

draw = random.random
"""A number from 0 to below 1."""


def between(low: float, high: float) -> float:
    return low + (high - low) * draw()


def shuffle(items: list[Any]) -> None:
    random.shuffle(items)
