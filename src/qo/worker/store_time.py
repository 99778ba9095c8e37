"""The store's time, as far as this process knows it."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime

from qo.clock import Clock
from qo.job import moment


class StoreTime:
    """Counts on from the last time that the store returned. May be used from any thread. With a clock that a test
    sets, it is that clock's time."""

    def __init__(
        self, now_ms: int = 0, *, monotonic: Callable[[], float] = time.monotonic, test_clock: Clock | None = None
    ) -> None:
        self._monotonic = monotonic
        self._test_clock = test_clock
        self.learn(now_ms)

    def learn(self, now_ms: int) -> None:
        self._learnt = now_ms, self._monotonic()  # one assignment: a reader in another thread sees both or neither

    def now(self) -> datetime:
        if self._test_clock is not None:
            return self._test_clock.now()
        now_ms, learnt_at = self._learnt
        return moment(now_ms + round((self._monotonic() - learnt_at) * 1000))
