"""What time it is for the store, as far as this process knows."""

from __future__ import annotations

import time
from datetime import datetime

from qo.job import moment


class StoreTime:
    """Goes on from the time that the store told last. May be used from any thread."""

    def __init__(self, now_ms: int = 0) -> None:
        self.learn(now_ms)

    def learn(self, now_ms: int) -> None:
        self._told = now_ms, time.monotonic()  # one assignment: a reader in another thread sees both or neither

    def now(self) -> datetime:
        now_ms, told_at = self._told
        return moment(now_ms + round((time.monotonic() - told_at) * 1000))
