"""The application: every request goes to an operation, and every answer is JSON or a problem."""

from __future__ import annotations

import logging
from collections import defaultdict
from functools import cache, partial
from typing import Any, NamedTuple

import msgspec
from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, NoMatchFound
from starlette.types import Receive, Scope, Send

from qo.service.access.caller import Caller, Role
from qo.service.access.refused import Refused
from qo.service.health import HEALTH
from qo.service.help_pages import list_of, problem_page
from qo.service.openapi import document
from qo.service.operations import ANSWERED_WITH, Answer, Call, May, Operation, check_may
from qo.service.paths import Pattern, parts_of
from qo.service.problems import ALWAYS, answer_of
from qo.service.reading import check_headers, read_query
from qo.service.routes import OPERATIONS
from qo.service.shapes import NoQuery
from qo.service.shared import Shared
from qo.service.stream.response import StreamResponse

log = logging.getLogger("qo.service")


async def _docs(call: Call) -> Response:
    return list_of(ALL)


async def _document(call: Call) -> Response:
    return Response(_whole_document(), media_type="application/json")


@cache
def _whole_document() -> bytes:
    return document(ALL)


async def _problem(call: Call) -> Response:
    return problem_page(call.named["name"])


FOUND, NAMED = "qo.path", "qo.named"
"""In the scope of a request: the path that was found, and its named parts."""

ALL: tuple[Operation, ...] = (
    *OPERATIONS,
    *HEALTH,
    Operation("GET", "/docs", May.ANYBODY, _docs, "A page that lists all of this.", media_types=("text/html",)),
    Operation("GET", "/openapi.json", May.ANYBODY, _document, "This document.", answers=dict[str, Any]),
    Operation(
        "GET",
        "/problems/{name}",
        May.ANYBODY,
        _problem,
        "A page that explains a problem.",
        media_types=("text/html",),
    ),
)


def make_app(shared: Shared) -> FastAPI:
    """The ASGI application of a queue. FastAPI's own documents are off: they load scripts from other hosts."""
    app = FastAPI(title="qo", openapi_url=None, docs_url=None, redoc_url=None)
    routes: list[BaseRoute] = [OperationsRoute(shared)]
    app.router.routes = routes
    app.router.default = partial(_not_found, shared)
    if origins := shared.queue.settings.server.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID"],
            expose_headers=["Retry-After"],
        )
    return app


class _Path(NamedTuple):
    pattern: Pattern
    methods: dict[str, Operation]


class OperationsRoute(BaseRoute):
    """All operations. They are found by the parts of the raw path, which Starlette's own routes do not look at."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._by_path: dict[str, _Path] = {}
        self._by_length: dict[int, list[_Path]] = defaultdict(list)
        for operation in ALL:
            if operation.path not in self._by_path:
                self._by_path[operation.path] = path = _Path(operation.pattern, {})
                self._by_length[path.pattern.length].append(path)
            self._by_path[operation.path].methods[operation.method] = operation

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] != "http":
            return Match.NONE, {}
        try:
            parts = parts_of(scope)
        except Refused:
            return Match.NONE, {}
        other_methods: Scope | None = None
        for path in self._by_length.get(len(parts), ()):
            if (named := path.pattern.match(parts)) is not None:
                found: Scope = {FOUND: path, NAMED: named}
                if _method_of(scope) in path.methods:
                    return Match.FULL, found
                # Another path may fit too: a job may have the id `actions`.
                other_methods = other_methods or found
        return (Match.NONE, {}) if other_methods is None else (Match.FULL, other_methods)

    def url_path_for(self, name: str, /, **path_params: Any) -> Any:
        raise NoMatchFound(name, path_params)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        response: Response | StreamResponse | None = None
        try:
            check_headers(scope)
            response = await self._answer(Request(scope, receive, send))
            if isinstance(response, StreamResponse):
                await response(scope, receive, send)
                return
        except ClientDisconnect:
            return  # before its body was here, and nobody is there to answer
        except Exception as error:
            if isinstance(response, StreamResponse) and response.has_started:
                raise
            # Whatever it was, the caller gets a problem, and what was not expected is logged with its debug id.
            response = answer_of(error)
            response.headers.update(scope.get(ANSWERED_WITH, {}))
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response | StreamResponse:
        path: _Path = request.scope[FOUND]
        operation = path.methods.get(_method_of(request.scope))
        if operation is None:
            self._shared.gate.check_host(request)
            allowed = ", ".join(sorted(path.methods))
            detail = f"{request.method} cannot be used at {path.pattern.text}; use {allowed}."
            raise Refused(405, "Method not allowed", detail, headers={"Allow": allowed})
        if operation.may is May.ANYBODY:
            self._shared.gate.check_host(request)
            caller = Caller(role=Role.VIEWER, address=self._shared.gate.address(request))
        else:
            caller = await self._shared.gate.who(request)
            check_may(operation, caller)
            if operation.query is None:
                read_query(request, NoQuery)
        answer = await operation.handle(Call(self._shared, request, caller, request.scope[NAMED]))
        if isinstance(answer, Response | StreamResponse):
            return answer
        if not isinstance(answer, Answer):
            answer = Answer(answer, operation.status)
        return Response(msgspec.json.encode(answer.value), answer.status, ALWAYS | answer.headers, "application/json")


def _method_of(scope: Scope) -> str:
    method: str = scope["method"]
    return "GET" if method == "HEAD" else method


async def _not_found(shared: Shared, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] != "http":
        return
    try:
        shared.gate.check_host(Request(scope))
        check_headers(scope)
        parts_of(scope)
        error = Refused(404, "Not found", "There is nothing at this path; /docs lists what there is.")
    except Refused as refused:
        error = refused
    await answer_of(error)(scope, receive, send)
