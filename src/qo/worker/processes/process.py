"""One process of a worker, as the worker sees it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable

import msgspec

from qo.forking import let_go_of, when_forked
from qo.threads import in_thread
from qo.worker.processes.failures import restore
from qo.worker.processes.killing import kill_group, kill_with_children
from qo.worker.processes.messages import (
    LENGTH_BYTES,
    Answer,
    Extend,
    FromProcess,
    Raised,
    Report,
    Run,
    decode_in_worker,
    packed,
)

Reply = Callable[[Report | Extend], Awaitable[Answer]]
RETIRE_SECONDS = 1.0
PROGRAM = (
    "import sys; sys.path[:] = {path!r}; from qo.worker.processes.child import main; main({connection}, {lifeline})"
)


class ProcessEnded(Exception):
    """The process of a handler has ended before the handler did."""


class WorkerProcess:
    """Runs one job at a time. Made by `start`, ended by `end`."""

    def __init__(
        self,
        started: subprocess.Popen[bytes],
        lifeline: socket.socket,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._started = started
        self._lifeline = lifeline
        self._reader = reader
        self._writer = writer
        self._exited = asyncio.ensure_future(in_thread(_wait, started))
        self.jobs = 0
        """How many jobs it has run."""
        self.is_idle = True
        """It waits for its next job."""
        when_forked(self, WorkerProcess._leave_to_other_process)

    @classmethod
    async def start(cls) -> WorkerProcess:
        here, there = socket.socketpair()
        lifeline, lifeline_there = socket.socketpair()
        try:
            with there, lifeline_there:
                started = _popen(there, lifeline_there)
            try:
                reader, writer = await asyncio.open_unix_connection(sock=here)
            except BaseException:
                kill_with_children(started.pid)
                started.wait()
                raise
        except BaseException:
            here.close()
            lifeline.close()
            raise
        return cls(started, lifeline, reader, writer)

    def _leave_to_other_process(self) -> None:
        """In a process that is forked from the worker, which would keep this one alive after the worker's end."""
        let_go_of(self._lifeline.fileno())
        let_go_of(self._writer.get_extra_info("socket").fileno())

    @property
    def pid(self) -> int:
        return self._started.pid

    @property
    def is_alive(self) -> bool:
        return not self._exited.done()

    async def run(self, order: Run, reply: Reply) -> msgspec.Raw | None:
        """Run a job and return its result as JSON. Raises what the handler raised, or `ProcessEnded`."""
        self.jobs += 1
        self.is_idle = False
        self._writer.write(packed(order))
        while isinstance(message := await self._next_message(), Report | Extend):
            self._writer.write(packed(await reply(message)))
        self.is_idle = True
        if isinstance(message, Raised):
            raise restore(message.failure)
        return None if message.result is None else msgspec.Raw(message.result)

    async def retire(self) -> None:
        """Let an idle process end by itself, as a program does, or kill it when that takes too long."""
        self._writer.close()
        await asyncio.wait([self._exited], timeout=RETIRE_SECONDS)
        await self.end()

    async def end(self) -> None:
        """Kill the process with everything that it has started, and return when it is gone."""
        if self.is_alive:
            kill_with_children(self.pid)
        self._writer.close()
        try:
            await asyncio.shield(self._exited)
        finally:
            self._lifeline.close()

    async def _next_message(self) -> FromProcess:
        reading = asyncio.ensure_future(self._read())
        try:
            # Its end too, because a process that it has forked may keep the connection open.
            await asyncio.wait([reading, self._exited], return_when=asyncio.FIRST_COMPLETED)
            if reading.done() and not isinstance(reading.exception(), EOFError | ConnectionError):
                return reading.result()
            code = await asyncio.shield(self._exited)
        finally:
            reading.cancel()
            await asyncio.wait([reading])
        raise ProcessEnded(f"The process of the handler ended {_how(code)} before the handler returned.")

    async def _read(self) -> FromProcess:
        length = int.from_bytes(await self._reader.readexactly(LENGTH_BYTES), "big")
        message: FromProcess = decode_in_worker(await self._reader.readexactly(length))
        return message


def _popen(connection: socket.socket, lifeline: socket.socket) -> subprocess.Popen[bytes]:
    path = [entry for entry in sys.path if isinstance(entry, str)]
    program = PROGRAM.format(path=path, connection=connection.fileno(), lifeline=lifeline.fileno())
    return subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.DEVNULL,
        pass_fds=(connection.fileno(), lifeline.fileno()),
        start_new_session=True,  # a group of its own, which is killed as a whole; and Ctrl-C is for the worker
    )


def _wait(started: subprocess.Popen[bytes]) -> int:
    """Return the exit code when the process has ended. What it has started in its group goes with it."""
    if hasattr(os, "waitid"):
        # While it has not been waited for, nobody else gets its id, so this is the right group.
        os.waitid(os.P_PID, started.pid, os.WEXITED | os.WNOWAIT)
        kill_group(started.pid)
    return started.wait()


def _how(code: int) -> str:
    if code >= 0:
        return f"with exit code {code}"
    try:
        return f"by {signal.Signals(-code).name}"
    except ValueError:
        return f"by signal {-code}"
