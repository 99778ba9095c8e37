"""Calls of a route of the table: what it needs is made first, and its names are put into path and body."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import httpx

from qo.service.app import ALL
from qo.service.operations import Operation
from qo.service.paths import Pattern
from tests.service.conftest import Service
from tests.service.who_may import ROUTES, Names

EXISTING: dict[str, Operation] = {f"{each.method} {each.path}": each for each in ALL}
OPERATIONS = {route: operation for route, operation in EXISTING.items() if route in ROUTES}
"""Those that have a row. That all have one is the first test of `test_who_may.py`."""


async def call(
    served: Service, route: str, *, owner: str, headers: Mapping[str, str], name: str | None = None
) -> httpx.Response:
    """Call the route for something new of this owner. Of a stream only the beginning is read."""
    names = await ROUTES[route].make(served, owner, name or served.queue.system.new_id())
    return await call_named(served, route, names, headers=headers)


async def call_named(served: Service, route: str, names: Names, *, headers: Mapping[str, str]) -> httpx.Response:
    served.client.cookies.clear()  # of a sign-in; who wants a cookie sends it in the headers
    method, path = route.split(" ")
    request = served.client.build_request(
        method,
        filled_path(path, names),
        params=filled(ROUTES[route].query, names),
        json=filled(ROUTES[route].body, names),
        headers=dict(headers),
    )
    answer = await served.client.send(request, stream=True)
    try:
        if not answer.headers["content-type"].startswith("text/event-stream"):
            await answer.aread()
    finally:
        await answer.aclose()
    return answer


def filled_path(path: str, names: Names) -> str:
    """Each name is one part of the path, whatever characters it has."""
    for name in Pattern(path).names:
        path = path.replace(f"{{{name}}}", quoted(names[name]))
    return path


def quoted(name: str) -> str:
    """A client would take dots for steps in the path, so they are encoded as well."""
    return quote(name, safe="").replace(".", "%2E")


def filled(body: Any, names: Names) -> Any:
    if isinstance(body, Mapping):
        return {key: filled(value, names) for key, value in body.items()}
    if isinstance(body, list):
        return [filled(value, names) for value in body]
    return body.format(**names) if isinstance(body, str) else body
