"""The script of `<qo-place>`, the element that shows a watch link on other people's pages."""

from __future__ import annotations

import gzip
import hashlib
from importlib import resources

from starlette.requests import Request
from starlette.responses import Response

from qo.service.operations import Call, May, Operation

SCRIPT = resources.files("qo.service").joinpath("page", "widget.js").read_bytes()
COMPRESSED = gzip.compress(SCRIPT, mtime=0)
ETAG = f'W/"{hashlib.sha256(SCRIPT).hexdigest()[:32]}"'
"""Weak, because it names both the plain and the compressed bytes."""
FRESH_SECONDS = 3600
"""So long a browser does not ask again. A page has the script of a new server after that time."""
ALWAYS = {
    "Cache-Control": f"public, max-age={FRESH_SECONDS}",
    "ETag": ETAG,
    "Vary": "Accept-Encoding, Origin",
    "X-Content-Type-Options": "nosniff",
    # A page that isolates itself (COEP) loads only what says that it may be loaded from everywhere.
    "Cross-Origin-Resource-Policy": "cross-origin",
}


async def widget(call: Call) -> Response:
    headers = ALWAYS | cors_of_widget(call)
    if _is_known(call.request):
        return Response(None, 304, headers)
    body = SCRIPT
    if _takes_gzip(call.request):
        body, headers["Content-Encoding"] = COMPRESSED, "gzip"
    return Response(body, 200, headers, "text/javascript; charset=utf-8")


def cors_of_widget(call: Call) -> dict[str, str]:
    """The header that lets a page of `[server] widget_origins` read the answer; none for other pages."""
    origin = call.request.headers.get("origin")
    allowed = origin is not None and origin in call.queue.settings.server.widget_origins
    return {"Access-Control-Allow-Origin": origin} if allowed and origin is not None else {}


def _is_known(request: Request) -> bool:
    tags = [tag.strip() for tag in request.headers.get("if-none-match", "").split(",")]
    return "*" in tags or ETAG in tags


def _takes_gzip(request: Request) -> bool:
    """Whether the browser names gzip. One that refuses it by `gzip;q=0` gets the plain script."""
    codings = [each.replace(" ", "").lower() for each in request.headers.get("accept-encoding", "").split(",")]
    return any(each == "gzip" or (each.startswith("gzip;q=") and each.rstrip("0.") != "gzip;q=") for each in codings)


OPERATIONS = (
    Operation(
        "GET",
        "/widget.js",
        May.ANYBODY,
        widget,
        "The script of the element for other pages.",
        media_types=("text/javascript",),
    ),
)
