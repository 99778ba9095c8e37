"""The SQLite store on a clock that a test sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import apsw

from qo.store.sqlite.operations.catch_up import catch_up
from qo.store.sqlite.shared.step import Step
from qo.store.sqlite.store import SQLiteStore

T = TypeVar("T")


class ClockedSQLiteStore(SQLiteStore):
    """What has come due by the clock has happened before each call, those that only read too. No worker need run."""

    _caught_up_at: int | None = None

    async def _write(self, operation: Callable[[Step], T], *, urgent: bool = False) -> T:
        await self._catch_up()
        return await super()._write(_without_gap(operation), urgent=urgent)

    async def read(self, read: Callable[[apsw.Connection], T]) -> T:
        await self._catch_up()
        return await super().read(read)

    async def _catch_up(self) -> None:
        if (now := self._now()) == self._caught_up_at:
            return
        while (await super()._write(_without_gap(catch_up))).more:
            pass
        self._caught_up_at = now


def _without_gap(operation: Callable[[Step], T]) -> Callable[[Step], T]:
    """A jump of a real clock may be time in which no lease could be renewed, so it ends none. A test's clock moves in
    no other way."""

    def run(step: Step) -> T:
        step.set_counter("noted_at", step.now)
        return operation(step)

    return run
