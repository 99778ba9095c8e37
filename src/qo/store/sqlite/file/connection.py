"""Connections to one file, each set up the same way."""

from __future__ import annotations

import apsw

from qo.errors import StoreUnavailable
from qo.store.sqlite.file.trouble import FileTrouble

STATEMENTS_CACHED = 400


def connect(trouble: FileTrouble, *, writes: bool) -> apsw.Connection:
    """Open a connection; a reader sees what was last committed and never waits for a writer."""
    path = trouble.path
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE if writes else apsw.SQLITE_OPEN_READONLY
    try:
        db = apsw.Connection(trouble.file, flags=flags, statementcachesize=STATEMENTS_CACHED)
        trouble.wait_in(db)
        if writes:
            db.pragma("journal_mode", "wal")
            # An acknowledged job must survive power loss, so every commit reaches the disk.
            db.pragma("synchronous", "full")
        db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        db.pragma("cache_size", -65536)
        db.pragma("temp_store", "memory")
    except apsw.BusyError as error:
        raise trouble.explain(error) from error
    except apsw.Error as error:
        raise StoreUnavailable(
            f"{path} cannot be opened: {error}. Check the path, its folder's rights and the disk."
        ) from error
    return db
