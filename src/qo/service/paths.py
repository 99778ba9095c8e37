"""A request's path in its parts. It is split before it is decoded: `/jobs/x%2Fwhy` is the job `x/why`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote_to_bytes

from qo.service.access.refused import Refused

Parts = tuple[str, ...]

DOTS = {".\t": ".", "..\t": ".."}
"""Browsers and some proxies take `.` and `..` out of every path, percent-encoded or not. With a tab behind them, which
no name may contain, they arrive."""


def parts_of(scope: Mapping[str, Any]) -> Parts:
    """The decoded parts of the path behind the prefix that the service is mounted at."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    prefix = scope.get("root_path", "").encode()
    inside = raw[len(prefix) :] if prefix and raw.startswith(prefix) else raw
    try:
        names = [unquote_to_bytes(part).decode() for part in inside.removeprefix(b"/").split(b"/")]
    except UnicodeDecodeError:
        raise Refused(400, "Path not readable", "The path is not UTF-8; percent-encode its UTF-8 bytes.") from None
    return tuple(DOTS.get(name, name) for name in names)


class Pattern:
    """A path with named parts, such as `/api/jobs/{id}/why`."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._parts = tuple(text.removeprefix("/").split("/"))
        self.length = len(self._parts)
        self.names = tuple(part[1:-1] for part in self._parts if part.startswith("{"))

    def match(self, parts: Parts) -> dict[str, str] | None:
        """The named parts of a path of this form, None of any other."""
        if len(parts) != len(self._parts):
            return None
        found: dict[str, str] = {}
        for wanted, part in zip(self._parts, parts, strict=True):
            if wanted.startswith("{"):
                found[wanted[1:-1]] = part
            elif wanted != part:
                return None
        return found
