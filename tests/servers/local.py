"""A server beside the tests, with a folder of its own. It ends with the test process, however that ends."""

from __future__ import annotations

import atexit
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

PATIENCE_SECS = 30  # how long to wait for what must happen before giving up; nothing takes that long
POLL_SECS = 0.005

# These and a cluster's own ports, 10,000 higher, are below those that outgoing connections get, so that a restarted
# server finds its port free. Hypothesis seeds Python's shared generator alike in every test process.
PORTS = range(12_000, 22_000)
GIVEN_OUT = Path(tempfile.gettempdir()) / "qo-test-ports"
GIVEN_OUT_AGAIN_SECS = 3600


def new_port() -> int:
    """A port that no test of any process was given within the last hour. A client that still looks for a server that
    has ended must not find another test's server in its place."""
    GIVEN_OUT.mkdir(exist_ok=True)
    while True:
        port = random.SystemRandom().choice(PORTS)
        mark = GIVEN_OUT / str(port)
        try:
            mark.touch(exist_ok=False)
        except FileExistsError:
            if time.time() - mark.stat().st_mtime > GIVEN_OUT_AGAIN_SECS:
                mark.unlink(missing_ok=True)
        else:
            return port


# Its standard input ends when the test process does. Not the death signal that Linux offers: that one comes when the
# thread ends that started the server.
WATCHDOG = 'read _; kill -9 "$1"; rm -rf "$2"'


class LocalServer:
    """Starts a server together with a watchdog. A subclass has `start`, which makes the server answer."""

    def __init__(self, name: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=f"qo-{name}-"))
        self.log = self.folder / "log"
        atexit.register(self.close)
        self.processes: list[subprocess.Popen[bytes]] = []  # the server and its watchdog, while they run

    @property
    def pid(self) -> int:
        return self.processes[0].pid

    def start(self) -> None:
        raise NotImplementedError

    def kill(self) -> None:
        """Ends it with SIGKILL, as a crash would. Not running is not an error."""
        while self.processes:
            # The watchdog goes first: once a server has been waited for, its id may be another process's.
            with self.processes.pop() as process:
                process.kill()

    def close(self) -> None:
        """Ends it at once and removes its folder."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
        atexit.unregister(self.close)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _comes_up(
        self, command: Sequence[str | Path], environment: dict[str, str], *, answers: Callable[[], bool]
    ) -> bool:
        """Start it. False when it ended or did not answer; then it is gone and its log says why."""
        with self.log.open("wb") as log:
            self._spawn(command, log.fileno(), environment)
            self._spawn(["sh", "-c", WATCHDOG, "watchdog", str(self.pid), self.folder], log.fileno(), None)
        deadline = time.monotonic() + PATIENCE_SECS
        while self.processes[0].poll() is None and time.monotonic() < deadline:
            if answers():
                return True
            time.sleep(POLL_SECS)
        self.kill()
        return False

    def _spawn(self, command: Sequence[str | Path], log: int, environment: dict[str, str] | None) -> None:
        # In a session of its own, because Ctrl-C is meant for the tests, which then end their servers.
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment, start_new_session=True
        )
        self.processes.append(process)

    def last_words(self) -> str:
        return " / ".join(self.log.read_text().splitlines()[-3:])
