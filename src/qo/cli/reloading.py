"""`qo worker --watch`: a worker in a process of its own, started again when its files change."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import NoReturn

from qo.cli.terminal import note
from qo.settings import FILE_NAME

LOOK_EVERY_SECONDS = 0.5
NOT_LOOKED_INTO = frozenset({"__pycache__", "node_modules"})
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Seen = dict[str, int]
"""When each file was last changed."""


def run_again_on_change() -> NoReturn:
    """Run the present call without --watch, and again after each change, until a signal; exit with the worker's code.

    A worker that is replaced hands its jobs back at once, which costs them no attempt. A worker that ends by itself, as
    with an error in a file, is started again at the next change.
    """
    # -P: a file here that has the name of a package, such as click.py, must not stand in for it.
    command = [sys.executable, "-P", "-m", "qo", *(argument for argument in sys.argv[1:] if argument != "--watch")]
    stopping = _Stopping()
    while True:
        seen = files_in(Path.cwd())
        # In a session of its own, so that Ctrl-C reaches it once: from here.
        worker = subprocess.Popen(command, start_new_session=True)
        stopping.worker = worker
        changed = _wait_for_change(seen, stopping, worker)
        if stopping.wanted:
            sys.exit(worker.wait())
        if changed is None:
            note(f"The worker has ended with exit code {worker.returncode}; it starts again when a file changes.")
            changed = _wait_for_change(seen, stopping, None)
            if changed is None:
                sys.exit(worker.returncode)
        note(f"{changed} has changed: starting again.")
        _end_at_once(worker)


class _Stopping:
    """Gives the signals that come here to the worker."""

    def __init__(self) -> None:
        self.wanted = False
        self.worker: subprocess.Popen[bytes] | None = None
        for number in FORWARDED:
            signal.signal(number, self._forward)

    def _forward(self, number: int, frame: FrameType | None) -> None:
        self.wanted = True
        if self.worker is not None and self.worker.poll() is None:
            self.worker.send_signal(signal.SIGTERM if number == signal.SIGHUP else number)


def _wait_for_change(seen: Seen, stopping: _Stopping, worker: subprocess.Popen[bytes] | None) -> str | None:
    """The first file that has changed; None when a signal came, or when the worker has ended."""
    import time

    while not stopping.wanted and (worker is None or worker.poll() is None):
        if (changed := first_change(seen, files_in(Path.cwd()))) is not None:
            return changed
        time.sleep(LOOK_EVERY_SECONDS)
    return None


def _end_at_once(worker: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):  # two different ones: equal signals that wait become one
        if worker.poll() is None:
            worker.send_signal(number)
    worker.wait()


def first_change(before: Seen, now: Seen) -> str | None:
    """A file that is new, gone or changed."""
    return next((file for file in sorted({*before, *now}) if before.get(file) != now.get(file)), None)


def files_in(folder: Path) -> Seen:
    """The Python files and settings of a folder, without those of virtual environments and hidden folders."""
    return {os.path.relpath(path, folder): changed for path, changed in _files(folder)}


def _files(folder: Path) -> Iterator[tuple[str, int]]:
    for place, folders, files in os.walk(folder):
        if "pyvenv.cfg" in files:
            folders.clear()
            continue
        folders[:] = [name for name in folders if not name.startswith(".") and name not in NOT_LOOKED_INTO]
        for name in files:
            if name.endswith(".py") or name == FILE_NAME:
                path = os.path.join(place, name)
                try:
                    yield path, os.stat(path).st_mtime_ns
                except FileNotFoundError:
                    pass  # an editor replaces a file by another; the next look sees that one
