"""A real PgBouncer in transaction mode, in front of a real PostgreSQL. The system has to bring it: pip has none."""

from __future__ import annotations

import os
import shutil
import socket

from tests.servers.local import LocalServer, new_port
from tests.servers.postgres import NOBODY, PostgresServer, as_nobody

BINARY = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
CONFIGURATION = """
[databases]
* = host=127.0.0.1 port={postgres} user=postgres

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
; Two connections in turns, so that no two transactions of a client meet the same one by chance.
default_pool_size = 2
min_pool_size = 2
server_round_robin = 1
"""


class PgBouncer(LocalServer):
    def __init__(self, postgres: PostgresServer) -> None:
        super().__init__("pgbouncer")
        self._postgres = postgres
        self.port = new_port()

    def start(self) -> None:
        assert BINARY is not None
        configuration = self.folder / "pgbouncer.ini"
        configuration.write_text(CONFIGURATION.format(postgres=self._postgres.port, port=self.port))
        if os.getuid() == 0:
            os.chown(self.folder, NOBODY, NOBODY)
        if not self._comes_up([*as_nobody(), BINARY, configuration], dict(os.environ), answers=self._answers):
            raise RuntimeError(f"PgBouncer did not start: {self.last_words()}")

    def _answers(self) -> bool:
        with socket.socket() as tried:
            return tried.connect_ex(("127.0.0.1", self.port)) == 0
