"""What a request brings: its query and its body, checked against msgspec structs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import inspect
from starlette.requests import Request

from qo.policy.checks import shown
from qo.service.access.refused import Refused
from qo.service.connection import MOST_HEADER_BYTES

T = TypeVar("T", bound=msgspec.Struct)

MOST_BYTES = 1024 * 1024 + 64 * 1024
MOST_BYTES_OF_A_LIST = 16 * 1024 * 1024
ARRIVAL_SECONDS = 10.0
DEEPEST = 64
WHERE = re.compile(r"`\$\.?([^`]*)`\Z")
UNKNOWN = re.compile(r"Object contains unknown field `([^`]*)`")
MISSING = re.compile(r"Object missing required field `([^`]*)`")


def check_headers(scope: Mapping[str, Any]) -> None:
    """Raises a 431. The HTTP parser limits only headers that do not arrive at once."""
    size = (
        len(scope["path"])
        + len(scope["query_string"])
        + sum(len(name) + len(value) for name, value in scope["headers"])
    )
    if size > MOST_HEADER_BYTES:
        detail = f"The path and the headers have {size} bytes; send at most {MOST_HEADER_BYTES}."
        raise Refused(431, "Headers too large", detail, {"Connection": "close"})


def read_query(request: Request, kind: type[T]) -> T:
    """The query as a struct of text and numbers. A name that comes twice is refused, unless its field is a list."""
    lists = {field.name for field in msgspec.structs.fields(kind) if _is_list(field.type)}
    values: dict[str, Any] = {}
    for name, value in _query_of(request):
        if name in lists:
            values.setdefault(name, []).append(value)
        elif name in values:
            raise _wrong(name, value, "give it once")
        else:
            values[name] = value
    found = convert(values, kind, strict=False)
    for name in values:
        if getattr(found, name) is None:  # which msgspec makes of the text `null`, for a field that may be left out
            raise _wrong(name, values[name], f"use {_expected(kind, name)}, or leave it out")
    return found


def _query_of(request: Request) -> list[tuple[str, str]]:
    try:
        text = request.scope["query_string"].decode("latin-1")
        return parse_qsl(text, keep_blank_values=True, errors="strict")
    except UnicodeDecodeError:
        detail = "The query is not UTF-8; percent-encode its UTF-8 bytes."
        raise Refused(400, "Query not readable", detail) from None


def has_body(request: Request) -> bool:
    """Whether a body comes with the request, of known length or in chunks."""
    return "transfer-encoding" in request.headers or request.headers.get("content-length", "0") != "0"


async def read_json(request: Request, *, most_bytes: int = MOST_BYTES, most_unless_list: int | None = None) -> Any:
    """The body as plain JSON values. A body that is no list may have `most_unless_list` bytes, if that is given."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":
        detail = f"content-type is {shown(content_type)}; send application/json."
        raise Refused(415, "Not JSON", detail, field="content-type", allowed="application/json")
    try:
        async with asyncio.timeout(ARRIVAL_SECONDS):
            body = await _read_body(request, most_bytes)
    except TimeoutError:
        detail = f"The body has not arrived within {ARRIVAL_SECONDS:.0f} seconds; send it again."
        raise Refused(408, "Request too slow", detail, {"Connection": "close"}) from None
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(400, "JSON not readable", f"The body is not JSON: {error}.") from None
    if most_unless_list is not None and len(body) > most_unless_list and not isinstance(value, list):
        detail = f"The body of one job has at most {most_unless_list} bytes; yours has {len(body)}."
        raise Refused(413, "Payload too large", detail)
    if _is_too_deep(value):
        raise Refused(400, "JSON too deep", f"The body is nested more than {DEEPEST} levels deep; give it fewer.")
    return value


