"""The reference model as a store, so that the behaviour suite can run against it as well."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import suppress
from typing import Any

from qo.clock import ReadClock, system_ms
from qo.event import SIGNALS, Feed
from qo.store.check import CHECKS
from qo.store.contract import Store
from qo.values import Bounds, Claimed, Offer
from tests.conformance.model.model import Model

LOOK_AGAIN_SECONDS = 0.05


class ModelStore:
    """Every operation of the `Store` protocol; the model gets the time of `clock`."""

    def __init__(self, bounds: Bounds | None = None, clock: ReadClock | None = None) -> None:
        self.model = Model(bounds)
        self.bounds = self.model.bounds
        self.clock = clock
        self._changed = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(Store, name):
            raise AttributeError(name)
        operation = getattr(self.model, name)
        check = CHECKS.get(name)
        takes_the_time = "now" in inspect.signature(operation).parameters

        async def call(*args: Any, **kwargs: Any) -> Any:
            if check is not None:
                check(*args, **kwargs)
            if takes_the_time:
                kwargs["now"] = self._now()
            newest = self.model.state.last_event
            answer = operation(*args, **kwargs)
            if self.model.state.last_event > newest:
                self._changed.set()
                self._changed = asyncio.Event()
            return answer

        return call

    def _now(self) -> int:
        return system_ms() if self.clock is None else self.clock()

    async def events(self, after: int | None, *, timeout_seconds: float = 0, **wanted: Any) -> Feed:
        CHECKS["events"](after, **wanted)
        if after is not None:
            await self._wait_for_events(after, timeout_seconds=timeout_seconds)
        return self.model.events(after, **wanted)

    async def _wait_for_events(
        self, after: int, *, timeout_seconds: float, kinds: Collection[str] | None = None
    ) -> None:
        deadline = time.monotonic() + timeout_seconds
        while not self.model.events(after, kinds=kinds, limit=1).events and time.monotonic() < deadline:
            with suppress(TimeoutError):
                async with asyncio.timeout(deadline - time.monotonic()):
                    await self._changed.wait()

    async def signals(self, worker: str, after: int) -> AsyncGenerator[Feed]:
        while True:
            feed = self.model.events(after, kinds=SIGNALS)
            yield feed
            after = feed.cursor
            await self._wait_for_events(after, kinds=SIGNALS, timeout_seconds=LOOK_AGAIN_SECONDS)

    async def wait_for_work(
        self,
        *,
        worker: str,
        tasks: Sequence[str],
        timeout_seconds: float,
        offer: Offer | None = None,
        suspects: int | None = None,
    ) -> Claimed:
        deadline = time.monotonic() + timeout_seconds
        while not self.model.might_claim(worker, tasks, suspects, now=self._now()):
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return Claimed()
            # Time alone makes jobs due, and no step tells of that.
            await self._wait_for_events(self.model.state.last_event, timeout_seconds=min(remaining, LOOK_AGAIN_SECONDS))
        return Claimed(more=True)

    def snapshot(self) -> dict[str, Any]:
        return self.model.snapshot()

    async def close(self) -> None:
        pass
