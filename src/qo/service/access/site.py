"""The address under which browsers see the service: its scheme, host, port and path."""

from __future__ import annotations

import re
from ipaddress import IPv6Address, ip_address
from urllib.parse import urlsplit

import msgspec
from starlette.requests import Request

from qo.errors import SettingsError

DEFAULT_PORTS = {"http": 80, "https": 443}
HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[^\[\]:/?#@\s]+)(:(?P<port>[0-9]{1,5}))?", re.ASCII)


class Site(msgspec.Struct, frozen=True, kw_only=True):
    scheme: str
    host: str
    port: int
    path: str = "/"
    """The path that all pages of the service begin with."""

    @property
    def is_tls(self) -> bool:
        return self.scheme == "https"

    def has_origin(self, origin: str) -> bool:
        """Whether an Origin header names this site. `null` names none."""
        scheme, separator, rest = origin.lower().partition("://")
        parsed = parsed_host(rest)
        if not separator or parsed is None:
            return False
        name, port = parsed
        return (scheme, name, port or DEFAULT_PORTS.get(scheme)) == (self.scheme, self.host, self.port)


def parsed_host(text: str) -> tuple[str, int | None] | None:
    """Name and port of a Host header; an IPv6 address comes without its brackets. None if it is malformed."""
    parts = HOST.fullmatch(text.lower())
    if parts is None:
        return None
    name, port = parts["name"], None if parts["port"] is None else int(parts["port"])
    if not name.startswith("["):
        return name, port
    try:
        return str(IPv6Address(name[1:-1])), port
    except ValueError:
        return None


def is_ip_literal(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def site_of_request(request: Request) -> Site | None:
    """None for a request whose Host header is missing or malformed."""
    host = parsed_host(request.headers.get("host", ""))
    if host is None:
        return None
    name, port = host
    scheme: str = request.scope["scheme"]
    return Site(
        scheme=scheme, host=name, port=port or DEFAULT_PORTS[scheme], path=_path(request.scope.get("root_path", ""))
    )


def site_of_url(url: str) -> Site:
    """Raises `SettingsError` for a `server.public_url` that is no plain address."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise _no_address(url) from None
    host = parsed_host(parts.netloc)
    if host is None or parts.scheme not in DEFAULT_PORTS:
        raise _no_address(url)
    name, port = host
    return Site(scheme=parts.scheme, host=name, port=port or DEFAULT_PORTS[parts.scheme], path=_path(parts.path))


def _no_address(url: str) -> SettingsError:
    given = "an address with a login" if "@" in url else repr(url)  # which may contain a password
    return SettingsError(f"server.public_url is {given}; use an address such as https://qo.example.com/queue.")


def _path(text: str) -> str:
    return text.rstrip("/") or "/"
