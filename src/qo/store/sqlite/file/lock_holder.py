"""Which process holds the write lock of a file, by what Linux tells in /proc.

Never by opening the file: closing it again would drop the locks that this process has on it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

LOCKS = Path("/proc/locks")
PROCESSES = Path("/proc")

WRITE_LOCK, CHECKPOINT_LOCK, RECOVERY_LOCK = 120, 121, 122
"""Bytes of the -shm file that SQLite locks while a process writes, folds the log in, or begins a new one."""
FIRST_FILE_LOCK, LAST_FILE_LOCK = 0x4000_0000, 0x4000_0000 + 511
"""Bytes of the file itself that SQLite locks while a process changes how the file is kept."""

NOT_TOLD = "which process holds its write lock cannot be told here. Find a process that uses the file and is stopped"
ADVICE = "what it had not committed is undone"


@dataclass(frozen=True)
class Holder:
    pid: int
    command: str
    state: str
    """The letter of /proc/<pid>/stat: R, S, D, T, t or Z; empty where it is not told."""

    def __str__(self) -> str:
        name = f"process {self.pid}" + (f" ({self.command})" if self.command else "")
        if self.pid == os.getpid():
            return f"this process itself, {name}, holds its write lock through another connection. Close that one"
        held = f"{name} holds its write lock"
        match self.state:
            case "T":
                return (
                    f"{held} and is stopped. Continue it with `kill -CONT {self.pid}`, or end it with "
                    f"`kill -9 {self.pid}`: {ADVICE}"
                )
            case "t":
                return f"{held} and is stopped by a debugger. Let it go on there, or end it: {ADVICE}"
            case "D":
                return f"{held} and waits for the disk. See whether the disk answers"
        return f"{held} and does not end its write. If it hangs, end it with `kill {self.pid}`: {ADVICE}"


def told_holder(path: str) -> str:
    """The process that holds the write lock and what to do about it, or that it cannot be told."""
    holder = find_holder(path)
    return NOT_TOLD if holder is None else str(holder)


def find_holder(path: str) -> Holder | None:
    """None where nobody holds it any more, or where the system does not tell: without /proc, or when the process
    is in another container."""
    try:
        held = [line.split() for line in LOCKS.read_text().splitlines()]
    except OSError:
        return None
    on_log = (f"{path}-shm", WRITE_LOCK, RECOVERY_LOCK)
    on_file = (path, FIRST_FILE_LOCK, LAST_FILE_LOCK)
    for file, first, last in (on_log, on_file):
        pids = [pid for pid in (_pid(fields, file, first, last) for fields in held) if pid is not None]
        if pids:
            return _describe(pids[0])
    return None


def _pid(fields: list[str], file: str, first: int, last: int) -> int | None:
    """Of the process that has written this line of /proc/locks by locking one of these bytes for itself alone:
    `1: POSIX  ADVISORY  WRITE 14640 fe:00:2213122 120 120`. One that still waits has `->` as its second field."""
    if len(fields) != 8 or fields[3] != "WRITE":
        return None
    device, inode = fields[5].rsplit(":", 1)
    begin, end = int(fields[6]), last if fields[7] == "EOF" else int(fields[7])
    pid = int(fields[4])
    if pid <= 0 or end < first or begin > last:  # 0 and -1: of another container, or of nobody in particular
        return None
    try:
        found = os.stat(file)
    except OSError:
        return None
    if found.st_ino != int(inode):
        return None
    same_device = device == f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}"
    # Some file systems (overlays, btrfs) give a file another device number than its locks.
    return pid if same_device or _has_open(pid, found) else None


def _has_open(pid: int, wanted: os.stat_result) -> bool:
    try:
        return any(os.path.samestat(os.stat(each), wanted) for each in (PROCESSES / str(pid) / "fd").iterdir())
    except OSError:
        return False


def _describe(pid: int) -> Holder:
    try:
        text = (PROCESSES / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return Holder(pid, command="", state="")
    # `14640 (any (name) at all) S 14635 ...`
    before, _, after = text.rpartition(")")
    return Holder(pid, command=before.partition("(")[2], state=after.split()[0])
