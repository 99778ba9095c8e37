"""Browser sessions: a cookie with the id of a key and an expiry, signed. Nothing is stored for a session."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

import msgspec

from qo.job import moment
from qo.loops.system import SYSTEM, System
from qo.service.access.signing import SESSION_SECRET, SigningSecret, milliseconds, signed_struct, verified_struct
from qo.service.access.site import Site
from qo.store.contract import Store

SESSION_LENGTH = timedelta(hours=12)
NOT_IN_A_PATH = re.compile(r"[\\\x00-\x1f\x7f-\x9f]")


class Session(msgspec.Struct, frozen=True, kw_only=True):
    key_id: str
    expires_at: datetime


class _Payload(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    key_id: str
    expires_ms: int


class Sessions:
    def __init__(self, store: Store, *, system: System = SYSTEM) -> None:
        self._secret = SigningSecret(store, SESSION_SECRET, system=system)

    async def make(self, key_id: str, now: datetime) -> str:
        """The value of a cookie that stands for the key for 12 hours, as long as the key itself is valid."""
        payload = _Payload(key_id, milliseconds(now + SESSION_LENGTH))
        return signed_struct(await self._secret.get(), payload)

    async def read(self, value: str, now: datetime) -> Session | None:
        """The session of a cookie. None for a value that `make` did not make, or that has expired."""
        payload = verified_struct(await self._secret.get(), value, _Payload)
        if payload is None or payload.expires_ms <= milliseconds(now):
            return None
        return Session(key_id=payload.key_id, expires_at=moment(payload.expires_ms))


def cookie_name(site: Site) -> str:
    """Browsers keep names with these prefixes to TLS, and `__Host-` also to this very host. Without TLS the name has
    the port, because cookies of all ports of a host are kept together."""
    if not site.is_tls:
        return f"qo-{site.port}"
    return "__Host-qo" if site.path == "/" else "__Secure-qo"


def set_cookie(site: Site, value: str) -> str:
    """The Set-Cookie header that begins a session."""
    return _header(site, value, max_age_seconds=int(SESSION_LENGTH.total_seconds()))


def clear_cookie(site: Site) -> str:
    """The Set-Cookie header that makes the browser forget the session."""
    return _header(site, "", max_age_seconds=0)


def _header(site: Site, value: str, *, max_age_seconds: int) -> str:
    secure = "; Secure" if site.is_tls else ""
    return (
        f"{cookie_name(site)}={value}; Path={site.path}; Max-Age={max_age_seconds}; HttpOnly; SameSite=Strict{secure}"
    )


def safe_next(path: object) -> str:
    """The path to open after sign-in. Whatever could lead to another site becomes `/`: browsers read `//host` and
    `/\\host` as addresses of other sites, and drop control characters before they look."""
    if not isinstance(path, str) or not path.startswith("/") or path.startswith("//") or NOT_IN_A_PATH.search(path):
        return "/"
    return path
