"""The installed `qo`, called as people and scripts call it: a process of its own in a folder of its own."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import qo
from tests.cli.installed_command import COMMAND, environment
from tests.processes import AT_MOST_SECONDS, Process

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
            timeout=AT_MOST_SECONDS,
        )
        assert "Traceback" not in done.stderr
        return Call(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Call `qo` and let it go on; nothing of it is left when the test has ended."""
    with ExitStack() as until_the_end:

        def begin(*arguments: str, folder: Path | None = None) -> Process:
            process = Process(
                [COMMAND, *arguments],
                cwd=folder or tmp_path,
                env=environment(),
                stderr=subprocess.STDOUT,
                # As in a terminal: where the tests run in the background of a shell, Ctrl-C is ignored from the start.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )
            return until_the_end.enter_context(process)

        yield begin


@pytest.fixture
def submit(call: Callable[..., Call]) -> Callable[..., str]:
    """Submit a job. Returns its id."""

    def submitted(*arguments: str) -> str:
        done = call("submit", *arguments, "--json")
        assert done.code == 0, done.err
        return str(done.json["id"])

    return submitted


@pytest.fixture
def empty_store(tmp_path: Path) -> None:
    """An empty store that exists."""

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
