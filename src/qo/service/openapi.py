"""The OpenAPI document, made from the operations and the structs that they use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from qo import __version__
from qo.service.operations import May, Operation
from qo.service.problems import MEDIA_TYPE, Problem
from qo.service.shapes import REFERENCE, AName
from qo.service.stream.response import EVENT_STREAM

JSON = "application/json"
ALWAYS = {
    400: "The request is not readable.",
    421: "The Host header names another host.",
    422: "A value is not allowed.",
    431: "The path and the headers are too large.",
    429: "Too many wrong keys or streams came from this address or key.",
    500: "Something went wrong; `debug_id` finds it in the log of the server.",
    503: "The store cannot be reached, the line is full, or there are too many streams.",
}
WITH_A_KEY = {
    401: "The API key is missing or not valid.",
    403: "The key's role may not do this, or the request came from another site.",
}
WITH_A_NAME = {404: "There is no such thing that the key may see."}
CHANGING = {409: "It is not possible in the present state."}
WITH_A_BODY = {
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    415: "The body is not application/json.",
}
TEXT = {"type": "string"}
EVENT: dict[str, Any] = {
    "type": "object",
    "description": "One event of the stream; `data` is a JSON object.",
    "properties": {"event": TEXT, "id": TEXT, "data": TEXT},
}
SLOT = {"type": "integer", "minimum": 0, "maximum": 999_999_999}
UNLIKE_NAMES = {"slot": SLOT, "token": TEXT, "name": TEXT}
"""The parts of paths that are not ids or names which a store keeps."""


def document(operations: tuple[Operation, ...]) -> bytes:
    """The document as JSON."""
    types = _Types(operations)
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation, types)
    paths["/api/jobs"]["post"]["responses"]["201"]["links"] = dict(_links(operations))
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {"title": "qo", "version": __version__},
            "paths": paths,
            "components": {
                "schemas": types.components,
                "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            },
        }
    )


class _Types:
    """The schemas of all types that operations take and answer."""

    def __init__(self, operations: tuple[Operation, ...]) -> None:
        self._kinds = [Problem, AName, *(kind for each in operations for kind in _kinds_of(each))]
        schemas, self.components = msgspec.json.schema_components(self._kinds, ref_template=REFERENCE)
        self._schemas = [_portable(schema) for schema in schemas]
        self.components = _portable(self.components)

    def schema(self, kind: Any) -> Any:
        return self._schemas[next(place for place, known in enumerate(self._kinds) if known is kind)]

    def properties(self, kind: type[msgspec.Struct]) -> dict[str, Any]:
        found: dict[str, Any] = self.components[kind.__name__]["properties"]
        return found


def _kinds_of(operation: Operation) -> list[Any]:
    kinds = (operation.body, operation.query, operation.answers, *operation.others.values())
    return [kind for kind in kinds if kind is not None]


def _portable(schema: Any) -> Any:
    r"""Patterns end with `\Z` in Python and with `$` in JSON Schema."""
    if isinstance(schema, dict):
        return {
            name: inner.replace(r"\Z", "$") if name == "pattern" and isinstance(inner, str) else _portable(inner)
            for name, inner in schema.items()
        }
    return [_portable(inner) for inner in schema] if isinstance(schema, list | tuple) else schema


def _described(operation: Operation, types: _Types) -> dict[str, Any]:
    answers = {operation.status: operation.answers, **operation.others}
    problem = {"content": {MEDIA_TYPE: {"schema": types.schema(Problem)}}}
    described: dict[str, Any] = {
        "operationId": _id_of(operation),
        "summary": operation.summary,
        "parameters": [*_parameters(operation, types)],
        "responses": {
            **{
                str(status): {"description": operation.summary, "content": _content(operation, kind, types)}
                for status, kind in answers.items()
            },
            **{str(status): {"description": words, **problem} for status, words in sorted(_errors(operation).items())},
        },
        "security": [] if operation.may is May.ANYBODY else [{"key": []}],
    }
    if operation.body is not None:
        body = {JSON: {"schema": types.schema(operation.body), "example": operation.example}}
        described["requestBody"] = {"content": body, "required": operation.needs_body}
    return described


def _content(operation: Operation, kind: Any, types: _Types) -> dict[str, Any]:
    known = {EVENT_STREAM: EVENT}
    if kind is not None:
        data = TEXT | {"contentMediaType": JSON, "contentSchema": types.schema(kind)}
        known = {EVENT_STREAM: EVENT | {"properties": EVENT["properties"] | {"data": data}}, JSON: types.schema(kind)}
    return {media_type: {"schema": known.get(media_type, TEXT)} for media_type in operation.media_types}


def _errors(operation: Operation) -> dict[int, str]:
    errors = dict(ALWAYS)
    if operation.may is not May.ANYBODY or operation.method != "GET":
        errors |= WITH_A_KEY
    if operation.pattern.names:
        errors |= WITH_A_NAME
    if operation.method != "GET":
        errors |= CHANGING
    if operation.body is not None:
        errors |= WITH_A_BODY
    return {**errors, **operation.errors}


def _parameters(operation: Operation, types: _Types) -> Iterable[dict[str, Any]]:
    for name in operation.pattern.names:
        schema = UNLIKE_NAMES.get(name) or types.schema(AName)
        yield {"name": name, "in": "path", "required": True, "schema": schema}
    if operation.query is not None:
        for name, schema in types.properties(operation.query).items():
            required = name in types.components[operation.query.__name__].get("required", ())
            yield {"name": name, "in": "query", "required": required, "schema": _without_null(schema)}
    for name, description in operation.headers.items():
        yield {"name": name, "in": "header", "required": False, "description": description, "schema": TEXT}


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A query has no null: what is not given is left out."""
    kinds = [kind for kind in schema.get("anyOf", []) if kind != {"type": "null"}]
    if len(kinds) != 1:
        return schema
    kind: dict[str, Any] = kinds[0]
    return {name: value for name, value in schema.items() if name not in ("anyOf", "default")} | kind


def _links(operations: Iterable[Operation]) -> Iterable[tuple[str, Any]]:
    """From a job that was submitted to everything that can be done with it."""
    for operation in operations:
        if operation.path.startswith(("/api/jobs/{id}", "/api/queue/{id}")):
            yield _id_of(operation), {"operationId": _id_of(operation), "parameters": {"id": "$response.body#/id"}}


def _id_of(operation: Operation) -> str:
    """Such as get-jobs-id-why."""
    parts = operation.path.removeprefix("/api").replace("{", "").replace("}", "").split("/")
    return "-".join([operation.method.lower(), *filter(None, parts)])
