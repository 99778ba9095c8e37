"""The file: its connections, and how operations get at them. Writes go to one thread, reads to a few.

A store in memory has one connection and no threads.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from typing import TypeVar

import apsw

from qo.clock import ReadClock, system_ms
from qo.errors import StoreUnavailable
from qo.forking import leave_behind, when_forked
from qo.store.sqlite.file.changes import Changes
from qo.store.sqlite.file.checkpoint import Checkpointer
from qo.store.sqlite.file.connection import connect
from qo.store.sqlite.file.inline_writer import InlineWriter
from qo.store.sqlite.file.schema import prepare
from qo.store.sqlite.file.trouble import MEMORY, FileIdentity, FileTrouble
from qo.store.sqlite.file.writer import Writer
from qo.store.sqlite.shared.step import Step
from qo.store.sqlite.shared.view import View
from qo.threads import DaemonThreads, in_thread
from qo.values import Bounds

T = TypeVar("T")
READERS = 2

_open_elsewhere: set[tuple[int, int]] = set()
"""Files that were open when this process was forked. SQLite remembers them, and which of them are locked, but the locks
are those of the other process: not even a new connection may be opened here."""


class Access:
    def __init__(self, path: str, bounds: Bounds, trouble: FileTrouble | None = None) -> None:
        self.path = path
        self.bounds = bounds
        self.clock: ReadClock | None = None
        self._trouble = trouble or FileTrouble(path)
        self._in_memory = path == MEMORY
        if not self._in_memory and os.path.exists(path) and _identity(path) in _open_elsewhere:
            raise StoreUnavailable(self._forked())
        if self._in_memory:
            self.location = "the memory of this process"
            self.promise = "memory: jobs live as long as this process"
        else:
            self.location = location_of(path)
            self.promise = f"{self.location}: an acknowledged job survives any crash and a power loss"
        db = self._prepared()
        self._checkpointer = None if self._in_memory else Checkpointer(self._trouble, db)
        self._watch = None if self._in_memory else connect(self._trouble, writes=False)
        self._watch_lock = threading.Lock()  # several event loops may wait at once, and a connection is for one thread
        self.changes = Changes(self._data_version if self._watch else None)
        self.writer: Writer | InlineWriter
        if self._in_memory:
            self.writer = InlineWriter(db, self._trouble, after_commit=self.changes.notify)
        else:
            identity = FileIdentity(self._trouble)
            self.writer = Writer(db, self._trouble, identity=identity, after_commit=self.changes.notify)
        self._connections: list[apsw.Connection] = []
        self._readers = DaemonThreads(READERS, name="qo-sqlite-reader")
        self._reader = threading.local()
        self._identity = None if self._in_memory else _identity(path)
        self._is_forked = False
        when_forked(self, Access._begin_anew)

    def _prepared(self) -> apsw.Connection:
        """The writer's connection to a file of the present schema."""
        db = connect(self._trouble, writes=True)
        try:
            prepare(db, self.path)
        except apsw.Error as error:
            db.close()
            raise self._trouble.explain(error) from error
        return db

    def _begin_anew(self) -> None:
        if not self.writer.is_open:
            return
        self._is_forked = True
        self.writer.refuse_more(self._forked())
        leave_behind(self)
        if self._identity is not None:
            _open_elsewhere.add(self._identity)

    def _forked(self) -> str:
        if self._in_memory:
            return (
                "The store memory:// is in the memory of the process from which this one was forked; connect again "
                "here, or use a store that both can reach."
            )
        return (
            f"The store {self.path} was open in the process from which this one was forked, and SQLite cannot use a "
            "file in both; connect only after forking, in each process, or start processes without forking."
        )

    async def close(self) -> None:
        """Finish what has arrived, then let go of the file. Closing twice is harmless."""
        if self._is_forked:
            return  # it would be closed for the other process
        self.writer.refuse_more(f"The store {self.path} is closed; connect again.")
        if not self._in_memory:
            await in_thread(self._readers.shutdown)
        for db in (*self._connections, *([self._watch] if self._watch else [])):
            db.close()
        if self._checkpointer is not None:
            await in_thread(self._checkpointer.close)
        # The writer's connection goes last: only one that may write can fold the log into the file.
        await self.writer.finish()

    async def _write(self, operation: Callable[[Step], T], *, urgent: bool = False) -> T:
        def run(db: apsw.Connection) -> T:
            step = Step(db, self._now(), self.bounds)
            answer = operation(step)
            step.end()
            return answer

        return await self.writer.call(run, urgent=urgent)

    def _now(self) -> int:
        return system_ms() if self.clock is None else self.clock()

    async def _view(self, read: Callable[[View], T]) -> T:
        return await self.read(lambda db: read(View(db, self._now(), self.bounds)))

    async def read(self, read: Callable[[apsw.Connection], T]) -> T:
        """Read one consistent state in a thread for readers; in memory, in the caller's turn."""
        if self._in_memory:
            return await self.writer.call(read)
        self.writer.check_open()
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read_file, read)

    def _read_file(self, read: Callable[[apsw.Connection], T]) -> T:
        db: apsw.Connection | None = getattr(self._reader, "db", None)
        if db is None:
            db = self._reader.db = connect(self._trouble, writes=False)
            self._connections.append(db)
        return self._reading(lambda: _in_one_state(db, read))

    async def look(self, read: Callable[[apsw.Connection], T]) -> T:
        """Read something small at once: handing it to another thread takes longer than the few dozen microseconds
        that it takes, and somebody waits to be woken."""
        if self._in_memory:
            return await self.writer.call(read)
        return self._watching(lambda db: _in_one_state(db, read))

    def _data_version(self) -> int:
        return self._watching(lambda db: int(db.execute("PRAGMA data_version").get))

    def _watching(self, read: Callable[[apsw.Connection], T]) -> T:
        self.writer.check_open()
        watch = self._watch
        assert watch is not None
        with self._watch_lock:
            return self._reading(lambda: read(watch))

    def _reading(self, read: Callable[[], T]) -> T:
        try:
            return read()
        except apsw.Error as error:
            raise self._trouble.explain(error, done="nothing was read") from error


def _in_one_state(db: apsw.Connection, read: Callable[[apsw.Connection], T]) -> T:
    """Without a transaction, each statement would see what other processes have committed before it."""
    db.execute("BEGIN")
    try:
        return read(db)
    finally:
        db.execute("COMMIT")


def _identity(path: str) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_dev, found.st_ino


def location_of(path: str) -> str:
    return f"SQLite file {os.path.abspath(path)}"
