"""A real S3 server on this machine, and one that ignores conditions."""

from __future__ import annotations

import http.client
import os
import secrets
import shutil
import sys
from functools import cache
from pathlib import Path
from urllib.parse import urlencode

from tests.servers.local import PATIENCE_SECS, LocalServer, new_port

BUCKET = "qo-tests"
POLL_SECS = 0.02


class BucketServer(LocalServer):
    """Serves the bucket `BUCKET` on a free loopback port, from memory."""

    def __init__(self) -> None:
        super().__init__("bucket")
        self._sign = secrets.token_hex(8)
        self.port = 0

    def url(self, prefix: str = "", *, port: int | None = None) -> str:
        """`port` is that of a proxy in between."""
        return bucket_url(port or self.port, prefix)

    def start(self) -> None:
        """Returns when the server answers and the bucket is there."""
        for _ in range(10):
            self.port = new_port()
            if self._comes_up(self._command(), self._environment(), answers=self._answers):
                return
        raise RuntimeError(f"{type(self).__name__} did not start: {self.last_words()}")

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
            "MINISTACK_VERSION": self._sign,  # shows that it is this server which answers
        }

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
