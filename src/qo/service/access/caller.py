"""The caller of a request: its role, and the user and project that it may act for."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

LOOPBACK = "loopback"


class Role(StrEnum):
    """What a caller may do; HTTP.md has the table."""

    ADMIN = "admin"
    VIEWER = "viewer"
    USER = "user"


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    role: Role
    key_id: str | None = None
    """The id of the caller's key. None on a server without keys."""
    user: str | None = None
    """The user that the key belongs to. Every key of role `user` has one, no other key has."""
    project: str | None = None
    """The only project that the key may submit to, if it was made for one."""
    address: str
    """The IP address of the caller, behind trusted proxies that of their client."""
    by_cookie: bool = False
    """Whether a browser's session cookie named the key."""
    session: str | None = None
    """A digest of that cookie, by which sign-out finds its streams."""
    expires_at: datetime | None = None
    """When the key or the session ends, whichever is first."""

    @property
    def by(self) -> str:
        """The caller's name in the audit trail."""
        return LOOPBACK if self.key_id is None else self.key_id
