"""Folding the log into the file, beside the writer.

SQLite would do it within the commit that made the log long, which after a burst of writes took ten milliseconds
where others take one. A thread with a connection of its own does it while the writer goes on. A log is begun anew
only when all of it has been folded in, so the writer then folds in the little that it has written meanwhile.
"""

from __future__ import annotations

import logging
import threading

import apsw

from qo.store.sqlite.file.connection import connect
from qo.store.sqlite.file.trouble import FileTrouble

log = logging.getLogger("qo.store")

PAGES = 1000
"""How many pages the log may have before it is folded in. SQLite's own default."""


class Checkpointer:
    def __init__(self, trouble: FileTrouble, writer: apsw.Connection) -> None:
        self._path = trouble.path
        self._db = connect(trouble, writes=True)
        self._asked_at = 0
        self._asked = threading.Event()
        self._nearly_done = False
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="qo-sqlite-checkpointer", daemon=True)
        self._thread.start()
        writer.set_wal_hook(self._after_commit)

    def close(self) -> None:
        self._closed = True
        self._asked.set()
        self._thread.join()

    def _after_commit(self, writer: apsw.Connection, _database: str, pages: int) -> int:
        """Called by SQLite in the writer's thread with the length of the log."""
        if pages < self._asked_at:
            self._asked_at = 0  # the log was begun anew
        if self._nearly_done:
            self._nearly_done = False
            self._fold_in(writer)
        elif pages - self._asked_at >= PAGES:
            self._asked_at = pages
            self._asked.set()
        return apsw.SQLITE_OK

    def _run(self) -> None:
        while True:
            self._asked.wait()
            if self._closed:
                break
            self._asked.clear()
            self._fold_in(self._db)
            self._nearly_done = True
        self._db.close()

    def _fold_in(self, db: apsw.Connection) -> None:
        try:
            db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.BusyError:
            pass  # another process does it
        except apsw.Error as error:
            # What was committed is safe in the log, so no operation has to fail.
            log.warning("the log of the store %s could not be folded into it: %s", self._path, error)
