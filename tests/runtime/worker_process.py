"""Programs that tests start as processes of their own, and how tests start them so that none outlives its test.

worker_process.py worker '{"url": ...}'     workers that run until they are told to stop
worker_process.py nursery '{"url": ...}'    forks, stops, continues and kills such workers, one order a line
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
from witness import ENTER, WRITE, Refused, Reporter

import qo
import qo.sync
from qo.store.redis import RedisStore
from qo.store.sqlite import SQLiteStore

AT_MOST_SECONDS = 90
"""a net for what never happens, wide enough for a machine that is busy with other things"""


FIRST_WORKER = "worker-1"
LIMITS = {"ports": 5, "render": 2, "mail": 3}
"""of the witnessed tasks; that of "ports" is for the test to set"""
TASKS = ("render", "serve", "mail", "serve", "mail")
"""the witnessed ones, in the order in which tests submit them"""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    url: str
    settings: dict[str, Any] = {}
    names: tuple[str, ...] = (FIRST_WORKER,)
    concurrency: int = 20
    diary: str = os.devnull
    """where every call of a handler is noted: job, attempt, worker"""
    witness_port: int | None = None
    sync: bool = False


class Orders(msgspec.Struct, frozen=True):
    """What a handler is to do; each says which of these it heeds. Files are how a test tells it to go on."""

    seconds: float = 0
    until: str | None = None
    """a file that has to be there before it goes on"""
    blocked_until: str | None = None
    """the same, while it keeps everything else in its process waiting"""
    while_there: str | None = None
    """a file without which it does no harm"""


# --- handlers -------------------------------------------------------------------------------------------------


def is_missing(path: str | None) -> bool:
    return path is not None and not os.path.exists(path)


async def until_there(path: str | None) -> None:
    while is_missing(path):  # noqa: ASYNC110 - the test makes it, in another process
        await asyncio.sleep(0.005)


def noting(worker: qo.Worker | qo.sync.Worker, diary_path: str) -> Callable[[qo.Context], None]:
    """What a handler calls to note that it was called; there for good, whatever becomes of the process."""
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
        """It ends the process, with every second attempt by SIGKILL."""
        note(ctx)
        if is_missing(data.while_there):
            return "survived"
        if ctx.attempt % 2:
            os._exit(1)
        os.kill(os.getpid(), signal.SIGKILL)
        threading.Event().wait()
        raise AssertionError


def register_witnessed_handlers(worker: qo.Worker, note: Callable[[qo.Context], None], witness: Reporter) -> None:
    """Handlers that tell the witness of every step."""

    async def witnessed(data: Orders, ctx: qo.Context) -> None:
        async with witness.inside(ctx):
            await asyncio.sleep(data.seconds)
            await witness.tell(WRITE, ctx)

    worker.task("render", max_concurrent=LIMITS["render"], groups=["ports"])(witnessed)
    worker.task("serve", groups=["ports"])(witnessed)
    worker.task("mail", max_concurrent=LIMITS["mail"])(witnessed)

    @worker.task
    async def waits_to_be_told(data: Orders, ctx: qo.Context) -> str:
        """It writes at its end, also when it ends because it is told that its lease is lost."""
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
        """In the first worker it lets nobody tell it anything, and returns as if all was well."""
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
"""qo imports these only when they are used; what the parent has imported, no child has to"""


class NurseryProgram:
    """Forking is quick where starting Python is not. Each order is answered once it has been carried out."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._pids: dict[str, int] = {}

    def run(self) -> None:
        """When the orders end, because the test has ended or has died, everything ends."""
        try:
            while order := sys.stdin.readline().split():
                verb, name = order
                getattr(self, verb)(name)
                tell(f"{verb} {name} done")
        finally:
            for name in tuple(self._pids):
                self.kill(name)

    def start(self, name: str) -> None:
        pid = os.fork()
        if pid:
            self._pids[name] = pid
            return
        try:
            sys.stdin.close()
            asyncio.run(work(msgspec.structs.replace(self._options, names=(name,))))
        except BaseException:
            traceback.print_exc()
        os._exit(1)  # it lives until it is killed, and what follows here is its parent's to do

    def stop(self, name: str) -> None:
        os.kill(self._pids[name], signal.SIGSTOP)
        _, status = os.waitpid(self._pids[name], os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            raise SystemExit(f"{name} ended before it was stopped; its error is above.")

    def wake(self, name: str) -> None:
        os.kill(self._pids[name], signal.SIGCONT)

    def kill(self, name: str) -> None:
        pid = self._pids.pop(name)
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
            raise SystemExit(f"{name} ended before it was killed; its error is above.")


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def die_with_the_test() -> None:
    """Nobody writes to a worker's standard input: that it ends means that the test is gone."""
    sys.stdin.read()
    os._exit(1)


def main(program: str, options: Options) -> None:
    logging.basicConfig(stream=sys.stderr if program == "nursery" else sys.stdout, format="%(message)s")
    if program == "nursery":
        NurseryProgram(options).run()
        return
    threading.Thread(target=die_with_the_test, daemon=True).start()
    if options.sync:
        work_synchronously(options)
    else:
        asyncio.run(work(options))


# --- in the tests ---------------------------------------------------------------------------------------------


class Running:
    """A program that runs beside the test; what it logs are its lines."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.pid = process.pid
        self._kept: deque[str] = deque()

    async def line_with(self, text: str, *, keeping_others: bool = False) -> str:
        """Its next line that has this text in it. Those before it are passed over, or kept for whoever asks next."""
        passed: list[str] = []
        async with asyncio.timeout(AT_MOST_SECONDS):
            while text not in (line := await self._next_line()):
                assert line, f"The program ended without telling {text!r}: {''.join(passed)}"
                passed.append(line)
        if keeping_others:
            self._kept.extendleft(reversed(passed))
        return line.strip()

    async def _next_line(self) -> str:
        assert self.process.stdout is not None
        return self._kept.popleft() if self._kept else (await self.process.stdout.readline()).decode()

    async def ended(self) -> int:
        async with asyncio.timeout(AT_MOST_SECONDS):
            return await self.process.wait()


class Nursery(Running):
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        super().__init__(process)
        self._turn = asyncio.Lock()

    async def order(self, verb: str, name: str) -> None:
        """Carried out when this returns."""
        assert self.process.stdin is not None
        async with self._turn:
            self.process.stdin.write(f"{verb} {name}\n".encode())
            # One that is woken may tell something before it is told here that it was woken.
            await self.line_with(f"{verb} {name} done", keeping_others=True)


@asynccontextmanager
async def started(options: Options) -> AsyncIterator[Running]:
    """A worker process for the block; at its end it is killed unless it has ended."""
    async with _program("worker", options) as process:
        yield Running(process)


@asynccontextmanager
async def nursery(options: Options) -> AsyncIterator[Nursery]:
    async with _program("nursery", options) as process:
        yield Nursery(process)


@asynccontextmanager
async def _program(name: str, options: Options) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        __file__,
        name,
        msgspec.json.encode(options).decode(),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # of its own session, so this is it and all that it forked
        await process.communicate()


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for something that other processes do, by looking."""
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
