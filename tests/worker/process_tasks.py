"""Tasks that run in a process of their own. They are in a module, because their process has to find them."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

import qo


class Numbers(msgspec.Struct):
    first: int
    last: int


class Sum(msgspec.Struct):
    total: int
    pid: int


@qo.task(process=True)
def add_up(data: Numbers) -> Sum:
    return Sum(total=sum(range(data.first, data.last + 1)), pid=os.getpid())


@qo.task(process=True)
def process_id() -> int:
    return os.getpid()


@qo.task("staged", process=True, stages=("read", "write"))
def staged(data: dict[str, int], ctx: qo.ThreadContext) -> dict[str, Any]:
    ctx.stage("read")
    ctx.progress(1, 2, "half")
    ctx.save({"at": 1})
    until = ctx.extend_lease(600)
    ctx.stage("write")
    return {
        "id": ctx.job.id,
        "token": ctx.token,
        "slots": dict(ctx.slots),
        "attempt": ctx.attempt,
        "checkpoint": ctx.checkpoint,
        "until": until.timestamp(),
        "cancelled": ctx.cancelled or ctx.lost,
    }


class Odd(Exception):
    """Unknown to the worker's own code."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} and {second}")


@qo.task(process=True, max_attempts=1)
def fails(data: str, ctx: qo.ThreadContext) -> None:
    match data:
        case "odd":
            try:
                raise KeyError("inner")
            except KeyError as error:
                raise Odd("this", "that") from error
        case "fail":
            raise qo.Fail("no such thing")
        case "retry":
            raise qo.Retry("later", after=3600)
        case "exit":
            raise SystemExit(3)
        case "state":
            _ = ctx.state
        case "progress":
            ctx.progress("much")  # type: ignore[arg-type]


@qo.task(process=True, max_attempts=1)
def returns(data: str) -> Any:
    return {"bytes": b"x", "large": "x" * (1 << 20)}[data]


@qo.task(process=True, max_attempts=2)
def crashes(data: str, ctx: qo.ThreadContext) -> int:
    """Ends its process in the first attempt."""
    if ctx.attempt == 2:
        return os.getpid()
    if data == "exit":
        os._exit(7)
    os.kill(os.getpid(), signal.SIGSEGV)
    time.sleep(60)
    raise AssertionError


class Files(msgspec.Struct):
    pids: str
    """The file to which the handler writes the ids of its process and of its children."""
    until: str | None = None


CHILD = "import os, sys, time; print(os.getpid(), flush=True); time.sleep(600)"


@qo.task(process=True)
def starts_children(data: Files) -> None:
    """Starts one process in its own group and one in a session of its own, then holds the interpreter lock."""
    pids = [os.getpid()]
    for alone in (False, True):
        child = subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE, start_new_session=alone)
        assert child.stdout is not None
        pids.append(int(child.stdout.readline()))
    written = Path(f"{data.pids}.part")
    written.write_text(" ".join(map(str, pids)))
    written.rename(data.pids)
    hold_the_lock(600)


@qo.task(process=True)
def holds_the_lock(data: float) -> int:
    hold_the_lock(data)
    return os.getpid()


def hold_the_lock(seconds: float) -> None:
    """Sleep in C without letting go of the interpreter lock, as `PyDLL` does and `CDLL` does not."""
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))


@qo.task(process=True)
def waits_for_a_file(data: Files) -> int:
    with open(data.pids, "a") as pids:
        pids.write(f"{os.getpid()}\n")
    while data.until is not None and not os.path.exists(data.until):
        time.sleep(0.005)
    return os.getpid()


def count_letters(data: str) -> list[int | bool]:
    """How many there are, and whether a process counted them. For a worker that registers it by itself."""
    return [len(data), os.getppid() != 1 and "pytest" not in sys.modules]
