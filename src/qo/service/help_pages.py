"""Plain pages, without scripts: the list of all operations, and what a problem means."""

from __future__ import annotations

import html
import inspect
from collections.abc import Sequence

from starlette.responses import Response

from qo.meanings import MEANINGS
from qo.service.operations import Operation
from qo.service.problems import slug_of

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}
OTHERS = "The `detail` of the answer says what was wrong and what to do."


def list_of(operations: Sequence[Operation]) -> Response:
    rows = "".join(
        f"<tr><td>{each.method}<td><code>{html.escape(each.path)}</code><td>{html.escape(each.summary)}"
        for each in operations
    )
    return _page("qo over HTTP", f'<p><a href="openapi.json">The whole document</a><table>{rows}</table>')


def problem_page(slug: str) -> Response:
    """What a problem of this type means. Any other name gets the general advice, and is not repeated."""
    for kind, meaning in MEANINGS.items():
        if slug_of(meaning.title) == slug:
            return _page(meaning.title, f"<p>{html.escape(inspect.getdoc(kind) or '')}<p>{html.escape(OTHERS)}")
    return _page("A problem", f"<p>{html.escape(OTHERS)}")


def _page(title: str, body: str) -> Response:
    escaped = html.escape(title)
    text = f"<!doctype html><html lang=en><meta charset=utf-8><title>{escaped}</title><h1>{escaped}</h1>{body}"
    return Response(text, 200, HEADERS, "text/html; charset=utf-8")
