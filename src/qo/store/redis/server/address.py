"""The url of a server, its TLS options, and the prefix of a namespace."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field, replace
from urllib.parse import parse_qsl, unquote, urlsplit

from qo.errors import SettingsError
from qo.store.namespaces import encoded_namespace

URLS = "redis://[user:password@]host[:port][/database], rediss:// for TLS, or unix:///path/to.sock[?db=0]"
TLS_OPTIONS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname")


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """How to reach one server: host and port or socket, login, database and TLS."""

    host: str
    port: int
    path: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    database: int = 0
    tls: ssl.SSLContext | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        if self.path or not self.port:
            return self.path or self.host  # a primary that is known only by its name
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def beside(self, host: str, port: int) -> ServerAddress:
        """The address of another node of the same cluster. A node without a name of its own has this one's host."""
        return replace(self, host=self.host if host in ("", "?") else host, port=port, path=None)


def parse_server_url(url: str) -> ServerAddress:
    """Read a url. The text of a `SettingsError` never contains a part of the url that might be a password."""
    try:
        parts = urlsplit(url)
        host, port = unquote(parts.hostname or "127.0.0.1"), parts.port or 6379
        user, password = unquote(parts.username or "") or None, unquote(parts.password or "") or None
        options = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
        in_path = "" if parts.scheme == "unix" else parts.path.strip("/")
        database = int(options.pop("db", in_path or "0"))
    except ValueError:
        # If a password was not percent-encoded, any part of the url may contain some of it.
        raise SettingsError(f"store.url cannot be read; use {URLS}, with user and password percent-encoded.") from None
    if parts.scheme not in ("redis", "rediss", "unix") or parts.fragment or database < 0:
        raise SettingsError(f"store.url names no Redis server; use {URLS}, with user and password percent-encoded.")
    path = unquote(parts.path) if parts.scheme == "unix" else None
    if path == "":
        raise SettingsError(f"store.url names no socket; use {URLS}.")
    tls = _tls(options) if parts.scheme == "rediss" else None
    if options:
        allowed = ", ".join(["db", *TLS_OPTIONS]) if tls else "db"
        raise SettingsError(f"store.url has the unknown option {min(options)!r}; allowed here: {allowed}.")
    return ServerAddress(host=host, port=port, path=path, user=user, password=password, database=database, tls=tls)


def _tls(options: dict[str, str]) -> ssl.SSLContext:
    """Make the TLS context, and remove its options from `options`."""
    authorities, certificate, key, required, check_host = (options.pop(name, None) for name in TLS_OPTIONS)
    if required not in (None, "none", "required"):
        raise SettingsError(f"store.url has ssl_cert_reqs={required!r}; use none or required.")
    try:
        context = ssl.create_default_context(cafile=authorities)
        if certificate:
            context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        files = " or ".join(repr(file) for file in (authorities, certificate, key) if file)
        raise SettingsError(f"store.url names TLS files that cannot be used, {files}: {error}.") from None
    if required == "none" or (check_host or "").lower() in ("0", "no", "false"):
        context.check_hostname = False
    if required == "none":
        context.verify_mode = ssl.CERT_NONE
    return context


def prefix_of(namespace: str) -> str:
    """The prefix of all keys and channels of a namespace.

    The part in braces selects the cluster's shard, so it must not contain a closing brace and must not be empty.
    """
    if not namespace:
        raise SettingsError("store.namespace is empty; give it a name, such as 'default'.")
    return f"qo:{{{encoded_namespace(namespace)}}}:"
