"""A real S3 server on this machine, and one that ignores conditions. Each ends with the test process, however that
ends."""

from __future__ import annotations

import atexit
import http.client
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Self
from urllib.parse import urlencode

from servers import PATIENCE_SECS, PORTS, WATCHDOG, random_port

BUCKET = "qo-tests"
POLL_SECS = 0.02


class BucketServer:
    """Serves the bucket `BUCKET` on a free loopback port, from memory."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="qo-bucket-"))
        atexit.register(self.close)
        self._processes: list[subprocess.Popen[bytes]] = []  # the server and its watchdog, while they run
        self._sign = secrets.token_hex(8)
        self.port = 0

    @property
    def pid(self) -> int:
        return self._processes[0].pid

    def url(self, prefix: str = "", *, port: int | None = None) -> str:
        """`port`: of something in between, that passes requests on."""
        return bucket_url(port or self.port, prefix)

    def start(self) -> None:
        """Returns when the server answers and the bucket is there."""
        for _ in range(10):
            self.port = random_port(PORTS)
            self._spawn(self._command(), self._environment())
            self._spawn(["sh", "-c", WATCHDOG, "watchdog", str(self.pid), str(self.folder)], dict(os.environ))
            if self._comes_up():
                return
            self.kill()
        log = (self.folder / "log").read_text()
        raise RuntimeError(f"{type(self).__name__} did not start: {' / '.join(log.splitlines()[-3:])}")

    def kill(self) -> None:
        while self._processes:
            # The watchdog goes first: once a server has been waited for, its id may be another process's.
            with self._processes.pop() as process:
                process.kill()

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
        atexit.unregister(self.close)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _command(self) -> list[str]:
        return [sys.executable, "-m", "ministack"]

    def _environment(self) -> dict[str, str]:
        return os.environ | {
            "BIND_HOST": "127.0.0.1",
            "GATEWAY_PORT": str(self.port),
            "SERVICES": "s3",
            "LOG_LEVEL": "WARNING",
            "TMPDIR": str(self.folder),
            "HOME": str(self.folder),
            "MINISTACK_VERSION": self._sign,  # which it tells, so that another's server is not taken for this one
        }

    def _comes_up(self) -> bool:
        deadline = time.monotonic() + PATIENCE_SECS
        while self._processes[0].poll() is None and time.monotonic() < deadline:
            if self._answers():
                return True
            time.sleep(POLL_SECS)
        return False

    def _answers(self) -> bool:
        try:
            if self._sign not in self._ask("GET", "/_ministack/health")[1]:
                return False
            return self._ask("PUT", f"/{BUCKET}")[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def _ask(self, method: str, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECS)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def _spawn(self, command: Sequence[str], environment: dict[str, str]) -> None:
        # In a session of its own, for Ctrl-C is meant for the tests, which then end their servers.
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment, start_new_session=True
            )
        self._processes.append(process)


class CarelessServer(BucketServer):
    """rclone's: it takes every condition, keeps none, and answers as if it had."""

    def _command(self) -> list[str]:
        (self.folder / "buckets" / BUCKET).mkdir(parents=True, exist_ok=True)
        (self.folder / "buckets" / self._sign).mkdir(exist_ok=True)
        binary = shutil.which("rclone", path=str(Path(sys.executable).parent)) or shutil.which("rclone")
        assert binary, "There is no rclone: install qo's dev extra."
        return [binary, "serve", "s3", "--addr", f"127.0.0.1:{self.port}", str(self.folder / "buckets")]

    def _environment(self) -> dict[str, str]:
        return os.environ | {"HOME": str(self.folder), "XDG_CONFIG_HOME": str(self.folder)}

    def _answers(self) -> bool:
        try:
            return self._sign in self._ask("GET", "/")[1]
        except (OSError, http.client.HTTPException):
            return False


@cache
def shared_bucket_server() -> BucketServer:
    """One for all tests of this process. Tests keep apart by prefix and leave it running."""
    server = BucketServer()
    server.start()
    return server


def bucket_url(port: int, prefix: str = "") -> str:
    options = {
        "endpoint": f"http://127.0.0.1:{port}",
        "region": "us-east-1",
        "access_key_id": "test",
        "secret_access_key": "test",
    }
    return f"s3://{BUCKET}/{prefix}?{urlencode(options)}"
