"""The embedded store. Same operation, same file name as in every other store."""

from qo.store.sqlite.clocked import ClockedSQLiteStore
from qo.store.sqlite.store import SQLiteStore

__all__ = ["ClockedSQLiteStore", "SQLiteStore"]
