"""Requests as a server hands them to the application."""

from __future__ import annotations

from starlette.requests import Request

Headers = dict[str, str] | list[tuple[str, str]]


def request(
    method: str = "GET",
    path: str = "/jobs",
    headers: Headers | None = None,
    *,
    host: str | None = "localhost:8765",
    peer: str | None = "127.0.0.1",
    scheme: str = "http",
    root_path: str = "",
) -> Request:
    """A request from this machine to this machine, unless the test says otherwise."""
    given = list(headers.items()) if isinstance(headers, dict) else list(headers or [])
    if host is not None:
        given.insert(0, ("Host", host))
    return Request(
        {
            "type": "http",
            "method": method,
            "scheme": scheme,
            "path": path,
            "raw_path": path.encode(),
            "root_path": root_path,
            "query_string": b"",
            "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in given],
            "client": None if peer is None else (peer, 50000),
            "server": ("127.0.0.1", 8765),
        }
    )
