"""Waiting with an end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def within(seconds: float | None, work: Coroutine[Any, Any, object]) -> bool:
    """Whether the work was done in time; None waits for ever. An error of the work is raised."""
    try:
        async with asyncio.timeout(seconds) as deadline:
            await work
    except TimeoutError:
        if not deadline.expired():
            raise  # the work's own
        return False
    return True
