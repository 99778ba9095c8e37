"""The addresses in `[notify]`: parsed, or refused with an error that shows nothing secret."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from qo.errors import SettingsError

PRINTABLE_ASCII = re.compile(r"[\x21-\x7e]+")
MAX_SHOWN_CHARACTERS = 100
END_OF_HOST = re.compile(r"[/?#\\]")


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Only `origin` may be shown: many webhooks have a secret token in their path."""

    scheme: str
    host: str
    port: int
    user: str
    password: str
    target: str

    @property
    def origin(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Decided by the name alone: what a name resolves to is decided by others."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def parse_address(field: str, url: str, *, ports: Mapping[str, int], expected: str) -> Address:
    """`ports`: the allowed schemes with their default port."""
    # urlsplit would silently drop line breaks and tabs, so the text is checked first.
    if not PRINTABLE_ASCII.fullmatch(url):
        raise refusal(field, "text with spaces, control characters or letters outside of ASCII", expected)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        host.encode("idna")  # refuses empty and overlong labels
    except ValueError:
        raise refusal(field, shown(url), expected) from None
    if parts.scheme not in ports or not host:
        raise refusal(field, shown(url), expected)
    return Address(
        scheme=parts.scheme,
        host=host,
        port=ports[parts.scheme] if port is None else port,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        target=_target(parts),
    )


def _target(parts: SplitResult) -> str:
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def refusal(field: str, value: str, expected: str) -> SettingsError:
    return SettingsError(f"notify.{field} is {value}; expected {expected}.")


def shown(url: str) -> str:
    """Scheme and host of an address that may be malformed, never its user, password, path or query."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return 'text without "://"'
    host, *tail = END_OF_HOST.split(rest, maxsplit=1)
    if tail and "@" in tail[0]:
        # Either the path has an @, or this is the second half of a password with a slash in it.
        return repr(f"{scheme}://…")
    return repr(f"{scheme}://{host.rpartition('@')[2]}"[:MAX_SHOWN_CHARACTERS])
