"""Where the server is: urls, TLS, and the prefix of a namespace."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field, replace
from urllib.parse import parse_qsl, unquote, urlsplit

from qo.errors import SettingsError
from qo.store.namespaces import encoded_namespace

URLS = "redis://[user:password@]host[:port][/database], rediss:// for TLS, or unix:///path/to.sock[?db=0]"
TLS_OPTIONS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname")


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int
    path: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    database: int = 0
    tls: ssl.SSLContext | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        if self.path or not self.port:
            return self.path or self.host  # what is known by its name only
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def beside(self, host: str, port: int) -> Address:
        """Another node of the same cluster; one that does not know its own name is reached by this one's."""
        return replace(self, host=self.host if host in ("", "?") else host, port=port, path=None)


def parse_address(url: str) -> Address:
    """What a url says. Raises SettingsError, whose text never holds a part of the url that might be a password."""
    try:
        parts = urlsplit(url)
        host, port = unquote(parts.hostname or "127.0.0.1"), parts.port or 6379
        user, password = unquote(parts.username or "") or None, unquote(parts.password or "") or None
        options = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
        in_path = "" if parts.scheme == "unix" else parts.path.strip("/")
        database = int(options.pop("db", in_path or "0"))
    except ValueError:
        # Where a password was not percent-encoded, any part may hold some of it.
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
    return Address(host=host, port=port, path=path, user=user, password=password, database=database, tls=tls)


def _tls(options: dict[str, str]) -> ssl.SSLContext:
    """Takes its options out of `options`."""
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
    """What all keys and channels of a namespace begin with. The part in braces decides about the cluster's shard, so
    nothing in it may end it; an empty one would not count."""
    if not namespace:
        raise SettingsError("store.namespace is empty; give it a name, such as 'default'.")
    return f"qo:{{{encoded_namespace(namespace)}}}:"
