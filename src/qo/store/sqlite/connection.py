"""Connections to one file, each set up the same way."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import apsw

from qo.errors import StoreUnavailable

BUSY_SECONDS = 30.0
BUSY_STEP_SECONDS = 0.0005
STATEMENTS_CACHED = 400


def connect(path: str, *, writes: bool) -> apsw.Connection:
    """Open a connection; a reader sees what was last committed and never waits for a writer."""
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE if writes else apsw.SQLITE_OPEN_READONLY
    try:
        db = apsw.Connection(path, flags=flags, statementcachesize=STATEMENTS_CACHED)
        db.set_busy_handler(_wait_while_busy())
        if writes:
            db.pragma("journal_mode", "wal")
            # An acknowledged job must survive power loss, so every commit reaches the disk.
            db.pragma("synchronous", "full")
        db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        db.pragma("cache_size", -65536)
        db.pragma("temp_store", "memory")
    except apsw.Error as error:
        raise StoreUnavailable(
            f"{path} cannot be opened: {error}. Check the path, its folder's rights and the disk."
        ) from error
    return db


@contextmanager
def telling_of_failures(path: str) -> Iterator[None]:
    """What SQLite raises about the file, as a `StoreUnavailable` that says what to look at."""
    try:
        yield
    except apsw.Error as error:
        raise failure_of(path, error) from error


def failure_of(path: str, error: apsw.Error) -> StoreUnavailable:
    if isinstance(error, apsw.ReadOnlyError):
        return StoreUnavailable(
            f"{path} cannot be written ({error}); give qo the right to write the file and its folder."
        )
    return StoreUnavailable(f"{path} cannot be used ({error}); check the path, its folder's rights and the disk.")


def _wait_while_busy() -> Callable[[int], bool]:
    # SQLite's own waiting grows to 100 ms a step; between processes that take turns every millisecond
    # that would leave the file idle most of the time.
    started = 0.0

    def wait(attempt: int) -> bool:
        nonlocal started
        if attempt == 0:
            started = time.monotonic()
        elif time.monotonic() - started > BUSY_SECONDS:
            return False
        time.sleep(BUSY_STEP_SECONDS)
        return True

    return wait
