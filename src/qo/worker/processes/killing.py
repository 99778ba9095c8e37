"""Kills a process and everything that it has started."""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from pathlib import Path

PROC = Path("/proc")


def kill_with_children(pid: int) -> None:
    """Kill a process that leads a group of its own, that group, and on Linux also its descendants in other groups, such
    as a browser that was started in a session of its own."""
    others = _descendants(pid)
    kill_group(pid)
    for other in others:
        try:
            os.kill(other, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it was in the group


def kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass  # nobody is left; macOS refuses where only a zombie is


def _descendants(pid: int) -> list[int]:
    children: dict[int, list[int]] = defaultdict(list)
    for folder in PROC.glob("[0-9]*"):
        parent = _parent(folder)
        if parent is not None:
            children[parent].append(int(folder.name))
    found = list(children[pid])
    for each in found:  # grows meanwhile
        found += children[each]
    return found


def _parent(folder: Path) -> int | None:
    try:
        stat = (folder / "stat").read_text()
    except OSError:
        return None  # it has ended since the folder was listed
    return int(stat.rpartition(")")[2].split()[1])  # its name, in parentheses, may hold anything
