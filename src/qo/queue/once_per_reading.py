"""What is worked out from the estimator's last reading, once for all callers that want the same."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from qo.policy.estimates.forecast import Forecast
from qo.queue.estimator import Estimator

T = TypeVar("T")

MOST_KEPT = 256
"""How many answers are kept for one reading. Each is of a few kilobytes, a timeline of up to some megabytes."""


class OncePerReading(Generic[T]):
    """Answers by key, all from one reading of the store, until the estimator has a newer one.

    One answer is worked out at a time, so that many different questions take no more than one thread.
    """

    def __init__(self, estimator: Estimator, *, most_kept: int = MOST_KEPT) -> None:
        self._estimator = estimator
        self._most_kept = most_kept
        self._one_at_a_time = asyncio.Lock()
        self._forecast: Forecast | None = None
        self._answers: dict[Hashable, T] = {}

    async def answer(self, key: Hashable, work: Callable[[Forecast], Awaitable[T]]) -> T:
        async with self._one_at_a_time:
            forecast = await self._estimator.fresh()
            if forecast is not self._forecast or len(self._answers) >= self._most_kept:
                self._forecast, self._answers = forecast, {}
            if key not in self._answers:
                self._answers[key] = await work(forecast)
            return self._answers[key]
