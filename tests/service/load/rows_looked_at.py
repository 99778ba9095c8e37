"""How much a store looks at for an answer. It is counted and not timed, so that a busy machine changes nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import apsw
import pytest

from qo.store.redis import RedisStore
from qo.store.sqlite import SQLiteStore

T = TypeVar("T")
COUNTED = "SQLITE_STMTSTATUS_VM_STEP"
"""SQLite takes a few dozen steps for each row that it looks at, whether it answers it or passes it by."""
COUNTS_OF_PLACES = ("SELECT count(*) FROM job WHERE state = 'queued' AND key", "SELECT (SELECT coalesce(sum(waiting)")
"""Not counted here, although they grow with the line: the place of a job is counted over the keys of its priority, in
the index of the line, and no row is looked at. What they take is part of the times that the nightly test limits."""
Counter = Callable[[], Awaitable[int]]
"""Answers a number that grows with what the store has looked at so far."""


def counter_of(store: Any, monkeypatch: pytest.MonkeyPatch) -> Counter:
    if isinstance(store, RedisStore):
        return _commands_of(store)
    assert isinstance(store, SQLiteStore)
    return _steps_of(store, monkeypatch)


def _steps_of(store: SQLiteStore, monkeypatch: pytest.MonkeyPatch) -> Counter:
    steps = 0

    def note(event: dict[str, Any]) -> None:
        nonlocal steps
        if not event["sql"].startswith(COUNTS_OF_PLACES):
            steps += event["stmt_status"][COUNTED]

    def counted(read: Callable[[apsw.Connection], T]) -> Callable[[apsw.Connection], T]:
        def reading(db: apsw.Connection) -> T:
            db.trace_v2(apsw.SQLITE_TRACE_PROFILE, note)
            try:
                return read(db)
            finally:
                db.trace_v2(0, None)

        return reading

    in_thread, at_once = store.read, store.look
    monkeypatch.setattr(store, "read", lambda read: in_thread(counted(read)))
    monkeypatch.setattr(store, "look", lambda read: at_once(counted(read)))

    async def count() -> int:
        return steps

    return count


def _commands_of(store: RedisStore) -> Counter:
    """Rows are read 200 at a time, each time with one command; for each job that is answered there are some more."""

    async def count() -> int:
        lines = (await store.client.command("INFO", "commandstats")).decode().splitlines()
        calls = {line.partition(":")[0]: line.partition("calls=")[2].partition(",")[0] for line in lines if ":" in line}
        return sum(int(number) for name, number in calls.items() if name != "cmdstat_info")

    return count
