"""A recorder in a process of its own, which kills itself when it has come to a named step.

python -m tests.history.victim STEP STORE_URL NAMESPACE DATABASE_URL
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Coroutine
from typing import Any

import asyncpg

from qo.history.recorder import Recorder
from qo.history.writing import Writer, Written
from qo.queue.queue import Queue
from qo.settings import load_settings
from qo.store.outbox import OutboxEntry, OutboxPortion
from qo.store.redis.outbox import RedisOutbox
from qo.store.redis.store import RedisStore
from tests.history.staging import IDLE_SECONDS, LEASE_SECONDS

STEPS = ("before_reading", "after_reading", "before_writing", "while_writing", "after_commit", "after_removing")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def die_while_waiting(call: Coroutine[Any, Any, Written], connection: Any, *, url: str) -> None:
    """Die when the server has the statement and waits for a lock of this process, which ends with it."""
    process = connection.get_server_pid()
    blocking = await asyncpg.connect(url)
    await blocking.execute("BEGIN; SELECT FROM history.recorder FOR UPDATE")
    writing = asyncio.create_task(call)
    while not await blocking.fetchval("SELECT cardinality(pg_blocking_pids($1)) > 0", process):
        assert not writing.done()
    die()


def die_at(step: str) -> None:
    """Make a recorder of this process die there, the first time that it has something to record."""
    read, call, write = RedisOutbox.next, Writer._call, Writer.write  # noqa: SLF001 - the steps between the public ones

    async def dying_read(self: RedisOutbox, recorded: OutboxEntry | None, **wanted: Any) -> OutboxPortion:
        if step == "before_reading":
            die()
        portion = await read(self, recorded, **wanted)
        if (step == "after_reading" and portion.entries) or (step == "after_removing" and recorded is not None):
            die()
        return portion

    async def dying_call(self: Writer, connection: Any, records: Any, refused: Any) -> Written:
        if step == "before_writing" and records:
            die()
        written = await call(self, connection, records, refused)
        if step == "while_writing" and records:
            die()
        return written

    async def dying_write(self: Writer, records: Any) -> Written:
        written = await write(self, records)
        if step == "after_commit":
            die()
        return written

    RedisOutbox.next, Writer._call, Writer.write = dying_read, dying_call, dying_write  # type: ignore[method-assign]  # noqa: SLF001


async def main(step: str, url: str, namespace: str, database: str) -> None:
    die_at(step)
    store = await RedisStore.open(url, namespace=namespace)
    queue = Queue(store, load_settings({"history": {"url": database}}, environ={}))
    await Recorder(queue, database, lease_seconds=LEASE_SECONDS, idle_seconds=IDLE_SECONDS).run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
