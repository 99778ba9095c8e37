"""The one thread of a process that writes to the file.

Group commit: while one transaction is on its way to the disk, the next operations gather and go together.
Each runs in a savepoint of its own, so that one that fails takes nothing with it, and each is answered only
after COMMIT. An idle writer adds no wait; a busy one shares each disk write among all that came meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import apsw

from qo.errors import StoreUnavailable
from qo.store.sqlite.file.trouble import FileIdentity, FileTrouble
from qo.threads import in_thread

log = logging.getLogger("qo.store")

T = TypeVar("T")
OPERATIONS_PER_COMMIT = 64
YIELD_SECONDS = 0.001


class _Operation:
    __slots__ = ("answer", "error", "future", "loop", "run")

    def __init__(self, run: Callable[[apsw.Connection], Any], loop: asyncio.AbstractEventLoop) -> None:
        self.run = run
        self.loop = loop
        self.future: asyncio.Future[Any] = loop.create_future()
        self.answer: Any = None
        self.error: BaseException | None = None


class Writer:
    def __init__(
        self,
        db: apsw.Connection,
        trouble: FileTrouble,
        *,
        identity: FileIdentity,
        after_commit: Callable[[], None],
    ) -> None:
        self._db = db
        self._trouble = trouble
        self._identity = identity
        self._after_commit = after_commit
        self._arrivals: SimpleQueue[tuple[_Operation, bool] | None] = SimpleQueue()
        self._refusal: str | None = None
        self._seen_version = 0
        self._thread = threading.Thread(target=self._run, name="qo-sqlite-writer", daemon=True)
        self._thread.start()

    async def call(self, run: Callable[[apsw.Connection], T], *, urgent: bool = False) -> T:
        """Run an operation on the writer's connection; its answer is durable. `urgent`: before all that wait."""
        self.check_open()
        operation = _Operation(run, asyncio.get_running_loop())
        self._arrivals.put((operation, urgent))
        answer: T = await operation.future
        return answer

    @property
    def is_open(self) -> bool:
        return self._refusal is None

    def check_open(self) -> None:
        if self._refusal is not None:
            raise StoreUnavailable(self._refusal)

    def refuse_more(self, reason: str) -> None:
        self._refusal = reason
        self._trouble.give_up_soon()

    async def finish(self) -> None:
        """Carry out the operations that have arrived, then end the thread and close the connection. Finishing twice is
        harmless."""
        self._arrivals.put(None)
        await in_thread(self._thread.join)

    def _run(self) -> None:
        waiting: deque[_Operation] = deque()
        open_for_more = True
        while waiting or open_for_more:
            if not waiting:
                open_for_more = self._admit(waiting, self._arrivals.get())
            try:
                while open_for_more:
                    open_for_more = self._admit(waiting, self._arrivals.get_nowait())
            except Empty:
                pass
            if waiting:
                self._commit([waiting.popleft() for _ in range(min(len(waiting), OPERATIONS_PER_COMMIT))])
        self._db.close()

    @staticmethod
    def _admit(waiting: deque[_Operation], arrival: tuple[_Operation, bool] | None) -> bool:
        if arrival is None:
            return False
        operation, urgent = arrival
        if urgent:
            waiting.appendleft(operation)
        else:
            waiting.append(operation)
        return True

    def _commit(self, operations: list[_Operation]) -> None:
        changes_before = self._db.total_changes()
        try:
            self._db.execute("BEGIN IMMEDIATE")
            for operation in operations:
                self._run_one(operation)
            self._identity.check()
            self._db.execute("COMMIT")
            self._trouble.over()
        except Exception as error:
            # Whatever it was, the thread must live on: all later operations wait for it.
            self._fail_all(operations, error)
        self._deliver(operations)
        if self._db.total_changes() != changes_before:
            self._after_commit()
        self._yield_to_other_processes()

    def _run_one(self, operation: _Operation) -> None:
        self._db.execute("SAVEPOINT operation")
        try:
            operation.answer = operation.run(self._db)
        except Exception as error:
            if not self._db.in_transaction:
                raise  # SQLite has rolled back everything, as it does when the disk is full
            # The caller's mistake, ours, or a file that cannot be written: either way it is this operation's alone.
            operation.error = self._trouble.explain(error) if isinstance(error, apsw.Error) else error
            self._db.execute("ROLLBACK TO operation")
        self._db.execute("RELEASE operation")

    def _fail_all(self, operations: list[_Operation], error: Exception) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")
        told = self._trouble.explain(error)
        for operation in operations:
            operation.error = type(told)(*told.args)  # each its own: raising adds a traceback to it

    @staticmethod
    def _deliver(operations: list[_Operation]) -> None:
        by_loop: dict[asyncio.AbstractEventLoop, list[_Operation]] = {}
        for operation in operations:
            by_loop.setdefault(operation.loop, []).append(operation)
        for loop, finished in by_loop.items():
            try:
                loop.call_soon_threadsafe(_settle, finished)
            except RuntimeError:
                # The loop has been closed, so no caller is left. What was written stays written.
                if unheard := sum(not operation.future.cancelled() for operation in finished):
                    log.warning("%d answers of the store found their event loop closed", unheard)

    def _yield_to_other_processes(self) -> None:
        # A process that waits for the file's lock looks every half millisecond only; without a pause, a busy process
        # would take the lock again each time.
        version = self._db.execute("PRAGMA data_version").get
        if version != self._seen_version:
            self._seen_version = version
            time.sleep(YIELD_SECONDS)


def _settle(operations: list[_Operation]) -> None:
    for operation in operations:
        if operation.future.cancelled():
            continue
        if operation.error is not None:
            operation.future.set_exception(operation.error)
        else:
            operation.future.set_result(operation.answer)