async def _read_body(request: Request, most_bytes: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > most_bytes:
            detail = f"The body has more than {most_bytes} bytes; store the data elsewhere and submit where it is."
            raise Refused(413, "Payload too large", detail)
        chunks.append(chunk)
    return b"".join(chunks)


def _is_too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(DEEPEST):
        level = [
            inner
            for each in level
            for inner in (each.values() if isinstance(each, dict) else each if isinstance(each, list) else ())
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


def convert(values: Any, kind: type[T], *, strict: bool = True) -> T:
    """The values as this struct. Raises a 422 that names the field, its value and what is allowed."""
    if not isinstance(values, Mapping):
        raise Refused(422, "Value not allowed", f"body is {kind_of(values)}; give a JSON object.", field="body")
    try:
        return msgspec.convert(values, kind, strict=strict)
    except msgspec.ValidationError as error:
        raise _explained(str(error), values, kind) from None


def _explained(sentence: str, values: Mapping[str, Any], kind: type[msgspec.Struct]) -> Refused:
    found = WHERE.search(sentence)
    path = re.split(r"[.\[]", found[1]) if found else []
    unknown, missing = UNKNOWN.search(sentence), MISSING.search(sentence)
    if wrong := unknown or missing:
        path.append(wrong[1])  # the path that msgspec tells is that of the object around it
    outer = ""
    while len(path) > 1 and (inner := _struct_at(kind, path[0])) is not None:
        outer, kind, values, path = f"{outer}{path[0]}.", inner, values[path[0]], path[1:]
    name = path[0] if path else "body"
    field = outer + name
    if unknown:
        # Without its value, which may be a key or a token under a wrong name.
        use = f"use {_one_of(kind)}" if msgspec.structs.fields(kind) else "leave it out"
        detail = f"{field} is not a field of this request; {use}."
        return Refused(422, "Value not allowed", detail, field=field, allowed=use)
    if missing:
        detail = f"{field} is missing; give {_expected(kind, name)}."
        return Refused(422, "Value not allowed", detail, field=field, allowed=_expected(kind, name))
    use = f"use {_expected(kind, name)}"
    if _is_secret(kind, name):
        return Refused(422, "Value not allowed", f"{field} is not as it has to be; {use}.", field=field, allowed=use)
    return _wrong(field, values.get(name), use)


def _one_of(kind: type[msgspec.Struct]) -> str:
    return f"one of {', '.join(field.encode_name for field in msgspec.structs.fields(kind))}"


def _struct_at(kind: type[msgspec.Struct], name: str) -> type[msgspec.Struct] | None:
    """The struct that a field is, where it is one."""
    return next((each.cls for each in _types_of(kind, name) if isinstance(each, inspect.StructType)), None)


def _expected(kind: type[msgspec.Struct], name: str) -> str:
    """What a field allows, in the words of its `Meta`."""
    if (struct := _struct_at(kind, name)) is not None:
        return f"an object with {_one_of(struct)}"
    meta = _meta(kind, name)
    if meta is None or not meta.extra_json_schema:
        return "a value of its type"
    description: str = meta.extra_json_schema["description"]
    return description


def _is_secret(kind: type[msgspec.Struct], name: str) -> bool:
    meta = _meta(kind, name)
    return meta is not None and bool(meta.extra)


def _meta(kind: type[msgspec.Struct], name: str) -> inspect.Metadata | None:
    return next((each for each in _types_of(kind, name) if isinstance(each, inspect.Metadata)), None)


def _types_of(kind: type[msgspec.Struct], name: str) -> tuple[inspect.Type, ...]:
    """What a field may be: one type, or those of a union such as that with None."""
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    found = next((field.type for field in info.fields if field.encode_name == name), None)
    if found is None:
        return ()
    return found.types if isinstance(found, inspect.UnionType) else (found,)


def kind_of(value: Any) -> str:
    """What a value is, where its content may be a secret."""
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "text"
    return "a list" if isinstance(value, list) else "an object"


def _wrong(name: str, value: Any, use: str) -> Refused:
    return Refused(422, "Value not allowed", f"{name} is {shown(value)}; {use}.", field=name, allowed=use)


def _is_list(kind: Any) -> bool:
    info = inspect.type_info(kind)
    while isinstance(info, inspect.Metadata):
        info = info.type
    return isinstance(info, inspect.VarTupleType | inspect.ListType)
