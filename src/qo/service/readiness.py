"""Whether the store can be used, asked of it at most once a second however many ask."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from qo.errors import StoreUnavailable
from qo.policy.checks import READINESS_TASK
from qo.queue.queue import Queue

READY_WITHIN_SECONDS = 2.0
SHARED_SECONDS = 1.0


class NotReady(NamedTuple):
    """Why the store cannot be used: one word, and a sentence."""

    reason: str
    detail: str


class Readiness:
    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._asking = asyncio.Lock()
        self._asked_at = -SHARED_SECONDS
        self._found: NotReady | None = None

    async def check(self) -> NotReady | None:
        """None while the store can be used."""
        async with self._asking:
            if self._queue.system.monotonic() - self._asked_at >= SHARED_SECONDS:
                self._found = await self._ask()
                self._asked_at = self._queue.system.monotonic()
            return self._found

    async def _ask(self) -> NotReady | None:
        """A claim that finds nothing goes the whole way to the store and writes there."""
        try:
            async with asyncio.timeout(READY_WITHIN_SECONDS):
                await self._queue.store_here.claim(
                    worker=READINESS_TASK,
                    tasks=[READINESS_TASK],
                    capacity=1,
                    lease_ms=1000,
                    claim_id=self._queue.system.new_id(),
                )
        except TimeoutError:
            return NotReady("timeout", f"The store has not answered within {READY_WITHIN_SECONDS:.0f} seconds.")
        except StoreUnavailable as error:
            return NotReady("unavailable", str(error))
        return None
