"""The document of the API names every operation, its errors and its types."""

from __future__ import annotations

from typing import Any

import msgspec

from qo.service.app import ALL
from tests.service.conftest import Service


async def document_of(served: Service) -> dict[str, Any]:
    found: dict[str, Any] = (await served.client.get("/openapi.json")).json()
    return found


async def test_every_operation_is_in_the_document_with_its_errors(served: Service) -> None:
    document = await document_of(served)

    for operation in ALL:
        described = document["paths"][operation.path][operation.method.lower()]
        assert described["summary"]
        assert str(operation.status) in described["responses"]
        named = {each["name"] for each in described["parameters"] if each["in"] == "path"}
        assert named == set(operation.pattern.names)


async def test_every_reference_leads_somewhere(served: Service) -> None:
    document = await document_of(served)

    def references(value: Any) -> list[str]:
        if isinstance(value, dict):
            own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
            return own + [each for inner in value.values() for each in references(inner)]
        return [each for inner in value for each in references(inner)] if isinstance(value, list) else []

    found = {each.removeprefix("#/components/schemas/") for each in references(document)}
    assert found
    assert found <= document["components"]["schemas"].keys()


async def test_the_page_lists_all_operations_and_has_no_script(served: Service) -> None:
    page = await served.client.get("/docs")

    assert all(operation.path in page.text for operation in ALL)
    assert "<script" not in page.text
    assert page.headers["content-security-policy"].startswith("default-src 'none'")


def test_every_body_has_an_example_that_fits() -> None:
    for operation in ALL:
        if operation.body is not None:
            msgspec.convert(operation.example, operation.body)
