"""Waking those who wait for the file to change."""

from __future__ import annotations

import asyncio

import pytest

from qo.store.sqlite.file.changes import Changes


@pytest.mark.parametrize("turns", range(6))
async def test_a_waiter_that_is_cancelled_as_it_is_woken_is_cancelled(turns: int) -> None:
    changes = Changes(None)

    async def never() -> bool:
        return False

    waiting = asyncio.create_task(changes.wait_until(never, timeout_seconds=60))
    for _ in range(5):
        await asyncio.sleep(0)
    changes.notify()
    for _ in range(turns):
        await asyncio.sleep(0)
    waiting.cancel()

    done, _ = await asyncio.wait([waiting], timeout=1)
    still_waiting = not done
    waiting.cancel()
    assert not still_waiting
    assert waiting.cancelled()
