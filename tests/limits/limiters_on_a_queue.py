"""Limiters on the queue of a test, and what is held and waited for there.

A test module imports `make_fixture`; its function is not called like the fixture, so that an argument of a test does
not hide an import.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

import qo
from tests.worker.running import until

MakeLimiter = Callable[..., qo.Limiter]

ASK_AGAIN_OFTEN = {"limiter": {"waiter_alive_secs": 1.5}}
"""Three times in that time, so twice a second, the limiter's thread asks again for the callers that wait."""


@pytest.fixture(name="make")
async def make_fixture(queue: qo.Queue) -> AsyncIterator[MakeLimiter]:
    """Limiters on the same queue, each as if in a process of its own; closed at the end."""
    made: list[qo.Limiter] = []

    def limiter(*args: Any, **options: Any) -> qo.Limiter:
        made.append(qo.Limiter(*args, **options, queue=queue))
        return made[-1]

    yield limiter
    for each in made:
        await asyncio.to_thread(each.close)


async def held(queue: qo.Queue, group: str) -> int:
    return (await queue.limit(group)).active


async def waiting(queue: qo.Queue, group: str, number: int) -> None:
    async def do_wait() -> bool:
        return (await queue.store.groups([group]))[0].waiting == number  # the store serves every event loop

    await until(do_wait)


async def enter_and_leave(limiter: qo.Limiter, provider: str) -> dict[str, int]:
    async with limiter.acquire(provider) as lease:
        return dict(lease.slots)
