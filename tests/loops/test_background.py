"""An event loop in a thread of its own: for work that goes on while the starter's event loop is blocked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator

import pytest

from qo.loops.background import LoopThread


async def test_the_work_runs_in_a_thread_of_its_own_until_it_ends() -> None:
    stopped, threads = asyncio.Event(), []

    async def work() -> None:
        threads.append(threading.current_thread())
        await stopped.wait()

    background = LoopThread(work, "qo-test")
    background.call_soon(stopped.set)
    await background.ended()

    (thread,) = threads
    assert thread.name == "qo-test"
    assert thread.daemon
    assert not background.is_alive()


async def test_its_event_loop_is_closed_when_the_work_has_ended() -> None:
    background = LoopThread(lambda: asyncio.sleep(0), "qo-test")
    await background.ended()

    assert background.loop.is_closed()
    with pytest.raises(RuntimeError, match="closed"):
        background.call_soon(lambda: None)


async def test_generators_that_are_left_open_are_closed_in_its_loop() -> None:
    closed_in: list[asyncio.AbstractEventLoop] = []

    async def numbers() -> AsyncGenerator[int]:
        try:
            yield 1
        finally:
            closed_in.append(asyncio.get_running_loop())

    kept = numbers()

    async def work() -> None:
        await anext(kept)

    background = LoopThread(work, "qo-test")
    await background.ended()

    assert closed_in == [background.loop]
