"""A real `qo serve` that a test starts, kills and starts again at the same port."""

from __future__ import annotations

import re
import socket
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.cli.installed_command import COMMAND, environment
from tests.processes import Process
from tests.processes import environment as with_tests
from tests.servers.local import new_port

ADDRESS = re.compile(r"qo is at http://127\.0\.0\.1:(\d+) ")


def free_port() -> int:
    """Not one of those that the system gives to clients: a client that comes back to such a port while nobody listens
    there may be connected with itself."""
    while True:
        port = new_port()
        with socket.socket() as tried:
            try:
                tried.bind((ServerProcess.host, port))
            except OSError:
                continue
        return port


class ServerProcess:
    """Serves the store at `url`."""

    host = "127.0.0.1"

    def __init__(self, url: str, *, folder: Path, command: tuple[str | Path, ...] = (COMMAND, "serve")) -> None:
        self.port = free_port()
        self._command = [*command, "--port", str(self.port), "--url", url]
        self._folder = folder
        self._process: Process | None = None

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def process(self) -> Process:
        assert self._process is not None
        return self._process

    async def start(self) -> None:
        """Returns when it listens."""
        env = environment(PYTHONPATH=with_tests()["PYTHONPATH"])
        self._process = Process(self._command, cwd=self._folder, env=env, stderr=subprocess.STDOUT)
        line = await self._process.line_with("qo is at")
        found = ADDRESS.search(line)
        assert found is not None, line
        assert int(found[1]) == self.port

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.__exit__(kind, error, trace)

    def most_bytes_used(self) -> int:
        """The most memory that the process had at any moment so far."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("the system does not tell how much memory a process has")
