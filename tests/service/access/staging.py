"""What a test needs to set the time, and to stage failures and races in a store."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from datetime import datetime
from itertools import count
from typing import Any, cast

from qo.errors import StoreAway
from qo.job import moment
from qo.loops.system import System
from qo.store.contract import Store
from qo.values import Audited

START_MS = 1_900_000_000_000
Step = Callable[[], Awaitable[None]]


class Time:
    """Both clocks of a server. They stand still until the test moves them."""

    def __init__(self) -> None:
        self.ms = START_MS
        self.monotonic = 1000.0
        secrets = count()
        self.system = System(
            clock=lambda: self.ms,
            monotonic=lambda: self.monotonic,
            new_secret=lambda: hashlib.sha256(b"secret %d" % next(secrets)).digest(),
        )

    def forward(self, seconds: float) -> None:
        self.ms += round(seconds * 1000)
        self.monotonic += seconds

    @property
    def now(self) -> datetime:
        return moment(self.ms)


async def away() -> None:
    raise StoreAway("The store is away; try again.")


class StagedStore:
    """Passes calls about records on to a store, counts them, and awaits what the test put before and after them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.reads = 0
        self.writes: list[str] = []
        self.before_read: Step | None = None
        self.after_read: Step | None = None
        self.before_write: Step | None = None
        self.after_write: Step | None = None

    @property
    def as_store(self) -> Store:
        return cast(Store, self)

    async def records(self, name: str | None = None, *, prefix: str = "") -> Any:
        self.reads += 1
        if self.before_read is not None:
            await self.before_read()
        answer = await self._store.records(name, prefix=prefix)
        if self.after_read is not None:
            await self.after_read()
        return answer

    async def put_record(self, name: str, value: Any, *, version: int, audited: Audited | None = None) -> bool:
        if self.before_write is not None:
            await self.before_write()
        self.writes.append(name)
        written = await self._store.put_record(name, value, version=version, audited=audited)
        if self.after_write is not None:
            await self.after_write()
        return written
