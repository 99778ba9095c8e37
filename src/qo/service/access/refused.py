"""A request that is refused before anything is looked up for it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class Refused(Exception):
    """The answer to a request that is refused. It never contains a key, a cookie or a token."""

    def __init__(
        self,
        status: int,
        title: str,
        detail: str,
        headers: Mapping[str, str] = NO_HEADERS,
        *,
        retry_after: int | None = None,
        field: str | None = None,
        allowed: str | None = None,
    ) -> None:
        super().__init__(f"{status} {title}: {detail}")
        self.status = status
        self.title = title
        self.detail = detail
        self.headers = dict(headers)
        self.field = field
        """The value that was wrong, if it was one, and what is allowed instead."""
        self.allowed = allowed
        self.retry_after = retry_after
        """Whole seconds after which the caller may try again; the header Retry-After says the same."""
        if retry_after is not None:
            self.headers["Retry-After"] = str(retry_after)


def no_key() -> Refused:
    return Refused(
        401,
        "API key missing",
        "This server asks for an API key; send it as `Authorization: Bearer <key>`. `qo keys create` makes one.",
        {"WWW-Authenticate": "Bearer"},
    )


def wrong_key() -> Refused:
    return Refused(
        401,
        "API key not valid",
        "The API key is unknown, revoked or expired, or Authorization is not `Bearer <key>`; `qo keys list` shows "
        "the keys, and `qo keys create` makes a new one.",
        {"WWW-Authenticate": "Bearer"},
    )


def too_many_wrong_keys(retry_after: int) -> Refused:
    return Refused(
        429,
        "Too many wrong API keys",
        f"More than 10 wrong API keys in a minute came from this address; try again in {retry_after} s with a valid "
        "key.",
        retry_after=retry_after,
    )


def no_session() -> Refused:
    return Refused(
        401,
        "Session ended",
        "The session in the cookie has ended, or its API key was revoked or has expired; sign in again.",
        {"WWW-Authenticate": "Bearer"},
    )


def wrong_host() -> Refused:
    return Refused(
        421,
        "Unknown host",
        "The Host header names a host that this server does not answer for; use localhost or an IP address, or add "
        "the name to hosts under [server] in .qo.toml.",
    )


def keys_needed() -> Refused:
    return Refused(
        403,
        "API keys needed",
        "This server has no API keys, so it answers its own machine only; make a key with `qo keys create`.",
    )


def came_through_a_proxy(header: str) -> Refused:
    return Refused(
        403,
        "API keys needed",
        f"This server has no API keys, and the header {header} shows that the request came through a proxy; make a "
        "key with `qo keys create`.",
    )


def from_another_site(header: str) -> Refused:
    return Refused(
        403,
        "Request from another site",
        f"The header {header} says that a page of another site sent this request; send it from the server's own page "
        "(public_url under [server] in .qo.toml names its address), or with an API key in Authorization.",
    )


def not_proven_own(missing: str) -> Refused:
    return Refused(
        403,
        "Request not from the page",
        f"A change with a session cookie needs {missing}; send it, or use an API key in Authorization.",
    )
