"""The writer of a store in memory. It has no thread: each operation runs at once, in its caller's turn.

Another thread would save nothing here, because a step in memory has nothing to wait for.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

import apsw

from qo.errors import StoreUnavailable
from qo.store.sqlite.file.trouble import FileTrouble

T = TypeVar("T")


class InlineWriter:
    """Like `Writer`, on a connection of its own. May be used from several event loops and threads at once: each
    operation is one transaction, and they run one after another, renewals first."""

    def __init__(self, db: apsw.Connection, trouble: FileTrouble, *, after_commit: Callable[[], None]) -> None:
        self._db = db
        self._trouble = trouble
        self._after_commit = after_commit
        self._refusal: str | None = None
        self._turns = threading.Condition()
        self._is_busy = False
        self.urgent_waiters = 0
        """How many threads wait to run an urgent operation."""

    async def call(self, run: Callable[[apsw.Connection], T], *, urgent: bool = False) -> T:
        """Run an operation. `urgent`: before those of other threads, which may be busy with one after another."""
        self.check_open()
        self._take_turn(urgent=urgent)
        try:
            answer = self._run(run)
        finally:
            self._end_turn()
        # A loop of calls must not keep the event loop from its other tasks, and calls that come together gather.
        await asyncio.sleep(0)
        return answer

    @property
    def is_open(self) -> bool:
        return self._refusal is None

    def check_open(self) -> None:
        if self._refusal is not None:
            raise StoreUnavailable(self._refusal)

    def refuse_more(self, reason: str) -> None:
        self._refusal = reason

    async def finish(self) -> None:
        """Close the connection. Harmless when it is closed."""
        self._take_turn(urgent=False)
        self._db.close()
        self._end_turn()

    def _take_turn(self, *, urgent: bool) -> None:
        """Wait until no other thread runs an operation."""
        with self._turns:
            self.urgent_waiters += urgent
            while self._is_busy or (self.urgent_waiters and not urgent):
                self._turns.wait()
            self.urgent_waiters -= urgent
            self._is_busy = True

    def _end_turn(self) -> None:
        with self._turns:
            self._is_busy = False
            self._turns.notify_all()

    def _run(self, run: Callable[[apsw.Connection], T]) -> T:
        self.check_open()  # another thread may have closed it before this turn
        changes_before = self._db.total_changes()
        self._db.execute("BEGIN IMMEDIATE")
        try:
            answer = run(self._db)
        except BaseException as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            if isinstance(error, apsw.Error):
                raise self._trouble.explain(error) from error
            raise
        self._db.execute("COMMIT")
        if self._db.total_changes() != changes_before:
            self._after_commit()
        return answer
