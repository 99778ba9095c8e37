"""Waiting for a store that is away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from qo.errors import StoreAway

T = TypeVar("T")
TRY_AGAIN_SECONDS = 0.5


async def until_there(step: Callable[[], Awaitable[T]], *, tell: Callable[[StoreAway], None] = lambda away: None) -> T:
    """Carry out a step, again and again while the store is away; calls `tell` each time that it is.

    Raises every other error: waiting helps neither wrong settings nor wrong credentials. A step must be safe to repeat.
    """
    while True:
        try:
            return await step()
        except StoreAway as away:
            tell(away)
        await asyncio.sleep(TRY_AGAIN_SECONDS)
