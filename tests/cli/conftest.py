"""The installed `qo`, called as people and scripts call it: a process of its own in a folder of its own."""

from __future__ import annotations

import asyncio
import json
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from installed_command import COMMAND, environment

import qo

PATIENCE_SECONDS = 60.0

APP = """
import asyncio
import qo

def worker(queue):
    worker = qo.Worker(queue)

    @worker.task("echo")
    async def echo(data, ctx):
        return data

    @worker.task("broken")
    async def broken(data, ctx):
        raise qo.Fail("It cannot be done.")

    @worker.task("slow")
    async def slow(data, ctx):
        print("slow has begun", flush=True)
        await asyncio.sleep(600)

    @worker.task("ask")
    async def ask(data, ctx):
        async for number in ctx.iterations():
            if number == 3:
                return number

    @worker.task("staged", stages=("scaffold", "code"))
    async def staged(data, ctx):
        await ctx.stage("scaffold")
        await ctx.stage("code", "writing")
        return "done"

    return worker

async def worker_made_later(queue):
    return worker(queue)

def wants_more(queue, more): ...
def no_worker(queue): return 7
number = 7
"""


class Call(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON document that a program reads."""
        return json.loads(self.out)


class Process:
    """A `qo` that goes on, and the lines it has written so far."""

    def __init__(self, arguments: tuple[str, ...], folder: Path) -> None:
        self._process = subprocess.Popen(
            [COMMAND, *arguments],
            cwd=folder,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            # As in a terminal: where the tests run in the background of a shell, Ctrl-C is ignored from the start.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        self.pid = self._process.pid
        self.lines: list[str] = []
        self._coming: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._coming.put(line)
        self._coming.put(None)

    def until(self, text: str) -> str:
        """The next line that holds the text, as soon as it is written."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            try:
                line = self._coming.get(timeout=left)
            except queue.Empty:
                break
            if line is None:
                self._coming.put(None)
                break
            self.lines.append(line)
            if text in line:
                return line
        raise AssertionError(f"{text!r} did not come; this did:\n{''.join(self.lines)}")

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def ends(self) -> int:
        """Its exit code."""
        code = self._process.wait(PATIENCE_SECONDS)
        self._reader.join(PATIENCE_SECONDS)
        while not self._coming.empty():
            line = self._coming.get()
            self.lines += [] if line is None else [line]
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code

    def output(self) -> str:
        return "".join(self.lines)

    def remove(self) -> None:
        if self._process.poll() is None:
            self.signal(signal.SIGKILL)
            self.ends()


@pytest.fixture
def call(tmp_path: Path) -> Callable[..., Call]:
    """Call `qo` and wait for it to end."""

    def run(*arguments: str, stdin: str = "", env: dict[str, str] | None = None, folder: Path | None = None) -> Call:
        done = subprocess.run(
            [COMMAND, *arguments],
            cwd=folder or tmp_path,
            env=environment(**(env or {})),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )
        assert "Traceback" not in done.stderr
        return Call(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Call `qo` and let it go on; nothing of it is left when the test has ended."""
    started: list[Process] = []

    def begin(*arguments: str, folder: Path | None = None) -> Process:
        process = Process(arguments, folder or tmp_path)
        started.append(process)
        return process

    yield begin
    for process in started:
        process.remove()
        sys.stdout.write(process.output())  # which pytest shows when the test has failed


@pytest.fixture
def submit(call: Callable[..., Call]) -> Callable[..., str]:
    """Submit a job and answer its id."""

    def submitted(*arguments: str) -> str:
        done = call("submit", *arguments, "--json")
        assert done.code == 0, done.err
        return str(done.json["id"])

    return submitted


@pytest.fixture
def empty_store(tmp_path: Path) -> None:
    """A store that somebody has made, and nothing in it."""

    async def make() -> None:
        await (await qo.connect(f"sqlite:///{tmp_path}/qo.db", settings={})).close()

    asyncio.run(make())


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """An application beside the store."""
    path = tmp_path / "app.py"
    path.write_text(APP)
    return path


@pytest.fixture
def worker(app: Path, start: Callable[..., Process]) -> Process:
    """A running `qo worker`."""
    process = start("worker", "app:worker", "--name", "w1")
    process.until("worker w1 runs")
    return process


@pytest.fixture
def left_behind(tmp_path: Path) -> Callable[[], tuple[int, int]]:
    """How many live leases and workers the store holds."""

    async def look() -> tuple[int, int]:
        async with await qo.connect(f"sqlite:///{tmp_path}/qo.db", settings={}) as line:
            return len(await line.store.leases()), len(await line.workers())

    return lambda: asyncio.run(look())
