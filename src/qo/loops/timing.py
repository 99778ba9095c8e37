"""Waiting with an end, and to the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


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


async def to_its_end(step: Coroutine[Any, Any, T]) -> T:
    """Carry a step out; a cancellation that comes meanwhile is raised when it has ended.

    So a caller that undoes a half-done step knows that nothing of it is still on its way to the store.
    """
    task = asyncio.ensure_future(step)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


async def unless(work: Coroutine[Any, Any, T], *, stopped: Callable[[], bool], changed: asyncio.Event) -> T | None:
    """What the work answers; None, and the work is cancelled, once `stopped`. `changed` is set whenever that may have
    become true."""
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
