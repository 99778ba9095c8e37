"""Awaiting work for a limited time, to its end, or until something else happens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def within(seconds: float | None, work: Coroutine[Any, Any, object]) -> bool:
    """Whether the work ended in time. `seconds` None waits for ever. Raises the work's own error."""
    deadline = asyncio.timeout(seconds)
    try:
        async with deadline:
            await work
    except TimeoutError:
        if not deadline.expired():
            raise  # the work's own
        return False
    return True


async def to_its_end(step: Coroutine[Any, Any, T]) -> T:
    """Carry a step out. A cancellation that comes meanwhile is raised when the step has ended.

    So a caller that undoes a half-done step knows that nothing of it is still on its way to the store.
    """
    task = asyncio.ensure_future(step)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


async def unless(work: Coroutine[Any, Any, T], *, stopped: Callable[[], bool], changed: asyncio.Event) -> T | None:
    """The work's answer; None if `stopped()` became true before, and then the work is cancelled. `changed` has to be
    set whenever that may have become true."""
    doing = asyncio.ensure_future(work)
    doing.add_done_callback(lambda _: changed.set())
    try:
        while not (doing.done() or stopped()):
            changed.clear()
            await changed.wait()
    finally:
        if not doing.done():
            doing.cancel()
            await asyncio.wait([doing])
    return None if doing.cancelled() else doing.result()
