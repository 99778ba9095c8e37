"""Processes on one SQLite file that are killed in the middle of operations, and the diary they leave.

Run as a program, this keeps two of them alive, kills one after the other with SIGKILL and prints a line for each kill.
A process is killed a random moment after it has begun an operation, of a kind that was not yet hit in this round; a
round is over when all kinds were. `victim.py` is what the processes do.
"""

from __future__ import annotations

import asyncio
import os
import random
import select
import signal
import sys
import time
import traceback
from collections import Counter, deque
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import NamedTuple

from qo.job import State
from qo.store.sqlite import SQLiteStore
from tests.processes import Process, command_of
from tests.store.victim import Victim

ALIVE = 2
LIFE_SECONDS = (0.02, 0.1)
FIRST_GUESS_SECONDS = 0.001
NEWEST_DURATIONS = 9
PATIENCE_SECONDS = 5.0
SIGNALS_BYTES = 65536


class Diary:
    """The notes of the processes, one file each; `victim.py` documents their format."""

    def __init__(self, folder: Path) -> None:
        self._entries = [line.split() for path in folder.iterdir() for line in _whole_lines(path.read_text())]

    def kinds(self, word: str) -> Counter[str]:
        return Counter(kind for _, noted, kind, *_ in self._entries if noted == word)

    def interrupted(self) -> Counter[str]:
        """The kinds of operations that were the last thing of a process and never answered."""
        last = {process: (noted, kind) for process, noted, kind, *_ in self._entries}
        return Counter(kind for noted, kind in last.values() if noted == "begin")

    def acknowledged(self, operation: str) -> list[str]:
        """The facts in all answers to an operation, or to one variant of it."""
        return [
            fact
            for _, noted, kind, *facts in self._entries
            if noted == "answered" and operation in (kind, kind.partition(":")[0])
            for fact in facts
        ]

    def ended_as(self, state: State) -> list[str]:
        """Jobs whose end in this state was acknowledged to a process."""
        finished = self.acknowledged("finish")
        ended = [job_id for job_id, new_state in zip(finished[::2], finished[1::2], strict=True) if new_state == state]
        return ended + (self.acknowledged("cancel") if state is State.CANCELLED else [])


def _whole_lines(text: str) -> list[str]:
    """All but a last line without an end: a kill can cut a write in two where a page of the file ends."""
    return text.rpartition("\n")[0].splitlines()


# --- the program ----------------------------------------------------------------------------------------------


def killing(path: Path, diary_path: Path, *, kills: int, seed: int, kinds: Iterable[str]) -> Process:
    """The program below, at work."""
    arguments = [str(path), str(diary_path), str(kills), str(seed), ",".join(kinds)]
    return Process(command_of("tests.store.killed_processes", *arguments))


class Forked(NamedTuple):
    pid: int
    signals: int
    """The pipe to which it writes a word for each operation that it begins and ends."""


def start(path: str, diary_path: str, name: str) -> Forked:
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid:
        os.close(write_end)
        return Forked(pid, read_end)
    try:
        asyncio.run(live(path, diary_path, name, write_end))
    except BaseException:
        traceback.print_exc()
    os._exit(1)  # a victim lives until it is killed; the code after this point belongs to its parent


async def live(path: str, diary_path: str, name: str, signals: int) -> None:
    os.makedirs(diary_path, exist_ok=True)
    diary = os.open(os.path.join(diary_path, name), os.O_WRONLY | os.O_CREAT)
    await Victim(await SQLiteStore.open(path), name, diary=diary, signals=signals).live()


def kill(process: Forked) -> bytes:
    """Kill it. Returns the words that it wrote and nobody had read."""
    os.kill(process.pid, signal.SIGKILL)
    _, status = os.waitpid(process.pid, 0)
    unheard = os.read(process.signals, SIGNALS_BYTES)
    os.close(process.signals)
    if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
        raise SystemExit("A process ended before it was killed; its error is above.")
    return unheard


class Durations:
    """How long operations of each kind take on this machine, to draw a moment in the middle of one."""

    def __init__(self) -> None:
        self._newest: dict[str, deque[float]] = {}

    def note(self, kind: str, seconds: float) -> None:
        self._newest.setdefault(kind, deque(maxlen=NEWEST_DURATIONS)).append(seconds)

    def typical_seconds(self, kind: str) -> float:
        return median(self._newest.get(kind, [FIRST_GUESS_SECONDS]))


def wait_for_one_of(kinds: set[str], process: Forked, durations: Durations) -> str | None:
    """The kind of operation that the process has begun just now; None when it begins none of these for too long."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (remaining := deadline - time.monotonic()) > 0:
        if select.select([process.signals], [], [], remaining)[0]:
            signals = os.read(process.signals, SIGNALS_BYTES).decode().split()
            if not signals:
                return None  # it is dead already, and `kill` will raise
            for kind, is_over, seconds in (word.partition("=") for word in signals):
                if is_over:
                    durations.note(kind, float(seconds))
            if signals[-1] in kinds:
                return signals[-1]
    return None


def main(path: str, diary_path: str, kills: int, seed: int, kinds: set[str]) -> None:
    rng = random.Random(seed)
    durations = Durations()
    aims = set(kinds)
    alive = [start(path, diary_path, f"p{number}") for number in range(ALIVE)]
    try:
        for number in range(kills):
            time.sleep(rng.uniform(*LIFE_SECONDS))
            begun = wait_for_one_of(aims, alive[0], durations)
            if begun is not None:
                time.sleep(rng.uniform(0, durations.typical_seconds(begun)))
            unheard = kill(alive.pop(0))
            if begun is not None and not unheard:
                aims.remove(begun)
            if begun is None or not aims:
                aims = set(kinds)
            sys.stdout.write(f"killed {number}\n")
            sys.stdout.flush()
            if number < kills - ALIVE:
                alive.append(start(path, diary_path, f"p{number + ALIVE}"))
    finally:
        for process in alive:
            kill(process)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), set(sys.argv[5].split(",")))
