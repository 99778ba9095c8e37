"""A limiter whose store is away for a while: slots are given back all the same, and errors are raised."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import qo
from qo.errors import StoreUnavailable
from qo.limits.on_store import slots as limiter_on_store
from qo.limits.on_store import thread as limiter_thread
from tests.limits.limiters_on_a_queue import (
    MakeLimiter,
    enter_and_leave,
    held,
    make_fixture,  # noqa: F401 - asked for by name
)
from tests.worker.running import until

SOON_SECONDS = 20


async def test_a_release_that_the_store_does_not_take_is_tried_until_it_does(
    queue: qo.Queue, make: MakeLimiter, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limiter_thread, "TRY_AGAIN_SECONDS", 0.01)
    limiter = make({"ollama": 1})
    release, failures = queue.store.release, 3

    async def sometimes(*args: Any, **options: Any) -> Any:
        nonlocal failures
        if failures:
            failures -= 1
            raise StoreUnavailable("away")
        return await release(*args, **options)

    queue.store.release = sometimes  # type: ignore[method-assign]
    async with limiter.acquire("ollama"):
        pass

    assert (failures, await held(queue, "provider:ollama")) == (0, 0)
    assert caplog.text.count("a slot cannot be given back for now") == 1


@pytest.mark.parametrize("in_thread", [False, True])
async def test_a_block_does_not_wait_for_ever_to_give_its_slots_back(
    queue: qo.Queue, make: MakeLimiter, monkeypatch: pytest.MonkeyPatch, in_thread: bool
) -> None:
    monkeypatch.setattr(limiter_on_store, "LEAVE_SECONDS", 0.05)
    limiter = make({"ollama": 1})
    release, is_back = queue.store.release, threading.Event()

    async def when_it_is_back(*args: Any, **options: Any) -> Any:
        await asyncio.to_thread(is_back.wait, SOON_SECONDS)
        return await release(*args, **options)

    queue.store.release = when_it_is_back  # type: ignore[method-assign]
    if in_thread:
        await asyncio.to_thread(enter_and_leave_thread, limiter)
    else:
        await enter_and_leave(limiter, "ollama")
    still_held = await held(queue, "provider:ollama")
    is_back.set()

    async def nobody_holds() -> bool:
        return await held(queue, "provider:ollama") == 0

    await until(nobody_holds)
    assert still_held == 1


def enter_and_leave_thread(limiter: qo.Limiter) -> None:
    with limiter.acquire("ollama"):
        pass


async def test_what_cannot_be_asked_for_is_raised_and_nothing_is_left(queue: qo.Queue, make: MakeLimiter) -> None:
    limiter = make({"ollama": 1})
    acquire, is_away = queue.store.acquire, True

    async def sometimes(*args: Any, **options: Any) -> Any:
        if is_away:
            raise StoreUnavailable("away")
        return await acquire(*args, **options)

    queue.store.acquire = sometimes  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable, match="away"):
        async with limiter.acquire("ollama"):
            pass
    is_away = False

    assert await enter_and_leave(limiter, "ollama") == {"provider:ollama": 0}
