"""Processes that tests start beside themselves: one way to start, hear, signal and end them.

A process gets a session of its own. At the end of its `with` block it is killed together with everything that it
started, and its output is printed, which pytest shows for a test that failed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parents[1]
AT_MOST_SECONDS = 90
"""Limits a wait for something that never happens; wide enough for a machine that is busy with other things."""


def command_of(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of the tests, such as `tests.worker.worker_process`."""
    return [sys.executable, "-m", module, *arguments]


def program(text: str, *arguments: str) -> list[str]:
    """The command that runs this Python text."""
    return [sys.executable, "-c", text, *arguments]


def environment() -> dict[str, str]:
    """This process's environment, with the tests importable from any folder."""
    searched = [str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, searched))}


class Process:
    """A process and the lines that it has written so far. `options` are those of `subprocess.Popen`."""

    def __init__(self, command: Sequence[str | Path], **options: Any) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "encoding": "utf-8", "errors": "replace"}
        self._process: subprocess.Popen[str] = subprocess.Popen(
            command, start_new_session=True, **{**pipes, "env": environment(), **options}
        )
        self.pid = self._process.pid
        self.lines: list[str] = []
        self._unread: list[str] = []
        self._is_over = False
        self._written = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)  # the process and all that it started: its session is its own
        self.ends()
        sys.stdout.write(self.output())

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._written:
                self.lines.append(line)
                self._unread.append(line)
                self._written.notify_all()
        with self._written:
            self._is_over = True
            self._written.notify_all()

    def until(self, text: str, *, keeping_others: bool = False) -> str:
        """The next line with this text, as soon as it is written. Lines before it are dropped, or kept for later."""

        def position() -> int | None:
            return next((number for number, line in enumerate(self._unread) if text in line), None)

        with self._written:
            self._written.wait_for(lambda: self._is_over or position() is not None, AT_MOST_SECONDS)
            found = position()
            assert found is not None, f"{text!r} did not come; this did:\n{self.output()}"
            line = self._unread.pop(found)
            if not keeping_others:
                del self._unread[:found]
            return line.strip()

    def say(self, line: str) -> None:
        """Write a line to its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def freeze(self) -> None:
        """Stop it with SIGSTOP. Returns when it stands still; SIGCONT lets it go on."""
        self.signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def ends(self) -> int:
        """Wait for its end and for the rest of its output. Returns its exit code."""
        code = self._process.wait(AT_MOST_SECONDS)
        self._reader.join(AT_MOST_SECONDS)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):  # a line that it never read
                    pipe.close()
        return code

    def output(self) -> str:
        return "".join(self.lines)

    # --- for tests in an event loop, which goes on while they wait ---

    async def line_with(self, text: str, *, keeping_others: bool = False) -> str:
        return await asyncio.to_thread(self.until, text, keeping_others=keeping_others)

    async def ended(self) -> int:
        return await asyncio.to_thread(self.ends)
