"""Every route of the HTTP service, from its OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from qo.service.app import ALL
from qo.service.openapi import document
from qo.service.operations import ALLOWED, May
from tools.site.reference.text import anchor, code, heading, paragraphs, table

FIRST = """\
The same as a machine reads it: `/openapi.json` of a running service. Errors are problems as RFC 9457 describes them;
every route may also answer the statuses at the end of this page. [How the service is used](../http.md) is a page of
its own."""
COMMON = ("400", "401", "403", "421", "422", "429", "500", "503", "408", "413", "415")


def page() -> str:
    read: dict[str, Any] = msgspec.json.decode(document(ALL))
    schemas = read["components"]["schemas"]
    parts = ["# HTTP routes", FIRST]
    common: dict[str, str] = {}
    for operation in ALL:
        described = read["paths"][operation.path][operation.method.lower()]
        answers = described["responses"]
        common |= {status: each["description"] for status, each in answers.items() if status in COMMON}
        parts += [heading(2, code(f"{operation.method} {operation.path}"), described["operationId"])]
        parts += [described["summary"], _who(operation.may)]
        parts += list(_described(described))
    parts += ["## Statuses of every route", table(["status", "means"], sorted(common.items())), "## Types"]
    for name, schema in sorted(schemas.items()):
        parts += [heading(3, code(name), f"type-{name}"), schema.get("description", ""), _fields(schema)]
    return paragraphs(parts)


def _who(may: May) -> str:
    if may is May.ANYBODY:
        return "Needs no key."
    roles = sorted(role.value for role in ALLOWED[may])
    own = " A user's key reaches its own user's jobs only." if "user" in roles else ""
    return f"For keys of the role {', '.join(roles)}.{own}"


def _described(described: Mapping[str, Any]) -> Iterator[str]:
    rows = [
        (code(each["name"]), each["in"], _kind(each["schema"]), "yes" if each["required"] else "no")
        for each in described["parameters"]
    ]
    yield table(["parameter", "in", "type", "required"], rows)
    if "requestBody" in described:
        content = described["requestBody"]["content"]["application/json"]
        yield f"Body: {_kind(content['schema'])}."
        if content.get("example") is not None:
            yield f"```json\n{msgspec.json.format(msgspec.json.encode(content['example'])).decode()}\n```"
    for status, answer in described["responses"].items():
        if status in COMMON:
            continue
        kinds = [f"{media_type}: {_kind(each['schema'])}" for media_type, each in answer.get("content", {}).items()]
        is_refusal = int(status) >= 400
        yield f"Answers {status}: {answer['description'] if is_refusal else ', '.join(kinds) or 'nothing'}"


def _fields(schema: Mapping[str, Any]) -> str:
    if "properties" not in schema:
        return f"{_kind(schema)}."
    required = schema.get("required", ())
    rows = [
        (code(name), _kind(each), "yes" if name in required else "no") for name, each in schema["properties"].items()
    ]
    return table(["field", "type", "always there"], rows)


def _kind(schema: Any) -> str:
    """A schema in a few words."""
    if not isinstance(schema, dict) or not schema:
        return "any JSON"
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{anchor(f'type-{name}')})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_kind(each) for each in schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(code(str(each)) for each in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    bounds = [f"{word} {schema[key]}" for key, word in (("minimum", "from"), ("maximum", "to")) if key in schema]
    return " ".join([str(schema.get("type", "any JSON")), *bounds])
