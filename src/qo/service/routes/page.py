"""The dashboard: its page at `/`, and the files that the page loads. All of it is open; what it shows is not."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from qo.service.access.refused import Refused
from qo.service.operations import Call, May, Operation
from qo.service.page_files import INDEX, MEDIA_TYPES, PageFile, page_files

FILES = tuple(dict.fromkeys(media_type.partition(";")[0] for media_type in MEDIA_TYPES.values()))
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Vary": "Accept-Encoding",
}
# A new qo never meets an old script: the page is asked for each time, and names each of its files with its version.
ASK_EACH_TIME = "no-cache"
KEEP_FOR_GOOD = "max-age=31536000, immutable"


async def index(call: Call) -> Response:
    path: str = call.request.scope["path"]
    if not path.endswith("/"):
        # At `/prefix` all relative addresses of the page would be beside the prefix instead of below it.
        return RedirectResponse(path.rsplit("/", 1)[-1] + "/", 307)
    return _answer(call.request, page_files()[INDEX])


async def file(call: Call) -> Response:
    found = page_files().get("/".join(call.named.values()))
    if found is None:
        raise Refused(404, "Not found", "The dashboard has no such file.")
    return _answer(call.request, found)


def _answer(request: Request, wanted: PageFile) -> Response:
    is_compressed = "gzip" in request.headers.get("accept-encoding", "")
    etag = f'"{wanted.etag}{"-gzip" if is_compressed else ""}"'
    is_versioned = request.scope["query_string"] == wanted.etag.encode()
    headers = HEADERS | {"ETag": etag, "Cache-Control": KEEP_FOR_GOOD if is_versioned else ASK_EACH_TIME}
    if etag in (tag.strip() for tag in request.headers.get("if-none-match", "").split(",")):
        return Response(None, 304, headers)
    if is_compressed:
        headers["Content-Encoding"] = "gzip"
    return Response(wanted.compressed if is_compressed else wanted.plain, 200, headers, wanted.media_type)


OPERATIONS = (
    Operation("GET", "/", May.ANYBODY, index, "The dashboard.", media_types=("text/html",)),
    *(
        Operation("GET", path, May.ANYBODY, file, "A file of the dashboard.", media_types=FILES)
        for path in ("/page/{file}", "/page/{folder}/{file}", "/page/{folder}/{part}/{file}")
    ),
)
