"""A limiter in process with four providers, and callers that hold its slots or stand in line."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

import qo
from qo.limits.block import Lease

PROVIDERS = {"ollama": 4, "gemini": 8, "openai": 10, "deepseek": 8}


@pytest.fixture(name="limiter")
def limiter_fixture() -> qo.Limiter:
    return qo.Limiter(PROVIDERS, total=12)


@pytest.fixture(name="held")
async def held_fixture() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


async def take(held: AsyncExitStack, limiter: qo.Limiter, provider: str, count: int = 1) -> None:
    """Without waiting: the test fails where there is no room."""
    for _ in range(count):
        await held.enter_async_context(limiter.acquire(provider, timeout=0))


async def is_full(limiter: qo.Limiter, provider: str) -> bool:
    try:
        async with limiter.acquire(provider, timeout=0):
            return False
    except qo.Timeout:
        return True


async def waiting(limiter: qo.Limiter, provider: str) -> tuple[asyncio.Task[Lease], asyncio.Event]:
    """A task that stands in line, and what lets it leave its block."""
    leave = asyncio.Event()

    async def enter() -> Lease:
        async with limiter.acquire(provider) as lease:
            await leave.wait()
            return lease

    task = asyncio.create_task(enter())
    before = limiter.get_metrics()["blocked_requests"]
    await asyncio.sleep(0)
    assert limiter.get_metrics()["blocked_requests"] == before + 1
    return task, leave


def until_waiting(limiter: qo.Limiter, provider: str, count: int) -> None:
    """For threads, of which nothing else tells that they wait."""
    while limiter.get_metrics()["waiting"][provider] < count:
        time.sleep(0.001)


def in_flight(limiter: qo.Limiter) -> dict[str, int]:
    return {name: count for name, count in limiter.get_metrics()["in_flight"].items() if count}
