"""Workers in processes of their own, for tests to start.

worker_process.py worker '{"url": ...}'     runs workers until a signal stops them
worker_process.py nursery '{"url": ...}'    forks, stops, wakes and kills such workers, one order a line
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

import qo
import qo.sync
from qo.store.redis import RedisStore
from qo.store.sqlite import SQLiteStore
from tests.nursery import Nursery, nursery, run_nursery
from tests.processes import AT_MOST_SECONDS, Process, command_of
from tests.worker.witness import ENTER, WRITE, Refused, Reporter

FIRST_WORKER = "worker-1"
LIMITS = {"ports": 5, "render": 2, "mail": 3}
"""The limits of the witnessed tasks. The test sets that of "ports"."""
TASKS = ("render", "serve", "mail", "serve", "mail")
"""The witnessed tasks, in the order in which tests submit them."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    url: str
    settings: dict[str, Any] = {}
    names: tuple[str, ...] = (FIRST_WORKER,)
    concurrency: int = 20
    diary: str = os.devnull
    """The file to which each call of a handler adds a line: job, attempt, worker."""
    witness_port: int | None = None
    sync: bool = False


class Orders(msgspec.Struct, frozen=True):
    """A handler's payload; each handler uses some of it. A test makes a file to let a handler go on."""

    seconds: float = 0
    until: str | None = None
    """The handler goes on when this file is there."""
    blocked_until: str | None = None
    """The handler blocks its event loop until this file is there."""
    while_there: str | None = None
    """The handler does harm only while this file is there."""


# --- handlers -------------------------------------------------------------------------------------------------


def is_missing(path: str | None) -> bool:
    return path is not None and not os.path.exists(path)


async def until_there(path: str | None) -> None:
    while is_missing(path):  # noqa: ASYNC110 - the test makes it, in another process
        await asyncio.sleep(0.005)


def noting(worker: qo.Worker | qo.sync.Worker, diary_path: str) -> Callable[[qo.Context], None]:
    """The function by which a handler notes its call. The note is there even when the process is killed."""
    diary = os.open(diary_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(ctx: qo.Context) -> None:
        os.write(diary, f"{ctx.job.id} {ctx.attempt} {worker.name}\n".encode())

    return note


def register_handlers(worker: qo.Worker | qo.sync.Worker, note: Callable[[qo.Context], None]) -> None:
    @worker.task
    async def short(data: Orders, ctx: qo.Context) -> None:
        note(ctx)
        await until_there(data.until)
        await asyncio.sleep(data.seconds)

    @worker.task
    async def endless(data: Any, ctx: qo.Context) -> None:
        note(ctx)
        await asyncio.Event().wait()

    @worker.task
    def endless_thread(data: Any, ctx: qo.Context) -> None:
        note(ctx)
        threading.Event().wait()

    @worker.task
    def deadly(data: Orders, ctx: qo.Context) -> str:
        """Ends the process, every second attempt by SIGKILL."""
        note(ctx)
        if is_missing(data.while_there):
            return "survived"
        if ctx.attempt % 2:
            os._exit(1)
        os.kill(os.getpid(), signal.SIGKILL)
        threading.Event().wait()
        raise AssertionError


def register_witnessed_handlers(worker: qo.Worker, note: Callable[[qo.Context], None], witness: Reporter) -> None:
    """Handlers that report every step to the witness."""

    async def witnessed(data: Orders, ctx: qo.Context) -> None:
        async with witness.inside(ctx):
            await asyncio.sleep(data.seconds)
            await witness.tell(WRITE, ctx)

    worker.task("render", max_concurrent=LIMITS["render"], groups=["ports"])(witnessed)
    worker.task("serve", groups=["ports"])(witnessed)
    worker.task("mail", max_concurrent=LIMITS["mail"])(witnessed)

    @worker.task
    async def waits_to_be_told(data: Orders, ctx: qo.Context) -> str:
        """Writes at its end, also when it is cancelled because its lease was lost."""
        async with witness.inside(ctx):
            try:
                note(ctx)
                await until_there(data.until)
            finally:
                with suppress(Refused):
                    await witness.tell(WRITE, ctx)
        return f"attempt {ctx.attempt}"

    @worker.task
    async def blocks_the_loop(data: Orders, ctx: qo.Context) -> str:
        """In the first worker it blocks the event loop, so it cannot be cancelled, and returns as if all was well."""
        blocks = worker.name == FIRST_WORKER and is_missing(data.blocked_until)
        await witness.tell(ENTER, ctx)
        note(ctx)  # from here on it may be stopped, and without a pause it gets to the end
        if blocks:
            while is_missing(data.blocked_until):
                time.sleep(0.005)  # noqa: ASYNC251 - that is what a careless handler does
            return "too late"
        await until_there(data.until)
        return f"attempt {ctx.attempt}"


# --- workers --------------------------------------------------------------------------------------------------


async def work(options: Options) -> None:
    async with await qo.connect(options.url, settings=options.settings) as queue:
        workers = [qo.Worker(queue, name, concurrency=options.concurrency) for name in options.names]
        for worker in workers:
            note = noting(worker, options.diary)
            register_handlers(worker, note)
            if options.witness_port is not None:
                register_witnessed_handlers(worker, note, await Reporter.connect(options.witness_port, worker.name))
        await asyncio.gather(*(worker.run() for worker in workers))


def work_synchronously(options: Options) -> None:
    with qo.sync.connect(options.url, settings=options.settings) as queue:
        worker = qo.sync.Worker(queue, options.names[0], concurrency=options.concurrency)
        register_handlers(worker, noting(worker, options.diary))
        worker.run()


IMPORTED_BEFORE_FORKING = (qo.connect, qo.Worker, SQLiteStore, RedisStore)
"""qo imports these only when they are used; a forked process need not import them again."""


def die_with_the_test() -> None:
    """No test writes to a worker's standard input. When it ends, the test process is gone."""
    sys.stdin.read()
    os._exit(1)


def main(program: str, options: Options) -> None:
    logging.basicConfig(stream=sys.stderr if program == "nursery" else sys.stdout, format="%(message)s")
    if program == "nursery":
        run_nursery(lambda name: work(msgspec.structs.replace(options, names=(name,))))
        return
    threading.Thread(target=die_with_the_test, daemon=True).start()
    if options.sync:
        work_synchronously(options)
    else:
        asyncio.run(work(options))


# --- in the tests ---------------------------------------------------------------------------------------------


@asynccontextmanager
async def started(options: Options) -> AsyncIterator[Process]:
    """A worker process for the block. Its lines are what it logs."""
    with Process(_command("worker", options)) as process:
        yield process


def workers_nursery(options: Options) -> AbstractAsyncContextManager[Nursery]:
    return nursery(_command("nursery", options))


def _command(program: str, options: Options) -> list[str]:
    return command_of("tests.worker.worker_process", program, msgspec.json.encode(options).decode())


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Poll for something that another process does."""
    async with asyncio.timeout(AT_MOST_SECONDS):
        while not await condition():  # noqa: ASYNC110 - no event can tell of it
            await asyncio.sleep(0.01)


def diary_of(path: Path) -> list[tuple[str, int, str]]:
    """Every call of a handler: job, attempt, worker."""
    if not path.exists():
        return []
    entries = (line.split() for line in path.read_text().splitlines())
    return [(job_id, int(attempt), worker) for job_id, attempt, worker in entries]


if __name__ == "__main__":
    main(sys.argv[1], msgspec.json.decode(sys.argv[2], type=Options))
